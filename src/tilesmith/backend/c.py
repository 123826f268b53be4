"""Portable C: serial loops over scalars, which a C compiler vectorises.  Programs for `SOURCE` are
stored as text.

The schedules are those for CPUs.  Their tiles fit registers and caches: C compilers unroll constant
loops over local arrays and keep the arrays in registers.  `C` and `SOURCE` do not use Winograd's
algorithm, because its transforms are short sums only if our own lowering has unrolled their loops.

`VECTORS` serves single kernels.  It writes the same vector loops as for LLVM, in the vector
extensions of GCC and Clang.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen.c.compiler import assembly, compile_object
from tilesmith.codegen.c.emit import emit, emit_bare
from tilesmith.codegen.c.source import emit_source, unit
from tilesmith.codegen.c.vector_functions import emit_vectors
from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.math import expand_math
from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.choices import Choose
from tilesmith.graph.passes.columns import Choice as ColumnsChoice
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.factors import Factors
from tilesmith.graph.passes.winograd import Choice as WinogradChoice
from tilesmith.ir.dtypes import DType, i8, u8
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func

from . import loop_passes as p
from .base import native_toolchain
from .cpu import CPU


def no_products(target: Target) -> ColumnsChoice:
    """Choose a matrix product for no convolution: their times in C were never compared."""
    return lambda node, is_exchanged: False


def never(target: Target, bound: float, choose: Choose, element: DType) -> WinogradChoice:
    """Choose Winograd's algorithm for no convolution."""

    def direct(node: Node) -> int | None:
        return None

    return direct


def all_are_known(func: Func, target: Target) -> Func:
    """Return `func` unchanged: the language has all mathematical functions."""
    return func


def bytes_alone(target: Target) -> FactorChoice:
    """Store factors of integer products as bytes: microcontrollers lack memory rather than time,
    and they extend bytes while loading.
    """
    return lambda op, x, w: Factors(u8, i8)


def expanded(func: Func, target: Target) -> Func:
    """Expand mathematical functions into arithmetic without processor-specific instructions."""
    return expand_math(func, replace(target, features=frozenset()))


def _text(kernel: Kernel, target: Target, opt: int) -> bytes:
    return kernel.text.encode()


_LOOP_PASSES = (
    p.LOOPS_OF_INTRINSICS, p.SCALARIZE, p.SIMPLIFY, p.FLATTEN, p.TRIM, p.PEEL, p.SIMPLIFY_AGAIN,
    p.HOIST_CHECKS, p.HOIST,
)  # fmt: skip

C = replace(
    CPU,
    name="c",
    winograd=never,
    columns=no_products,
    loop_passes=_LOOP_PASSES,
    lower_intrinsics=all_are_known,
    emit=emit,
    tools=native_toolchain(compile_object, assembly),
    bare=emit_bare,
)

SOURCE = replace(
    C,
    name="source",
    loop_passes=(
        p.SCALARIZE,
        p.SIMPLIFY,
        p.FLATTEN,
        p.TRIM,
        p.PEEL,
        p.TENSORIZE,
        p.SIMPLIFY_AGAIN,
        p.HOIST_CHECKS,
        p.HOIST,
    ),
    factors=bytes_alone,
    emit=emit_source,
    tools=replace(
        native_toolchain(
            lambda text, target, opt: compile_object(unit(text), target, opt),
            lambda text, target: assembly(unit(text), target),
        ),
        compile=lambda text, target, opt: text.encode(),
        code=_text,
    ),
)
"""Portable C for processors that need a foreign compiler: programs are stored as text."""

VECTORS = replace(
    CPU, name="vectors", lower_intrinsics=expanded, emit=emit_vectors, tools=C.tools,
    loop_passes=(
        p.LOOPS_OF_INTRINSICS, p.ONE_THREAD, *(q for q in CPU.loop_passes if q is not p.TENSORIZE)
    ),
    bare=None,
)  # fmt: skip
"""Single kernels as C with vectors, on one thread."""
