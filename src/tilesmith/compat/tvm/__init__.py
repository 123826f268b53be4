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
from .te import (
    comm_reducer,
    compute,
    create_schedule,
    max_value,
    min_value,
    placeholder,
    reduce_axis,
    scan,
    thread_axis,
)  # fmt: skip
from .te import size_var as size_var
from .te import sum as sum
from .te import var as var
from .tir import all as all
from .tir import any as any
from .tir import const as const
from .tir import if_then_else as if_then_else
from .tir import max as max
from .tir import min as min

__all__ = [
    "IRModule", "Module", "auto_scheduler", "autotvm", "build", "comm_reducer", "compute",
    "contrib", "cpu", "create_schedule", "cuda", "device", "gpu", "lower", "max_value",
    "min_value", "nd", "opencl", "placeholder", "reduce_axis", "relay", "runtime", "scan",
    "target", "te", "testing", "thread_axis", "tir", "topi", "transform",
]  # fmt: skip

ELSEWHERE = {
    "relax": "tilesmith.compile(model), which reads ONNX, PyTorch and a dozen other formats",
    "rpc": "`tilesmith tune --workers`, which measures on other machines",
}
"""What to use for names of TVM."""


def __getattr__(name: str) -> NoReturn:
    elsewhere("tvm", name, ELSEWHERE)
