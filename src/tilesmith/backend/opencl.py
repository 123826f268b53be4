"""Devices through OpenCL: a kernel for each launch of blocks of threads.

Loops stay as the schedule has them: the driver's compiler unrolls, and keeps small arrays in
registers.  Loops are not peeled or copied, since a barrier must stay one statement that all threads
come to.
"""

from __future__ import annotations

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.opencl.emit import emit
from tilesmith.ir.target import Target
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.scalarize import scalarize
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.tensorize import without_intrinsics
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.opencl import DeviceFunction, opened
from tilesmith.strategy.cpu.layouts import layout_policy
from tilesmith.strategy.cpu.low_precision import factor_choice, low_precision_choice
from tilesmith.strategy.cpu.scaled_chunks import packing_choice
from tilesmith.strategy.device import default_schedule

from .base import Backend, LoopPass
from .c import all_are_known, never
from .cpu import RULES, predict_seconds


def _function(
    kernel: Kernel, arguments: Arguments, target: Target, *, opt: int, threads: int | None
) -> DeviceFunction:
    return DeviceFunction(kernel, arguments, target)


def _text(text: str, target: Target, opt: int) -> bytes:
    """The driver of the device compiles; what is kept is the text."""
    return text.encode()


def _assembly(text: str, target: Target) -> str:
    assert target.device is not None
    device = opened(target.device.number)
    return device.binary(device.build(text))


OPENCL = Backend(
    name="opencl",
    layout_policy=layout_policy,
    winograd=never,
    packing=packing_choice,
    low_precision=low_precision_choice,
    factors=factor_choice,
    rules=RULES,
    auto_schedule=default_schedule,
    loop_passes=(
        LoopPass("loops-of-intrinsics", without_intrinsics, "nest"),
        LoopPass("scalarize", scalarize, "nest"),
        LoopPass("simplify", simplify_func, "nest"),
        LoopPass("flatten", flatten, "flat"),
        LoopPass("simplify-again", simplify_func, "final"),
    ),
    lower_intrinsics=all_are_known,
    emit=emit,
    function=_function,
    entry=None,
    sizes=None,
    compile=_text,
    assembly=_assembly,
    predict=predict_seconds,
)
