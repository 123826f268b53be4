"""The version of the schedules with which a record's times were measured.

A record holds the speedup of a candidate over the analytic schedule.  The speedup is valid only for
the code that made both.  When a strategy changes, the analytic schedule may overtake the candidate,
or the same decisions may make other loops.  So the version is a hash of the sources that make
kernels.  It needs no maintenance, and is equal wherever the same sources are installed.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from tilesmith.support.cache import llvm_version

SOURCES = ("ir", "te", "loop", "ops", "perf", "strategy", "codegen")
"""The folders of the package whose code makes a kernel from a fused body and decisions."""


@cache
def schedule_version() -> int:
    """A positive number for this process's sources: a hash of their contents and LLVM's version."""
    return version_of(Path(__file__).resolve().parents[1])


def version_of(package: Path) -> int:
    """The version of the sources in the folder `package`."""
    h = hashlib.blake2b(llvm_version().encode(), digest_size=4)
    for source in SOURCES:
        for path in sorted((package / source).rglob("*.py")):
            contents = path.read_bytes()
            h.update(f"{path.relative_to(package).as_posix()} {len(contents)};".encode())
            h.update(contents)
    return int.from_bytes(h.digest(), "big") or 1
