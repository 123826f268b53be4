"""The subjects of conditions, so that facts are used only where they may matter.

A condition on indices (`i < n`) may matter to any other comparison or division of integers.  A
condition on data (`X[i] > 0`, `count[i] < 3`) matters only to an expression that contains the same
condition, or an integer that it bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from .affine import affine_form
from .dtypes import i64
from .expr import Binary, Compare, Const, Expr, Load, Select, Unary, post_order, reads_memory

_CACHE_LIMIT = 1 << 17
_depends: dict[Expr, bool] = {}
_SENSITIVE = frozenset(("floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "and"))


def depends_on_indices(e: Expr) -> bool:
    """True if facts on indices could simplify `e`: it compares, divides or takes a min."""
    known = _depends.get(e)
    if known is None:
        known = any(
            type(n) in (Compare, Select)
            or (type(n) is Load and n.mask is not None)
            or n.dtype.is_bool
            or (type(n) is Binary and n.op in _SENSITIVE and n.dtype.is_int)
            for n in post_order(e)
        )
        if len(_depends) > _CACHE_LIMIT:
            _depends.clear()
        _depends[e] = known
    return known


def about_indices(cond: Expr) -> bool:
    """True if the bool `cond` compares an i64 that is not made of data."""
    return any(
        not all(map(reads_memory, _compared(part)))
        for part in _parts(cond)
        if type(part) is Compare and part.a.dtype is i64
    )


def _parts(cond: Expr) -> Iterator[Expr]:
    """The conditions that `cond` connects by `and`, `or` and `not`."""
    stack = [cond]
    while stack:
        node = stack.pop()
        if node.dtype.is_bool and type(node) in (Unary, Binary):
            stack += node.children
        else:
            yield node


def _compared(e: Compare) -> Iterator[Expr]:
    """The atoms of the affine sums on both sides of an i64 comparison."""
    yield from affine_form(e.a)[0]
    yield from affine_form(e.b)[0]


class Subjects:
    """The conditions on data and the i64 data in expressions, as sets of bits.

    One object gives a bit to each subject of the expressions in its queries.
    """

    __slots__ = ("_below", "_bits")

    def __init__(self) -> None:
        self._bits: dict[object, int] = {}
        self._below: dict[Expr, int] = {}

    def meet(self, cond: Expr, e: Expr) -> bool:
        """True if the value of `cond` may simplify `e`.  `cond` is a condition on data; both are
        already simplified.
        """
        subjects = 0
        for part in _parts(cond):
            if type(part) is Compare and part.a.dtype is i64:
                for atom in _compared(part):
                    subjects |= self._bit(atom)
            else:
                subjects |= self._own(part)
        return bool(subjects & self._of(e))

    def _of(self, e: Expr) -> int:
        below = self._below
        for node in post_order(e, below):
            bits = self._own(node)
            for child in node.children:
                bits |= below[child]
            below[node] = bits
        return below[e]

    def _own(self, e: Expr) -> int:
        """The bit of the node itself; 0 if no fact on data is about such a node."""
        if type(e) is Const or e.lanes > 1:
            return 0
        if e.dtype.is_bool:
            if type(e) is Compare:  # a comparison and its negation have the same operands
                return self._bit(frozenset((e.a, e.b)))
            return 0 if type(e) in (Unary, Binary) else self._bit(e)
        return self._bit(e) if e.dtype is i64 and reads_memory(e) else 0

    def _bit(self, key: object) -> int:
        bit = self._bits.get(key)
        if bit is None:
            bit = self._bits[key] = 1 << len(self._bits)
        return bit
