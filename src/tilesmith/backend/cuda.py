"""NVIDIA's GPUs: PTX through LLVM, which the driver compiles when a program is loaded.

Graph passes and schedules are those of all devices.  Registers have no addresses here, so what
indexes them is unrolled; barriers are copied with the loops around them, for all threads alike.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.ptx.assemble import code, ptx
from tilesmith.codegen.ptx.emit import emit, with_text
from tilesmith.graph.passes.low_precision import Choice as LowPrecisionChoice
from tilesmith.ir.target import Target
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.tensorize import tensorize, without_own_intrinsics
from tilesmith.loop.passes.thread_registers import unroll_registers
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vector_copies import vector_copies
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.device_function import DeviceFunction
from tilesmith.strategy.device import factor_choice, low_precision_choice

from .base import LoopPass
from .opencl import OPENCL, full_precision


def _function(
    kernel: Kernel, arguments: Arguments, target: Target, *, opt: int, threads: int | None
) -> DeviceFunction:
    return DeviceFunction(with_text(kernel, ptx(kernel.text, target, opt)), arguments, target)


def _low_precision(target: Target) -> LowPrecisionChoice:
    """Raises UsageError for an architecture without matrix instructions."""
    return low_precision_choice(target) if target.features else full_precision(target)


CUDA = replace(
    OPENCL,
    name="cuda",
    low_precision=_low_precision,
    factors=factor_choice,
    loop_passes=(
        LoopPass("loops-of-intrinsics", without_own_intrinsics, "nest"),
        LoopPass("unroll-registers", unroll_registers, "nest"),
        LoopPass("simplify", simplify_func, "nest"),
        LoopPass("flatten", flatten, "flat"),
        LoopPass("tensorize", tensorize, "flat"),
        LoopPass("vector-copies", vector_copies, "flat"),
        LoopPass("unroll", unroll, "final"),
        LoopPass("simplify-again", simplify_func, "final"),
    ),
    lower_intrinsics=expand_math,
    emit=emit,
    function=_function,
    code=code,
    compile=lambda text, target, opt: ptx(text, target, opt).encode(),
    assembly=ptx,
)
