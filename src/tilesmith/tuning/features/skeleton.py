"""Schedules that differ in numbers only: one function for the features of all of them.

A schedule function that looks at its numbers takes many paths (`tuning.paths`), and most lead to
the same loops: a tile of two vectors and one of three are different layouts of packed weights, and
yet the same nest.  The *skeleton* of a state is the state without the sizes of its splits and of
the blocks of its layouts; these are its *sizes*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.te.stage import SplitRelation, StageState, State
from tilesmith.tuning.paths import Path
from tilesmith.tuning.traced import expression

from .algebra import Number, number
from .program import Program

Features = Callable[[State], Sequence[Number]]
"""The features of a state whose sizes are numbers or expressions."""


@dataclass(slots=True, eq=False)
class Way:
    """Where a path leads: the `skeleton` of its state, and the `sizes` [n, S] that belong to the
    numbers of its columns [n, K].
    """

    path: Path
    state: State
    skeleton: object = field(init=False)
    sizes: Program = field(init=False)

    def __post_init__(self) -> None:
        found: list[Number] = []

        def blank(n: Number) -> Number:
            found.append(n)
            return 0

        self.skeleton = _text(with_sizes(self.state, blank))
        self.sizes = Program(found, tuple(self.path.columns.values()))


@dataclass(slots=True, eq=False)
class Family:
    """The features of states with one skeleton: those of `state`, with sizes that are the `same` in
    all of them [S] and others that are not (`varies` [S]).
    """

    varies: np.ndarray
    same: np.ndarray
    program: Program

    @staticmethod
    def of(state: State, sizes: np.ndarray, features: Features) -> Family:
        """That of states with these sizes [n, S]."""
        varies = (sizes != sizes[0]).any(axis=0)
        symbols = [Var(f"size{n}") for n in np.flatnonzero(varies)]
        left = iter(symbols)
        given = iter([next(left) if v else int(n) for v, n in zip(varies, sizes[0], strict=True)])
        made = features(with_sizes(state, lambda _: next(given)))
        return Family(varies, sizes[0], Program(made, symbols))

    def has(self, sizes: np.ndarray) -> np.ndarray:
        """Which of the states with these sizes [n, S] are of the family."""
        return ((sizes == self.same) | self.varies).all(axis=1)


def with_sizes(state: State, f: Callable[[Number], Number]) -> State:
    """The state with `f` of each of its sizes, in an order that the skeleton gives."""
    stages = {name: _with_sizes(stage, f) for name, stage in state.stages.items()}
    return State(stages, state.tensors)


def _with_sizes(stage: StageState, f: Callable[[Number], Number]) -> StageState:
    relations = tuple(
        r if not isinstance(r, SplitRelation)
        else replace(r, factor=f(number(r.factor))) if r.factor is not None
        else replace(r, nparts=f(number(r.nparts or 1)))
        for r in stage.relations
    )  # fmt: skip
    layout = stage.layout
    if layout is not None and any(d.part != "whole" for d in layout.dims):
        blocks = {d.axis: f(number(d.block)) for d in layout.dims if d.part == "inner"}
        dims = (d if d.part == "whole" else replace(d, block=blocks[d.axis]) for d in layout.dims)
        layout = Layout(tuple(dims))
    return replace(stage, relations=relations, layout=layout)


def _text(state: State) -> str:
    """All that there is to a state."""
    return "\n".join(
        f"{s.name} {s.roots} {s.leaves} {s.is_output} {s.relations} {sorted(s.kinds.items())} "
        f"{s.attach} {s.scope} {s.layout} {s.aligns} {s.double_buffer} {s.reads} "
        f"{[str(expression(n)) for n in s.op.shape]} "
        + " ".join(f"{a.name}:{expression(a.extent)}" for a in s.root_axes)
        + (" ".join(map(str, s.compute.body)) if not s.is_placeholder else "")
        for s in state.stages.values()
    )
