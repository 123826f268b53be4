"""The main program of a worker process: it counts cycles for the sweep of another process."""

from __future__ import annotations

from tilesmith.accel.sweep import answer
from tilesmith.support.child import serve

if __name__ == "__main__":
    serve(answer)
