"""Facts about the integers and conditions at one place of a program."""

from __future__ import annotations

from .affine import Affine, affine_form
from .expr import Expr, Var
from .interval import Interval


class Facts:
    """Facts that hold at one place; `ir.prove` derives others from them.

    bounds: numeric intervals of Vars and of other atoms.
    symbolic: inclusive ends of a Var that are no plain numbers (None: the end is a number); they
        may use Vars that were added earlier.
    inequalities: affine sums that are >= 0 although `bounds` doesn't imply it.
    known: simplified conditions and their values.
    intervals, proofs: results of `ir.prove` under these facts.
    """

    __slots__ = ("bounds", "inequalities", "intervals", "known", "proofs", "symbolic")

    def __init__(self) -> None:
        self.bounds: dict[Expr, Interval] = {}
        self.symbolic: dict[Var, tuple[Expr | None, Expr | None]] = {}
        self.inequalities: tuple[Affine, ...] = ()
        self.known: dict[Expr, bool] = {}
        self.intervals: dict[Expr, Interval] = {}
        self.proofs: dict[object, bool] = {}

    def affine(self, e: Expr) -> Affine:
        """The affine sum of a scalar i64 `e`.  Shared: do not change it."""
        return affine_form(e)
