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

from ..names import refusing
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
    "arith": "tilesmith.te.lower, which simplifies",
    "context": "tvm.device",
    "convert": "the value itself",
    "exec": "`tilesmith agent serve`, which serves this machine",
    "ir": "tilesmith.te.call, or tilesmith.te.decl_tensor_intrin for an instruction",
    "meta_schedule": "tvm.auto_scheduler, or tilesmith.tune_expression",
    "micro": "`tilesmith export MODEL`, a library in C",
    "parser": "tvm.relay.parse",
    "script": "te.extern with an ir_builder",
    **dict.fromkeys(
        ("get_global_func", "register_func"),
        "tilesmith.te.extern with a LoopBuilder; no function is called by a name",
    ),
    "relax": "tilesmith.compile(model), which reads ONNX, PyTorch and a dozen other formats",
}
"""What to use for names of TVM."""

__getattr__ = refusing("tvm", ELSEWHERE)
