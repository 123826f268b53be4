"""NVIDIA's GPUs: PTX through LLVM, which the driver compiles when a program is loaded.

Graph passes and schedules are the same for all devices. Registers of a GPU have no addresses, so
loops that index them are unrolled. A loop may be copied with its barriers, since all threads run
the same copy.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.ptx.assemble import code, ptx
from tilesmith.codegen.ptx.emit import emit, with_text
from tilesmith.graph.passes.low_precision import Choice as LowPrecisionChoice
from tilesmith.ir.target import Target
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.device_function import DeviceFunction
from tilesmith.strategy.device import factor_choice, low_precision_choice

from . import loop_passes as p
from .base import Toolchain
from .opencl import OPENCL, full_precision


def _function(
    kernel: Kernel, arguments: Arguments, target: Target, *, opt: int, threads: int | None
) -> DeviceFunction:
    return DeviceFunction(with_text(kernel, ptx(kernel.text, target, opt)), arguments, target)


def _low_precision(target: Target) -> LowPrecisionChoice:
    """Raises UsageError for an architecture without matrix instructions."""
    return low_precision_choice(target) if target.features else full_precision(target)


def _compile(text: str, target: Target, opt: int) -> bytes:
    return ptx(text, target, opt).encode()


_LOOP_PASSES = (
    p.LOOPS_OF_OWN_INTRINSICS, p.UNROLL_REGISTERS, p.SIMPLIFY, p.FLATTEN, p.TENSORIZE,
    p.VECTOR_COPIES, p.UNROLL, p.SIMPLIFY_AGAIN,
)  # fmt: skip

CUDA = replace(
    OPENCL,
    name="cuda",
    low_precision=_low_precision,
    factors=factor_choice,
    loop_passes=_LOOP_PASSES,
    lower_intrinsics=expand_math,
    emit=emit,
    tools=Toolchain(_compile, ptx, code, _function),
)
