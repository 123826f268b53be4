"""Evaluates tensor expressions with NumPy, a whole stage at a time.

An oracle that shares no code with lowering or the loop interpreter: expressions are evaluated on
grids of their axes. A load outside its tensor is an error unless a select keeps it from happening.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.functions import INTRINSICS
from tilesmith.te.tensor import Compute, Reduce, Tensor

_BINARY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "floormod": np.mod, "truncmod": np.fmod,
    "truncdiv": lambda a, b: (a - np.fmod(a, b)) // b,
    "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
_COMPARE: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
_REDUCE: dict[str, Any] = {
    "sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


class _Grid:
    """One evaluation: the values of the axes, and those of the tensors read."""

    def __init__(self, axes: dict[ir.Var, np.ndarray], tensors: dict[Tensor, np.ndarray]) -> None:
        self.axes = axes
        self.tensors = tensors

    def value(self, e: ir.Expr, active: Any = True) -> Any:
        """`e` on the whole grid; only points where `active` holds must be valid."""
        match e:
            case ir.Var():
                return self.axes[e]
            case ir.Const():
                return e.type.numpy.type(e.value)
            case ir.Let():
                self.axes[e.var] = self.value(e.value, active)
                return self.value(e.body, active)
            case ir.Unary():
                a = self.value(e.a, active)
                return np.negative(a) if e.op == "neg" else np.invert(a)
            case ir.Binary():
                return _BINARY[e.op](self.value(e.a, active), self.value(e.b, active))
            case ir.Compare():
                return _COMPARE[e.op](self.value(e.a, active), self.value(e.b, active))
            case ir.Cast():
                a = np.asarray(self.value(e.a, active))
                return a != 0 if e.type.is_bool else a.astype(e.type.numpy)
            case ir.Call(name="bitcast"):
                a = np.ascontiguousarray(self.value(e.args[0], active))
                return a.view(e.type.numpy)
            case ir.Call():
                args = [self.value(a, active) for a in e.args]
                if e.name == "bitcast":
                    return np.asarray(args[0]).view(e.type.numpy)
                result = np.asarray(INTRINSICS[e.name].evaluate(*args))
                return result.astype(e.type.numpy, copy=False)
            case ir.Select():
                cond = self.value(e.cond, active)
                a = self.value(e.if_true, np.logical_and(active, cond))
                b = self.value(e.if_false, np.logical_and(active, np.logical_not(cond)))
                return np.where(cond, a, b)
            case ir.Load():
                array = self.tensors[e.buffer]  # type: ignore[index]
                places = []
                for i, extent in zip(e.indices, array.shape, strict=True):
                    at = np.asarray(self.value(i, active))
                    bad = np.logical_and(active, np.logical_or(at < 0, at >= extent))
                    assert not np.any(bad), f"{e.buffer.name} is read outside its extent {extent}"
                    places.append(np.clip(at, 0, max(extent - 1, 0)))
                return array[tuple(np.broadcast_arrays(*places))] if places else array
        raise AssertionError(f"no rule for {type(e).__name__}")


def _stage(op: Compute, tensors: dict[Tensor, np.ndarray]) -> list[np.ndarray]:
    axes = (*op.axis, *op.reduce_axis)
    extents = tuple(int(a.extent) for a in axes)  # type: ignore[arg-type]  # tests have numbers
    if 0 in extents[: len(op.axis)]:
        shape = extents[: len(op.axis)]
        return [np.empty(shape, b.dtype.numpy) for b in op.body]
    grids = np.meshgrid(*(np.arange(n) for n in extents), indexing="ij", sparse=True)
    grid = _Grid({a.var: g for a, g in zip(axes, grids, strict=True)}, tensors)
    n = len(op.axis)
    first = op.body[0]
    if not isinstance(first, Reduce):
        return [np.broadcast_to(grid.value(b), extents).copy() for b in op.body]
    sources = [
        np.broadcast_to(grid.value(s), extents).reshape(*extents[:n], -1) for s in first.sources
    ]
    if first.reducer.name in _REDUCE:
        (source,) = sources
        identity = first.reducer.identity((first.dtype,))[0]
        assert isinstance(identity, ir.Const)
        start = source.dtype.type(identity.value)
        f = _REDUCE[first.reducer.name]
        return [np.asarray(f.reduce(source, axis=-1, initial=start, dtype=source.dtype))]
    left = tuple(ir.Var(f"a{i}", s.dtype) for i, s in enumerate(first.sources))
    right = tuple(ir.Var(f"b{i}", s.dtype) for i, s in enumerate(first.sources))
    combined = first.reducer.combine(left, right)
    start = first.reducer.identity(tuple(s.dtype for s in first.sources))
    values = [np.broadcast_to(_Grid({}, {}).value(e), extents[:n]) for e in start]
    for k in range(sources[0].shape[-1]):
        env = dict(zip(left, values, strict=True))
        env |= dict(zip(right, (s[..., k] for s in sources), strict=True))
        values = [_Grid(env, {}).value(e) for e in combined]
    return [np.asarray(values[b.index]) for b in op.body if isinstance(b, Reduce)]


def evaluate(
    outputs: Sequence[Tensor], inputs: Iterable[tuple[Tensor, np.ndarray]]
) -> list[np.ndarray]:
    """The arrays that `outputs` stand for when `inputs` are given."""
    tensors: dict[Tensor, np.ndarray] = dict(inputs)

    def need(t: Tensor) -> None:
        if t in tensors:
            return
        assert isinstance(t.op, Compute), f"{t} is not given"
        for source in t.op.inputs:
            need(source)
        with np.errstate(all="ignore"):
            tensors.update(zip(t.op.outputs, _stage(t.op, tensors), strict=True))

    for t in outputs:
        need(t)
    return [tensors[t] for t in outputs]
