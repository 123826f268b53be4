"""Attention as a composition of operators.  The fusion pass may turn it into one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import Dim, same_dim, same_shape

from . import rules
from .activation import scalar
from .base import GraphBuilder, Op
from .functions import tanh, where
from .matmul import MatMul
from .norm import MaskedSoftmax
from .sizes import Iota


@dataclass(frozen=True)
class Attention(Op):
    """softmax(q @ k^T * scale + mask) @ v, for q [..., L, E], k [..., S, E], v [..., S, F].

    Inputs: q, k, v and an optional mask that broadcasts to [..., L, S]: bool (False: not attended)
        or added to the scores.  If k and v have fewer heads (axis -3) than q, each of their heads
        serves a group of adjacent query heads.

    A query whose keys are all masked out gives zeros.  For 16-bit floats the scores and all values
    computed from scores are f32: rounding would change the weights, because scores are large.

    scale: factor of the scores; None is 1 / sqrt(E).
    is_causal: whether query i attends only to the first i + 1 keys.
    softcap: if above 0, scores are limited to softcap * tanh(score / softcap).
    """

    heavy_reference = True

    scale: float | None = None
    is_causal: bool = False
    softcap: float = 0.0

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        return self.attended(b, inputs, lambda weights: weights)

    def attended(self, b: GraphBuilder, inputs: Sequence[Any], change: Callable[[Any], Any]) -> Any:
        """The result with changed attention weights, such as weights after dropout.

        change: gives the new weights [..., L, S] for the softmax of the scores.
        """
        rules.check_count(self.name, inputs, 3, 4)
        q, k, v = inputs[:3]
        if min(q.type.rank, k.type.rank, v.type.rank) < 2:
            rules.reject(self.name, "q, k and v of rank 2 or more", (q.type, k.type, v.type))
        mask = inputs[3] if len(inputs) == 4 else None
        out_shape = (*q.type.shape[:-1], v.type.shape[-1])
        headed = q.type.rank == k.type.rank and q.type.rank >= 3
        if headed and not same_dim(q.type.shape[-3], k.type.shape[-3]):
            q, k, v, mask = self._group(b, q, k, v, mask)
        width = rules.static(self.name, q.type.shape[-1], "the width of a head")
        scale = 1 / math.sqrt(width) if self.scale is None else self.scale
        low = q.type.dtype if q.type.dtype.is_float and q.type.dtype.bytes < 4 else None
        scores = b.add(MatMul(transpose_b=True, to=f32 if low else None), q, k)
        scores = scores * scale
        if self.softcap > 0:
            cap = scalar(b, scores, self.softcap)
            scores = tanh(scores / cap) * cap
        if self.is_causal:
            allowed = _lower_triangle(b, *scores.type.shape[-2:])
            scores = where(allowed, scores, -math.inf)
        if mask is not None and mask.type.dtype.is_bool:
            scores = where(mask, scores, -math.inf)
        elif mask is not None:
            scores = scores + (mask.cast(f32) if low else mask)
        weights = change(b.add(MaskedSoftmax(-1), scores))
        y = b.add(MatMul(), weights.cast(low) if low else weights, v)
        return y if same_shape(y.type.shape, out_shape) else y.reshape(*out_shape)

    def _group(
        self, b: GraphBuilder, q: Any, k: Any, v: Any, mask: Any
    ) -> tuple[Any, Any, Any, Any]:
        """The operands with the axis of query heads divided into [key heads, group].  Operands with
        fewer heads get a group of 1, which broadcasts.
        """
        heads = rules.static(self.name, q.type.shape[-3], "the number of query heads")
        shared = rules.static(self.name, k.type.shape[-3], "the number of key heads")
        if not shared or heads % shared:
            rules.reject(self.name, f"query heads divisible by {shared} key heads", heads)

        def split(x: Any, group: int) -> Any:
            s = x.type.shape
            return x.reshape(*s[:-3], s[-3] // group, group, *s[-2:])

        if mask is not None and mask.type.rank >= 3:
            s = mask.type.shape
            many = same_dim(s[-3], heads)
            mask = mask.reshape(*s[:-3], *(shared, heads // shared) if many else (1, 1), *s[-2:])
        return split(q, heads // shared), split(k, 1), split(v, 1), mask

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        q, k, v = map(rules.exact, inputs[:3])
        if q.ndim == k.ndim and q.ndim >= 3 and q.shape[-3] != k.shape[-3]:
            k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], -3) for x in (k, v))
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = np.einsum("...le,...se->...ls", q, k) * scale
        if self.softcap > 0:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if self.is_causal:
            later = np.arange(scores.shape[-1]) > np.arange(scores.shape[-2])[:, None]
            scores = np.where(later, -np.inf, scores)
        if len(inputs) == 4:
            mask = inputs[3]
            added = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else rules.exact(mask)
            scores = scores + added
        weights = MaskedSoftmax(-1).reference(scores)
        return np.einsum("...ls,...sf->...lf", weights, v).astype(inputs[0].dtype)


def _lower_triangle(b: GraphBuilder, rows: Dim, columns: Dim) -> Any:
    """A bool matrix [rows, columns], true where column <= row."""
    if isinstance(rows, int) and isinstance(columns, int):
        return b.constant(np.tri(rows, columns, dtype=np.bool_))
    row = b.add(Iota(rows)).reshape(rows, 1)
    return b.add(Iota(columns)) <= row
