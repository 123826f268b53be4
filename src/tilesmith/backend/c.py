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
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.scalarize import scalarize
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.tensorize import without_intrinsics
from tilesmith.loop.passes.trim import trim
from tilesmith.runtime.function import native

from .base import LoopPass
from .cpu import CPU


def never(target: Target, bound: float, choose: Choose, element: DType) -> WinogradChoice:
    """No convolution by minimal filtering."""

    def direct(node: Node) -> int | None:
        return None

    return direct


def all_are_known(func: Func, target: Target) -> Func:
    """The language has every function."""
    return func


C = replace(
    CPU,
    name="c",
    winograd=never,
    loop_passes=(
        LoopPass("loops-of-intrinsics", without_intrinsics, "nest"),
        LoopPass("scalarize", scalarize, "nest"),
        LoopPass("simplify", simplify_func, "nest"),
        LoopPass("flatten", flatten, "flat"),
        LoopPass("trim", trim, "flat"),
        LoopPass("peel", peel, "flat"),
        LoopPass("simplify-again", simplify_func, "final"),
        LoopPass("hoist", hoist, "final"),
    ),
    lower_intrinsics=all_are_known,
    emit=emit,
    function=native(compile_object, assembly),
    code=lambda kernel, target, opt: compile_object(kernel.text, target, opt),
    entry=emit_entry,
    sizes=emit_sizes,
    compile=compile_object,
    assembly=assembly,
)
