"""`python -m tilesmith.cli` is the `tilesmith` program."""

from tilesmith.cli import main

if __name__ == "__main__":
    main()
