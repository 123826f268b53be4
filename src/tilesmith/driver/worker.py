"""The main program of a worker process: it compiles kernels for the driver of another process."""

from __future__ import annotations

import gc

from tilesmith.driver import answer
from tilesmith.support.child import serve
from tilesmith.support.garbage import rarely_collected

if __name__ == "__main__":
    gc.freeze()  # the garbage collector need not look at the compiler itself
    with rarely_collected():
        serve(answer)
