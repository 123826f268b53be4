"""The main program of a worker process: it compiles kernels for the driver of another process."""

from __future__ import annotations

from tilesmith.driver import answer
from tilesmith.support.child import serve

if __name__ == "__main__":
    serve(answer)
