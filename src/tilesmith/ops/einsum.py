"""Einsum: a sum of products written with one letter per axis."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce as fold

import numpy as np

from tilesmith.ir.expr import Expr, ExprLike, const
from tilesmith.ir.types import Dim, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op

_TERM = re.compile(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?")


@dataclass(frozen=True)
class Einsum(Op):
    """Sum of products by `equation`, as in NumPy: "bij,bjk->bik", "ii", "...ij,jk".

    Without "->" the result has the letters that occur once, in alphabetical order.
    """

    heavy_reference = True

    equation: str

    def terms(self, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
        """The axis labels of each input and of the output.  An ellipsis becomes numbers."""
        text = self.equation.replace(" ", "")
        left, arrow, right = text.partition("->")
        inputs = left.split(",")
        if len(inputs) != len(ranks) or not all(_TERM.fullmatch(t) for t in [*inputs, right]):
            rules.reject(self.name, f"an equation of {len(ranks)} inputs", repr(self.equation))
        widths = [
            rank - len(term.replace("...", "")) for term, rank in zip(inputs, ranks, strict=True)
        ]
        if any(w < 0 or (w > 0 and "..." not in t) for t, w in zip(inputs, widths, strict=True)):
            rules.reject(self.name, f"one letter per axis in {self.equation!r}", f"ranks {ranks}")
        width = max((w for t, w in zip(inputs, widths, strict=True) if "..." in t), default=0)
        labels = [_labels(t, w) for t, w in zip(inputs, widths, strict=True)]
        if not arrow:
            once = Counter(c for t in inputs for c in t.replace("...", ""))
            letters = sorted(c for c, n in once.items() if n == 1)
            return labels, [*_labels("...", width), *letters]
        out = _labels(right, width)
        known = {name for term in labels for name in term}
        if len(set(out)) != len(out) or not known.issuperset(out):
            rules.reject(self.name, "output letters that are different and known", repr(right))
        return labels, out

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 1, len(inputs) or 1)
        rules.check_same_dtype(self.name, inputs)
        rules.check_kind(self.name, inputs[0], rules.NUMBERS)
        labels, out = self.terms([x.rank for x in inputs])
        extents: dict[str, Dim] = {}
        for x, term in zip(inputs, labels, strict=True):
            for name, d in zip(term, x.shape, strict=True):
                known = extents.setdefault(name, d)
                if same_dim(known, 1):
                    extents[name] = d
                elif not same_dim(d, 1) and not rules.equal(self.name, d, known):
                    rules.reject(self.name, f"one extent for axis {name!r}", f"{known} and {d}")
        summed = {n: te.reduce_axis(d, n) for n, d in extents.items() if n not in out}

        def body(*index: Expr) -> Expr:
            place: dict[str, ExprLike] = {n: a.var for n, a in summed.items()}
            place.update(zip(out, index, strict=True))
            factors = [
                rules.widen(x[tuple(_at(x, term, place, extents))])
                for x, term in zip(inputs, labels, strict=True)
            ]
            value = fold(lambda a, b: a * b, factors)
            return te.sum(value, axis=list(summed.values())) if summed else value

        shape = [extents[n] for n in out]
        names = [n if n.isalpha() else f"b{n}" for n in out]
        return rules.narrow(te.compute(shape, body, self.name, names), inputs[0].dtype)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        wide = [rules.widen_array(x) for x in inputs]
        result = np.einsum(self.equation, *wide, optimize=len(wide) > 1)
        return np.asarray(result).astype(inputs[0].dtype, copy=False)


def _labels(term: str, width: int) -> list[str]:
    """One label per axis.  An ellipsis becomes -`width` to -1, so ellipses align from the right."""
    head, dots, tail = term.partition("...")
    middle = [str(i) for i in range(-width, 0)] if dots else []
    return [*head, *middle, *tail]


def _at(
    x: te.Tensor, term: list[str], place: dict[str, ExprLike], extents: dict[str, Dim]
) -> list[ExprLike]:
    return [
        const(0) if same_dim(d, 1) and not same_dim(extents[n], 1) else place[n]
        for n, d in zip(term, x.shape, strict=True)
    ]
