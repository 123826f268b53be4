"""A builder for tests that lets LLVM run out of memory."""

from __future__ import annotations

import resource
from pathlib import Path

import llvmlite.binding as llvm

from tilesmith.support.child import serve

LINES = 200_000
ROOM = 24 << 20
"""Bytes of address space left for a module that takes more."""


def answer(request: bytes) -> bytes:
    if request == b"fine":
        return request
    lines = "\n".join(f"  %v{i} = add i64 %v{i - 1}, {i}" for i in range(1, LINES))
    text = f"define i64 @f(i64 %v0) {{\n{lines}\n  ret i64 %v{LINES - 1}\n}}\n"
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    llvm.parse_assembly(text)
    return b""


if __name__ == "__main__":
    serve(answer)
