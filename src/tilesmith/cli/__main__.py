"""`python -m tilesmith.cli` is the `tilesmith` program."""

from tilesmith.cli import main

main()
