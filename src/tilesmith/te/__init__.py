"""Tensor expressions define a computation.  Schedules define its execution, separately.

A, B = te.placeholder((M, K)), te.placeholder((K, N))
k = te.reduce_axis(K, "k")
C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
s = te.create_schedule(C.op)
func = te.lower(s, [A, B, C])
"""

from tilesmith.ir.dtypes import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from tilesmith.ir.expr import absolute as abs
from tilesmith.ir.expr import all_of as all
from tilesmith.ir.expr import any_of as any
from tilesmith.ir.expr import cast, const, maximum, minimum, power, select
from tilesmith.ir.intrinsics import call
from tilesmith.loop.builder import LoopBuilder

from . import intrinsics
from .extern import extern
from .gradient import gradient
from .intrinsics import *  # noqa: F403
from .lower import lower
from .reducers import comm_reducer
from .scan import scan
from .schedule import Schedule, create_schedule
from .stage import Axis, Stage, word
from .tensor import (
    Compute,
    IterVar,
    Placeholder,
    Reducer,
    Tensor,
    compute,
    if_then_else,
    max,
    min,
    placeholder,
    prod,
    reduce_axis,
    sum,
    var,
)  # fmt: skip
from .tensor_intrin import decl_tensor_intrin
from .text import print_ops

__all__ = [
    "Axis", "Compute", "IterVar", "LoopBuilder", "Placeholder", "Reducer", "Schedule", "Stage",
    "Tensor", "abs", "all", "any", "bf16", "bool_", "call", "cast", "comm_reducer", "compute",
    "const", "create_schedule", "decl_tensor_intrin", "extern", "f16", "f32", "f64", "gradient",
    "i8", "i16", "i32", "i64", "if_then_else", "lower", "max", "maximum", "min", "minimum",
    "placeholder", "power", "print_ops", "prod", "reduce_axis", "scan", "select", "sum", "u8",
    "u16", "u32", "u64", "var",
]  # fmt: skip
__all__ += intrinsics.__all__


def __getattr__(name: str) -> object:
    raise AttributeError(word("te", name))
