"""Kernels that stay C text, for processors that only their manufacturer's compiler supports.

Two comments before a kernel name the helpers of `prelude` that it calls, and the C types and
numbers of elements of its buffers.  Programs that put several kernels into one file read these
comments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from tilesmith.codegen.kernel import Kernel
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Func

from .emit import translation_unit_of, write
from .prelude import MEMORY_TYPES


@dataclass(frozen=True, slots=True)
class SourceKernel:
    """A kernel in C.

    text: definition of the function, named `symbol`.
    helpers: names of the helper functions (see `prelude`) that the kernel calls.
    buffers: the C type and the number of elements of each buffer parameter.  The number is 0 if it
        is known only at run time.
    """

    text: str
    helpers: frozenset[str]
    buffers: tuple[tuple[str, int], ...]


def emit_source(
    func: Func, target: Target, *, shared: Collection[int] = (), strict: bool = False
) -> Kernel:
    """The C function of `func`, preceded by two comments (see the top of this module).

    `strict` does not change the text.
    """
    f = write(func, shared=shared)
    buffers = [
        f"{MEMORY_TYPES[p.dtype.name]} {_count(p)}" for p in func.params if isinstance(p, Buffer)
    ]
    head = f"/* helpers: {' '.join(sorted(f.helpers))} */\n/* buffers: {', '.join(buffers)} */\n"
    return Kernel(f.symbol, head + f.text, f.workspace_bytes, 0, f.messages)


def _count(buffer: Buffer) -> int:
    return math.prod(n if isinstance(n, int) else 0 for n in buffer.shape)


def source_kernel(text: str) -> SourceKernel:
    """The kernel in the text that `emit_source` wrote."""
    helpers, buffers, rest = text.split("\n", 2)
    pairs = [pair.rsplit(" ", 1) for pair in _listed(buffers).split(", ") if pair]
    return SourceKernel(
        rest,
        frozenset(_listed(helpers).split()),
        tuple((type_, int(count)) for type_, count in pairs),
    )


def _listed(line: str) -> str:
    match = re.fullmatch(r"/\* \w+: (.*) \*/", line)
    assert match is not None, line
    return match[1]


def unit(text: str) -> str:
    """A translation unit that contains a text of `emit_source` or the text of an entry function."""
    if not text.startswith("/* helpers: "):
        return text
    kernel = source_kernel(text)
    return translation_unit_of([kernel.text], kernel.helpers)
