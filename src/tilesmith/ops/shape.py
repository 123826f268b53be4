"""Operators that only change the indices of elements, such as reshape, transpose and expand.

Reshape computes indices separately for each group of axes that merge or split together.  So the
index of an axis that does not change stays a plain variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.expr import Expr, ExprLike, as_expr, const
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim
from tilesmith.support.errors import OpenDimensionError
from tilesmith.te import tensor as te

from . import rules
from .base import GraphBuilder, Op


@dataclass(frozen=True)
class Reshape(Op):
    """The elements in row-major order in another shape.  One dimension may be -1, for the rest."""

    shape: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        shape = self.resolve(x.shape)
        groups = _groups(x.shape, shape)
        return te.compute(shape, lambda *i: x[tuple(_source_index(groups, i))], self.name)

    def resolve(self, source: Sequence[Dim]) -> tuple[Dim, ...]:
        """The result's shape for an input of shape `source`, with -1 resolved.  Raises ModelError
        if there is no such shape, UnequalDims if there is one only for some sizes.
        """
        unknown = [i for i, d in enumerate(self.shape) if _is(d, -1)]
        known = rules.product(d for d in self.shape if not _is(d, -1))
        total = rules.product(source)
        if any(isinstance(d, int) and d < -1 for d in self.shape) or len(unknown) > 1:
            self._mismatch(source)
        if not unknown:
            if not rules.equal(self.name, total, known):
                self._mismatch(source)
            return self.shape
        rest = extents.quotient(total, known)
        if rest is None:
            if isinstance(total, int) and isinstance(known, int):
                self._mismatch(source)
            message = (
                f"{self.name}: cannot work out -1 in {rules.shape_text(self.shape)} for "
                f"{rules.shape_text(source)}; give numbers with shapes="
            )
            if not extents.is_at_most(1, known):
                raise OpenDimensionError(message, source)
            whole, part = extents.reduced(total, known)
            raise rules.UnequalDims(as_dim(as_expr(whole) % part), 0, message)
        return tuple(rest if i == unknown[0] else d for i, d in enumerate(self.shape))

    def rounded(self, source: Sequence[Dim]) -> tuple[Dim, ...]:
        """The result's shape for an input of shape `source`.  The division for -1 rounds down."""
        known = rules.product(d for d in self.shape if not _is(d, -1))
        whole, part = extents.reduced(rules.product(source), known)
        return tuple(as_dim(as_expr(whole) // part) if _is(d, -1) else d for d in self.shape)

    def _mismatch(self, source: Sequence[Dim]) -> None:
        rules.reject(
            self.name,
            f"a shape of as many elements as {rules.shape_text(source)}",
            rules.shape_text(self.shape),
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0].reshape(self.resolve(inputs[0].shape))  # type: ignore[arg-type]


Group = tuple[list[Dim], list[tuple[int, Dim]]]
"""Adjacent input dimensions, and (position, dimension) pairs of the output, with equal products."""


def _groups(source: Sequence[Dim], target: Sequence[Dim]) -> list[Group]:
    """Cut both shapes into groups: the smallest runs of axes with equal products."""
    groups: list[Group] = []
    i = j = 0
    if 0 in [d for d in source if isinstance(d, int)]:  # no elements, so any index is valid
        return [([d], []) for d in source]
    while i < len(source) or j < len(target):
        if i < len(source) and _is(source[i], 1) and not (j < len(target) and _is(target[j], 1)):
            groups.append(([source[i]], []))
            i += 1
            continue
        if j < len(target) and _is(target[j], 1) and not (i < len(source) and _is(source[i], 1)):
            j += 1
            continue
        ins, outs = source[i : i + 1], [*enumerate(target)][j : j + 1]
        i, j = i + 1, j + 1
        while not extents.are_equal(
            p := rules.product(ins), q := rules.product(d for _, d in outs)
        ):
            if j >= len(target) or (i < len(source) and _is_part(p, q)):
                ins = (*ins, source[i])
                i += 1
            else:
                outs.append((j, target[j]))
                j += 1
        groups.append(([*ins], outs))
    return groups


def _is_part(p: Dim, q: Dim) -> bool:
    """Whether a group with p input elements and q output elements needs more input axes."""
    if isinstance(p, int) and isinstance(q, int):
        return p < q
    return extents.quotient(q, p) is not None


def _is(d: Dim, n: int) -> bool:
    return isinstance(d, int) and d == n


def _source_index(groups: list[Group], index: Sequence[Expr]) -> list[ExprLike]:
    result: list[ExprLike] = []
    for ins, outs in groups:
        wide = [d for d in ins if not _is(d, 1)]
        terms = [(j, d) for j, d in outs if not _is(d, 1)]
        if not terms:
            # With one axis on both sides, the index stays a plain variable.  So the index of an
            # unchanged axis stays plain.
            paired = len(ins) == 1 and len(outs) == 1
            result += [index[outs[0][0]]] if paired else [const(0)] * len(ins)
            continue
        if len(wide) == 1 and len(terms) == 1:
            result += [const(0) if _is(d, 1) else index[terms[0][0]] for d in ins]
            continue
        flat = _flat([index[j] for j, _ in terms], [d for _, d in terms])
        result += _unflat(flat, ins)
    return result


def _flat(index: Sequence[Expr], dims: Sequence[Dim]) -> Expr:
    flat: Expr | None = None
    for i, stride in zip(index, rules.strides_of(dims), strict=True):
        term = i if _is(stride, 1) else i * stride
        flat = term if flat is None else flat + term
    assert flat is not None
    return flat


def _unflat(flat: Expr, dims: Sequence[Dim]) -> list[ExprLike]:
    result: list[ExprLike] = []
    is_leading = True  # the outermost position needs no modulo
    for d, stride in zip(dims, rules.strides_of(dims), strict=True):
        if _is(d, 1):
            result.append(const(0))
            continue
        e = flat if _is(stride, 1) else flat // stride
        result.append(e if is_leading else e % d)
        is_leading = False
    return result


@dataclass(frozen=True)
class Squeeze(Op):
    """Drops axes of extent 1: those of `axes`, or all."""

    axes: tuple[int, ...] | None = None

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        shape = inputs[0].type.shape
        if self.axes is None:
            gone = tuple(i for i, d in enumerate(shape) if _is(d, 1))
            for d in shape:
                if not isinstance(d, int) and extents.are_equal(d, 1) is None:
                    raise OpenDimensionError(
                        f"{self.name}: expected extents that are known to be 1 or not, since the "
                        f"result's rank depends on them, found {d}; give axes, or numbers with "
                        "shapes="
                    )
        else:
            gone = rules.normalize_axes(self.name, self.axes, len(shape))
            if any(not rules.equal(self.name, shape[a], 1) for a in gone):
                rules.reject(self.name, f"extent 1 in axes {gone}", inputs[0].type)
        return inputs[0].reshape(*(d for i, d in enumerate(shape) if i not in gone))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.squeeze(inputs[0], self.axes)


@dataclass(frozen=True)
class Unsqueeze(Op):
    """Inserts axes of extent 1, at `axes` of the result."""

    axes: tuple[int, ...]

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        rest = list(inputs[0].type.shape)
        rank = len(rest) + len(self.axes)
        new = rules.normalize_axes(self.name, self.axes, rank)
        shape = tuple(1 if i in new else rest.pop(0) for i in range(rank))
        return inputs[0].reshape(*shape)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.expand_dims(inputs[0], self.axes)


@dataclass(frozen=True)
class Flatten(Op):
    """A matrix: the axes before `axis` make the rows, the others the columns."""

    axis: int = 1

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        shape = inputs[0].type.shape
        rank = len(shape)
        if not -rank <= self.axis <= rank:
            rules.reject(self.name, f"an axis in {-rank}..{rank}", self.axis)
        axis = self.axis + rank if self.axis < 0 else self.axis
        return inputs[0].reshape(rules.product(shape[:axis]), rules.product(shape[axis:]))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = inputs[0]
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@dataclass(frozen=True)
class Transpose(Op):
    """Axis i of the result is axis `perm[i]` of the input."""

    perm: tuple[int, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        perm = tuple(rules.normalize_axis(self.name, p, x.rank) for p in self.perm)
        if sorted(perm) != list(range(x.rank)):
            rules.reject(self.name, f"a permutation of {x.rank} axes", self.perm)
        place = [perm.index(a) for a in range(x.rank)]
        shape = tuple(x.shape[p] for p in perm)
        return te.compute(shape, lambda *i: x[tuple(i[p] for p in place)], self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.transpose(inputs[0], self.perm)


@dataclass(frozen=True)
class Expand(Op):
    """The input broadcast to the common shape of `shape` and the input."""

    shape: tuple[Dim, ...]

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x = rules.only(self.name, inputs)
        shape = rules.broadcast_shapes(self.name, x.shape, self.shape)
        return te.compute(shape, lambda *i: rules.broadcast_load(x, i, shape), self.name)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        shape = rules.broadcast_shapes(self.name, inputs[0].shape, self.shape)
        return np.broadcast_to(inputs[0], shape)  # type: ignore[arg-type]


@dataclass(frozen=True)
class DepthToSpace(Op):
    """Moves blocks of channels into space; `mode` is ONNX's "DCR" (block first) or "CRD"."""

    block: int
    mode: str = "DCR"

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        n, c, h, w = _images(self.name, inputs[0])
        k = self.block
        channels = rules.static(self.name, c, "the channel count")
        if k < 1 or channels % (k * k):
            rules.reject(self.name, f"a channel count divisible by {k}*{k}", channels)
        if self.mode not in ("DCR", "CRD"):
            rules.reject(self.name, 'mode "DCR" or "CRD"', repr(self.mode))
        is_dcr = self.mode == "DCR"
        inner = channels // (k * k)
        split = (n, k, k, inner, h, w) if is_dcr else (n, inner, k, k, h, w)
        perm = (0, 3, 4, 1, 5, 2) if is_dcr else (0, 1, 4, 2, 5, 3)
        y = inputs[0].reshape(*split).transpose(*perm)
        return y.reshape(n, inner, rules.product((h, k)), rules.product((w, k)))

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, k = inputs[0], self.block
        n, c, height, width = x.shape
        inner = c // (k * k)
        y = np.empty((n, inner, height * k, width * k), x.dtype)
        for offset in range(k * k):
            taken = (
                slice(offset * inner, (offset + 1) * inner)
                if self.mode == "DCR"
                else slice(offset, None, k * k)
            )
            y[:, :, offset // k :: k, offset % k :: k] = x[:, taken]
        return y


@dataclass(frozen=True)
class SpaceToDepth(Op):
    """Moves spatial blocks into channels; the inverse of DepthToSpace in mode "DCR".

    block: extent of a block along each spatial axis.
    """

    block: int

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 1)
        n, c, h, w = _images(self.name, inputs[0])
        k = self.block
        rows = rules.divided(self.name, h, k, "height and width")
        columns = rules.divided(self.name, w, k, "height and width")
        y = inputs[0].reshape(n, c, rows, k, columns, k).transpose(0, 3, 5, 1, 2, 4)
        return y.reshape(n, rules.product((c, k * k)), rows, columns)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x, k = inputs[0], self.block
        return np.concatenate([x[:, :, n // k :: k, n % k :: k] for n in range(k * k)], 1)


def _images(op: str, x: Any) -> tuple[Dim, Dim, Dim, Dim]:
    if x.type.rank != 4:
        rules.reject(op, "an input of rank 4 (N, C, H, W)", x.type)
    return x.type.shape
