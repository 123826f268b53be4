"""Portable C: serial loops over scalars, which a C compiler vectorises.

The schedules are those for CPUs: their tiles fit registers and caches, and constant loops over
local arrays are what C compilers unroll and keep in registers.  Winograd's transforms are not used:
they are sums with constant factors only once they are unrolled.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen.c.compiler import assembly, compile_object
from tilesmith.codegen.c.emit import emit
from tilesmith.codegen.c.entry import emit_entry
from tilesmith.codegen.c.sizes import emit_sizes
from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.choices import Choose
from tilesmith.graph.passes.winograd import Choice as WinogradChoice
from tilesmith.ir.dtypes import DType
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func

from . import loop_passes as p
from .base import native_toolchain
from .cpu import CPU


def never(target: Target, bound: float, choose: Choose, element: DType) -> WinogradChoice:
    """No convolution by minimal filtering."""

    def direct(node: Node) -> int | None:
        return None

    return direct


def all_are_known(func: Func, target: Target) -> Func:
    """The language has every function."""
    return func


_LOOP_PASSES = (
    p.LOOPS_OF_INTRINSICS, p.SCALARIZE, p.SIMPLIFY, p.FLATTEN, p.TRIM, p.PEEL, p.SIMPLIFY_AGAIN,
    p.HOIST,
)  # fmt: skip

C = replace(
    CPU,
    name="c",
    winograd=never,
    loop_passes=_LOOP_PASSES,
    lower_intrinsics=all_are_known,
    emit=emit,
    tools=native_toolchain(compile_object, assembly),
    entry=emit_entry,
    sizes=emit_sizes,
)
