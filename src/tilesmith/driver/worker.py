"""The main program of a worker process: it compiles kernels for the driver of another process."""

from __future__ import annotations

import gc

from tilesmith.driver import answer
from tilesmith.support.child import serve

if __name__ == "__main__":
    gc.freeze()  # the compiler itself is no garbage, and expressions are freed by their counts:
    gc.set_threshold(100_000)  # a search for cycles finds little, and took 5% of the time
    serve(answer)
