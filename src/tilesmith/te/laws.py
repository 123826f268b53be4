"""The laws that a reducer obeys, found by trying it on values.

A schedule may change the order in which values are combined.  That keeps the answer if the
combination is associative, commutative, or both, by the step.  The interpreter combines triples of
small numbers, among which ties, zeros of both signs, infinities and the ends of integer types
occur, and the results are compared.
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
"""Enough that each pair of values in `_values` occurs, most of them several times."""

_ROUNDINGS = 64
"""Differences of so many rounding errors of the largest number in a comparison are no
contradiction.
"""


@dataclass(frozen=True, slots=True)
class Laws:
    """What a reducer allows.

    associative: (a + b) + c is a + (b + c).
    commutative: a + b is b + a.
    neutral: parts of a reduction may each begin with the start, and end with it.
    examples: for laws that do not hold, values that contradict them, in words.
    """

    associative: bool
    commutative: bool
    neutral: bool
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_parts(self) -> bool:
        """Whether parts of the values, one behind the other, may be combined apart."""
        return self.associative and self.neutral

    @property
    def interleaved(self) -> bool:
        """Whether parts of the values, picked in any way, may be combined apart."""
        return self.in_parts and self.commutative

    @property
    def any_order(self) -> bool:
        """Whether values may be combined in any order, one after the other."""
        return self.associative and self.commutative

    @property
    def missing(self) -> list[str]:
        """The laws that values in any order need and that do not hold."""
        laws = {"associative": self.associative, "commutative": self.commutative}
        return [law for law, holds in laws.items() if not holds]

    def why_not(self, law: str) -> str:
        """The values that contradict `law`, in brackets and behind a space; nothing if it was not
        tried.
        """
        return f" ({self.examples[law]})" if law in self.examples else ""


ALL_LAWS = Laws(True, True, True)


def laws_found(
    combine: Combine, start: Values, dtypes: tuple[DType, ...], *, counts: bool = False
) -> Laws | None:
    """The laws that no triple contradicts; None if the combination or the start isn't made of its
    operands and constants only, so that it can't be tried.

    counts: only with whole numbers from 1.
    """
    b = LoopBuilder("laws")
    shapes = [TensorType(d, (_TRIPLES,)) for d in dtypes]
    given = [[b.input(f"{side}{i}", t) for i, t in enumerate(shapes)] for side in "xyz"]
    results: list[list[Array]] = []
    with b.loop(_TRIPLES) as i:
        x, y, z = (tuple(a[i] for a in side) for side in given)
        from_start = combine(start, x)
        wanted = [
            combine(x, y), combine(y, x), combine(y, z),
            combine(combine(x, y), z), combine(x, combine(y, z)),
            from_start, combine(from_start, start),
            combine(from_start, y), combine(from_start, combine(start, y)),
        ]  # fmt: skip
        if not _is_closed(wanted, given, i):
            return None
        for n, values in enumerate(wanted):
            arrays = [b.output(f"r{n}_{m}", t) for m, t in enumerate(shapes)]
            results.append(arrays)
            for array, value in zip(arrays, values, strict=True):
                array[i] = value
    rng = np.random.default_rng(0)
    operands = [[rng.choice(_values(d, counts), _TRIPLES) for d in dtypes] for _ in given]
    found = [[np.zeros(_TRIPLES, d.numpy) for d in dtypes] for _ in results]
    interpret(b.finish(), [a for side in (*operands, *found) for a in side])
    xy, yx, yz, left, right, begun, ended, plain, parts = found
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


def _is_closed(results: list[Values], given: list[list[Array]], i: Var) -> bool:
    own = {a.buffer for side in given for a in side}
    nodes = dict.fromkeys(n for values in results for v in values for n in post_order(v))
    return all(
        n.buffer in own if isinstance(n, Load) else not isinstance(n, Var) or n is i for n in nodes
    )


def _values(dtype: DType, counts: bool) -> np.ndarray:
    """Numbers of `dtype`, few enough that equal ones meet."""
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
    """Values for which two results differ by more than rounding, in words; "" if there are none.
    Triples that give no number, or infinity from numbers, say nothing.

    between: intermediate results, whose size counts for rounding.
    forms: how the results are computed.
    """
    shown = (*results, *between, *operands)
    with np.errstate(all="ignore"):
        wide = [[c.astype(np.float64) for c in side] for side in shown]
        made, given = wide[: 2 + len(between)], wide[2 + len(between) :]
        finite = [
            np.all([np.isfinite(c) for side in x for c in side], axis=0) for x in (made, given)
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
    at = int(np.argmax(differs))
    named = zip("abc", operands, strict=False)
    values = " and ".join(f"{name} = {_text(side, at)}" for name, side in named)
    first, second = (f"{f} is {_text(r, at)}" for f, r in zip(forms, results, strict=True))
    return f"for {values}, {first} and {second}, if + stands for the combination"


def _text(columns: Columns, at: int) -> str:
    numbers = [str(c[at].item() if c.dtype.kind in "iub" else float(c[at])) for c in columns]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def _precision(a: np.ndarray) -> float:
    """The distance of 1 to the next number of the type."""
    one = np.ones(1, a.dtype)
    step = 1.0
    while (one + np.asarray(step / 2).astype(a.dtype)).astype(np.float64)[0] != 1.0:
        step /= 2
    return step
