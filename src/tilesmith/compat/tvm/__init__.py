"""The Python interface of TVM 0.6 to 0.16: tensor expressions, their tuning, and models.

    import tilesmith.compat.tvm as tvm
    from tilesmith.compat.tvm import te

    A = te.placeholder((n,), "float32", name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    f = tvm.build(s, [A, B], "llvm")
    b = tvm.nd.empty((n,))
    f(tvm.nd.array(a), b)

Argument names and their order are TVM's.  A name without a counterpart raises UsageError, which
says what to use instead.
"""

from __future__ import annotations

from typing import NoReturn

from ..names import elsewhere
from . import (
    auto_scheduler,
    autotvm,
    contrib,
    nd,
    relay,
    rpc,
    runtime,
    target,
    te,
    testing,
    tir,
    topi,
    transform,
)
from .driver import IRModule, build, lower
from .runtime import Module, cpu, cuda, device, gpu, opencl
from .te import *  # noqa: F403
from .tir import all, any, max, min

__all__ = [
    "IRModule", "Module", "all", "any", "auto_scheduler", "autotvm", "build", "contrib", "cpu",
    "cuda", "device", "gpu", "lower", "max", "min", "nd", "opencl", "relay", "rpc", "runtime",
    "target", "te", "testing", "tir", "topi", "transform",
]  # fmt: skip
__all__ += te.__all__

ELSEWHERE = {
    "relax": "tilesmith.compile(model), which reads ONNX, PyTorch and a dozen other formats",
}
"""What to use for names of TVM."""


def __getattr__(name: str) -> NoReturn:
    elsewhere("tvm", name, ELSEWHERE)
