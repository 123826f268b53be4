"""A tiny evaluator of expressions, written independently of the interpreter: the oracle of the
property tests.

Every value is a NumPy array with one element per lane; integers are computed in Python and wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Let,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    VectorReduce,
)
from tilesmith.ir.functions import INTRINSICS


class Undefined(Exception):
    """The expression has no defined value for these inputs."""


def wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value


def _array(values: list[Any], dtype: DType) -> np.ndarray:
    return np.array(values, dtype.numpy)


def _divide(op: str, a: int, b: int) -> int:
    if b == 0:
        raise Undefined
    if op in ("floordiv", "floormod"):
        return a // b if op == "floordiv" else a % b
    q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return q if op == "truncdiv" else a - q * b


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of two zeros the first; NumPy's answer there depends on the machine."""
    return np.where(np.isnan(a) | (a <= b), a, b)


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(a) | (a >= b), a, b)


def _integer(op: str, a: int, b: int, dtype: DType) -> int:
    if "div" in op or "mod" in op:
        return wrap(_divide(op, a, b), dtype)
    if op in ("shl", "shr"):
        if not 0 <= b < dtype.bits:
            raise Undefined
        return wrap(a << b if op == "shl" else a >> b, dtype)
    if op in ("min", "max"):
        return min(a, b) if op == "min" else max(a, b)
    result = {"add": a + b, "sub": a - b, "mul": a * b, "and": a & b, "or": a | b, "xor": a ^ b}
    return wrap(result[op], dtype)


_FLOAT = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": _minimum, "max": _maximum,
}  # fmt: skip
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}


def evaluate(e: Expr, env: Mapping[Any, Any]) -> np.ndarray:
    """The value of `e`; `env` gives Vars (numbers) and buffers (arrays).  Raises Undefined."""
    with np.errstate(all="ignore"):
        return _evaluate(e, env)


def _evaluate(e: Expr, env: Mapping[Any, Any]) -> np.ndarray:
    if isinstance(e, Var):
        return np.broadcast_to(np.asarray(env[e], e.dtype.numpy), (e.lanes,))
    if isinstance(e, Const):
        return _array([e.value], e.type)
    if isinstance(e, Unary):
        a = _evaluate(e.a, env)
        if e.dtype.is_float:
            return -a
        if e.op == "not":
            return ~a
        return _array([wrap(-int(x), e.dtype) for x in a], e.dtype)
    if isinstance(e, Binary):
        a, b = _evaluate(e.a, env), _evaluate(e.b, env)
        if e.dtype.is_float:
            return _FLOAT[e.op](a, b)
        values = [_integer(e.op, int(x), int(y), e.dtype) for x, y in zip(a, b)]
        return _array(values, e.dtype)
    if isinstance(e, Compare):
        return _COMPARE[e.op](_evaluate(e.a, env), _evaluate(e.b, env))
    if isinstance(e, Select):
        return _select(e, env)
    if isinstance(e, Cast):
        a = _evaluate(e.a, env)
        if e.a.dtype.is_float and e.type.is_int:
            if not np.all((a >= e.type.min) & (a <= e.type.max)):
                raise Undefined
            return _array([wrap(int(x), e.type) for x in a], e.type)
        if e.type.is_bool:
            return a != 0
        if e.type.is_int:
            return _array([wrap(int(x), e.type) for x in a], e.type)
        return a.astype(e.type.numpy)
    if isinstance(e, Load):
        return _load(e, env)
    if isinstance(e, Call):
        args = [_evaluate(a, env) for a in e.args]
        return np.asarray(INTRINSICS[e.name].evaluate(*args)).astype(e.type.numpy)
    if isinstance(e, Ramp):
        base, stride = int(_evaluate(e.base, env)[0]), int(_evaluate(e.stride, env)[0])
        return _array([wrap(base + stride * i, e.dtype) for i in range(e.size)], e.dtype)
    if isinstance(e, Broadcast):
        return np.repeat(_evaluate(e.value, env), e.size)
    if isinstance(e, Let):
        return _evaluate(e.body, {**env, e.var: _evaluate(e.value, env)})
    if isinstance(e, VectorReduce):
        groups = _evaluate(e.a, env).reshape(e.size, -1)
        ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
                 "and": np.bitwise_and, "or": np.bitwise_or}[e.op]  # fmt: skip
        return ufunc.reduce(groups, axis=1, dtype=e.dtype.numpy)
    raise TypeError(type(e).__name__)


def _select(e: Select, env: Mapping[Any, Any]) -> np.ndarray:
    cond = np.broadcast_to(_evaluate(e.cond, env), (e.lanes,))
    if cond.all():
        return _evaluate(e.if_true, env)
    if not cond.any():
        return _evaluate(e.if_false, env)
    inactive = env.get("inactive", np.zeros(e.lanes, bool))
    a = _evaluate(e.if_true, {**env, "inactive": inactive | ~cond})
    b = _evaluate(e.if_false, {**env, "inactive": inactive | cond})
    return np.where(cond, a, b).astype(e.dtype.numpy)


def _load(e: Load, env: Mapping[Any, Any]) -> np.ndarray:
    data: np.ndarray = env[e.buffer]
    indices = [np.broadcast_to(_evaluate(i, env), (e.lanes,)) for i in e.indices]
    mask = np.ones(e.lanes, bool) if e.mask is None else _evaluate(e.mask, env)
    inactive = env.get("inactive")
    values = []
    for lane in range(e.lanes):
        where = tuple(int(i[lane]) for i in indices)
        off = inactive is not None and (
            inactive[lane] if len(inactive) == e.lanes else inactive.all()
        )
        if not mask[lane] or off:
            values.append(data.dtype.type(0))
            continue
        if not all(0 <= w < n for w, n in zip(where, data.shape)):
            raise Undefined
        values.append(data[where])
    return np.array(values, data.dtype)
