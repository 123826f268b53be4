"""Laws that a reducer obeys, found by evaluating it on sample values.

A schedule may change the order in which values are combined.  Depending on the step, a new order
keeps the answer if the combination is associative, commutative, or both.  To find out, the
interpreter combines triples of sample values in different orders and the results are compared.  The
samples include ties, zeros of both signs, infinities and the limits of integer types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Load, Var, post_order
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import Array, LoopBuilder
from tilesmith.loop.interpret import interpret

Values = tuple[Expr, ...]
Combine = Callable[[Values, Values], Values]

_TRIPLES = 192
"""Number of triples.  Among so many triples, each pair of values from `_values` occurs, most pairs
several times.
"""

_ROUNDINGS = 64
"""Tolerance of a comparison, in rounding errors of the largest operand."""


@dataclass(frozen=True, slots=True)
class Laws:
    """The laws that a reducer obeys.

    associative: (a + b) + c is a + (b + c).
    commutative: a + b is b + a.
    neutral: whether the result of a reduction stays the same if the start value is combined in once
        more, after the values or before the values of a part.
    examples: for each law that does not hold, values that contradict it, in words.
    """

    associative: bool
    commutative: bool
    neutral: bool
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_parts(self) -> bool:
        """Whether contiguous parts of the values may be combined separately."""
        return self.associative and self.neutral

    @property
    def interleaved(self) -> bool:
        """Whether parts whose values interleave may be combined separately."""
        return self.in_parts and self.commutative

    @property
    def any_order(self) -> bool:
        """Whether values may be combined in any order, one after the other."""
        return self.associative and self.commutative

    @property
    def missing(self) -> list[str]:
        """The laws that are needed to combine values in any order but do not hold."""
        laws = {"associative": self.associative, "commutative": self.commutative}
        return [law for law, holds in laws.items() if not holds]

    def why_not(self, law: str) -> str:
        """The values that contradict `law`, in parentheses after a space; "" without an example."""
        return f" ({self.examples[law]})" if law in self.examples else ""


ALL_LAWS = Laws(True, True, True)


def laws_found(
    combine: Combine, start: Values, dtypes: tuple[DType, ...], *, counts: bool = False
) -> Laws | None:
    """The laws that no triple contradicts.  None if the laws can't be tried: the combination or the
    start value reads something other than operands and constants.

    counts: whether to try only whole numbers from 1 on.
    """
    b = LoopBuilder("laws")
    shapes = [TensorType(d, (_TRIPLES,)) for d in dtypes]
    arguments = [[b.input(f"{side}{i}", t) for i, t in enumerate(shapes)] for side in "xyz"]
    results: list[list[Array]] = []
    with b.loop(_TRIPLES) as i:
        x, y, z = (tuple(a[i] for a in side) for side in arguments)
        from_start = combine(start, x)
        wanted = [
            combine(x, y), combine(y, x), combine(y, z),
            combine(combine(x, y), z), combine(x, combine(y, z)),
            from_start, combine(from_start, start),
            combine(from_start, y), combine(from_start, combine(start, y)),
        ]  # fmt: skip
        if not _is_closed(wanted, arguments, i):
            return None
        for n, values in enumerate(wanted):
            arrays = [b.output(f"r{n}_{m}", t) for m, t in enumerate(shapes)]
            results.append(arrays)
            for array, value in zip(arrays, values, strict=True):
                array[i] = value
    rng = np.random.default_rng(0)
    operands = [[rng.choice(_values(d, counts), _TRIPLES) for d in dtypes] for _ in arguments]
    outcomes = [[np.zeros(_TRIPLES, d.numpy) for d in dtypes] for _ in results]
    interpret(b.finish(), [a for side in (*operands, *outcomes) for a in side])
    xy, yx, yz, left, right, begun, ended, plain, parts = outcomes
    x0, y0, z0 = operands
    against = {
        "associative": _difference(
            (left, right), (x0, y0, z0), (xy, yz), ("(a + b) + c", "a + (b + c)")
        ),
        "commutative": _difference((xy, yx), (x0, y0), (), ("a + b", "b + a")),
        "neutral": _difference((begun, ended), (x0,), (), ("start + a", "start + a + start"))
        or _difference(
            (plain, parts), (x0, y0), (begun,), ("start + a + b", "start + a + (start + b)")
        ),
    }
    return Laws(
        **{law: not example for law, example in against.items()},
        examples={law: example for law, example in against.items() if example},
    )


def _is_closed(results: list[Values], arguments: list[list[Array]], i: Var) -> bool:
    own = {a.buffer for side in arguments for a in side}
    nodes = dict.fromkeys(n for values in results for v in values for n in post_order(v))
    return all(
        n.buffer in own if isinstance(n, Load) else not isinstance(n, Var) or n is i for n in nodes
    )


def _values(dtype: DType, counts: bool) -> np.ndarray:
    """Sample values of `dtype`.  They are few, so that triples contain equal values."""
    if dtype.is_bool:
        return np.array([False, True])
    if counts:
        return np.arange(1, 7).astype(dtype.numpy)
    if dtype.is_float:
        parts = [-3, -2, -1, -0.5, -0.125, -0.0, 0.0, 0.125, 0.5, 1, 2, 3, np.inf, -np.inf]
        return np.array(parts).astype(dtype.numpy)
    low = 0 if dtype.min == 0 else -3
    return np.array([*range(low, low + 7), dtype.min, dtype.max]).astype(dtype.numpy)


Columns = list[np.ndarray]


def _difference(
    results: tuple[Columns, Columns],
    operands: tuple[Columns, ...],
    between: tuple[Columns, ...],
    forms: tuple[str, str],
) -> str:
    """Values for which the two results differ by more than rounding, in words.  "" if the results
    agree for all triples.  Triples are ignored if they give NaN, or infinity from finite numbers.

    between: intermediate results, whose magnitude also scales the tolerance.
    forms: the formulas of the two results, as text.
    """
    shown = (*results, *between, *operands)
    with np.errstate(all="ignore"):
        wide = [[c.astype(np.float64) for c in side] for side in shown]
        made, intermediate = wide[: 2 + len(between)], wide[2 + len(between) :]
        finite = [
            np.all([np.isfinite(c) for side in x for c in side], axis=0)
            for x in (made, intermediate)
        ]
        says = finite[0] | ~finite[1]
        says &= ~np.any([np.isnan(c) for side in made for c in side], axis=0)
        differs = np.zeros(_TRIPLES, np.bool_)
        for n, (p, q) in enumerate(zip(*results, strict=True)):
            same = p == q
            if p.dtype.kind not in "iub":
                sizes = [np.where(np.isfinite(side[n]), np.abs(side[n]), 0) for side in wide]
                error = np.abs(made[0][n] - made[1][n])
                same |= error <= _ROUNDINGS * _precision(p) * np.maximum(np.max(sizes, axis=0), 1)
            differs |= ~same & says
    if not differs.any():
        return ""
    worst = int(np.argmax(differs))
    named = zip("abc", operands, strict=False)
    values = " and ".join(f"{name} = {_text(side, worst)}" for name, side in named)
    first, second = (f"{f} is {_text(r, worst)}" for f, r in zip(forms, results, strict=True))
    return f"for {values}, {first} and {second}, if + stands for the combination"


def _text(columns: Columns, number: int) -> str:
    numbers = [
        str(c[number].item() if c.dtype.kind in "iub" else float(c[number])) for c in columns
    ]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def _precision(a: np.ndarray) -> float:
    """The distance from 1 to the next larger number of the element type of `a`."""
    one = np.ones(1, a.dtype)
    step = 1.0
    while (one + np.asarray(step / 2).astype(a.dtype)).astype(np.float64)[0] != 1.0:
        step /= 2
    return step
