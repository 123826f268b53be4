"""Devices through OpenCL: a kernel for each launch of blocks of threads.

Loops stay as the schedule has them: the driver's compiler unrolls them and keeps small arrays in
registers.  Loops are not peeled or copied, since a barrier must stay one statement that all threads
reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.opencl.emit import emit
from tilesmith.codegen.packed import packed
from tilesmith.graph.passes.choices import Choose
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.factors import always_pairs
from tilesmith.graph.passes.low_precision import Choice as LowPrecisionChoice
from tilesmith.graph.passes.packed_weights import Choice as PackingChoice
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.perf.cost import Place
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.device_function import DeviceFunction
from tilesmith.runtime.opencl import opened
from tilesmith.strategy.device import (
    LONGEST,
    RULES,
    channels_last,
    default_schedule,
    has_few_lines,
)
from tilesmith.support.errors import UsageError

from . import loop_passes as p
from .base import Backend, Lines, Toolchain
from .c import all_are_known, never, no_products


def _function(
    kernel: Kernel, arguments: Arguments, target: Target, *, opt: int, threads: int | None
) -> DeviceFunction:
    return DeviceFunction(kernel, arguments, target)


def _text(text: str, target: Target, opt: int) -> bytes:
    """The stored form is the text itself, which the device's driver compiles."""
    return text.encode()


def _assembly(text: str, target: Target) -> str:
    assert target.device is not None
    device = opened(target.device.number)
    return device.assembly(device.build(text))


def few_bits(target: Target, choose: Choose) -> PackingChoice:
    """Pack no weights.  Weights of few bits are widened when they are loaded."""
    return lambda node, bits: False


def full_precision(target: Target) -> LowPrecisionChoice:
    raise UsageError(f"target {target.name!r} has no low precision of its own; use precision='f32'")


def pairs(target: Target) -> FactorChoice:
    return always_pairs


def seconds(final: Func, target: Target, threads: int, places: Sequence[Place]) -> float:
    """Predict nothing: the performance model knows only CPUs."""
    return 0.0


LINES = Lines(LONGEST, has_few_lines)

OPENCL = Backend(
    name="opencl",
    layout_policy=channels_last,
    has_halos=False,
    winograd=never,
    columns=no_products,
    packing=few_bits,
    low_precision=full_precision,
    factors=pairs,
    lines=LINES,
    rules=RULES,
    auto_schedule=default_schedule,
    loop_passes=(p.LOOPS_OF_INTRINSICS, p.SCALARIZE, p.SIMPLIFY, p.FLATTEN, p.SIMPLIFY_AGAIN),
    lower_intrinsics=all_are_known,
    emit=emit,
    tools=Toolchain(_text, _assembly, packed, _function),
    bare=None,
    predict=seconds,
)
