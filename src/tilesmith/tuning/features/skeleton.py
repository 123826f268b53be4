"""Schedules that differ only in numbers: one function for the features of all of them.

A schedule function that tests its numbers takes many paths (`search_space.paths`), and most lead to
the same loops.  For example, tiles of two and of three vectors have different layouts of packed
weights, but the same nest.  The *skeleton* of a state is the state without the sizes of its splits
and of the blocks of its layouts; these are its *sizes*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.search_space.paths import Path, Paths
from tilesmith.search_space.space import Candidate
from tilesmith.search_space.traced import expression
from tilesmith.te.knobs import Knob
from tilesmith.te.relations import SplitRelation
from tilesmith.te.state import StageState, State

from .algebra import Number, number
from .program import ArrayProgram

Features = Callable[[State], Sequence[Number]]
"""The features of a state whose sizes are numbers or expressions."""


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric knob, or one number of a knob.

    knob: its name.
    part: number of the part; None for the whole.
    default: its default value.
    """

    knob: str
    part: int | None
    default: int

    def value(self, candidate: Candidate) -> int:
        value: Any = candidate.get(self.knob)
        if value is None:
            return self.default
        return value if self.part is None else value[self.part]

    @staticmethod
    def of(knob: Knob, part: int | None) -> Column:
        default: Any = knob.default
        return Column(knob.name, part, default if part is None else default[part])


@dataclass(slots=True, eq=False)
class Way:
    """A path of a schedule function, and the state to which it leads.

    path: the path.
    state: the state of its schedule.
    skeleton: the state without sizes.
    sizes: computes the sizes [n, S] from the numbers of the columns [n, K].
    """

    path: Path
    state: State
    skeleton: object = field(init=False)
    sizes: ArrayProgram = field(init=False)

    def __post_init__(self) -> None:
        sizes: list[Number] = []

        def blank(n: Number) -> Number:
            sizes.append(n)
            return 0

        self.skeleton = _text(with_sizes(self.state, blank))
        self.sizes = ArrayProgram(sizes, tuple(self.path.columns.values()))


@dataclass(slots=True, eq=False)
class SkeletonRows:
    """The features of states with one skeleton.

    varies: for each size, whether it differs between the states [S].
    same: the values of the other sizes [S].
    program: computes features from the sizes that vary.
    """

    varies: np.ndarray
    same: np.ndarray
    program: ArrayProgram

    @staticmethod
    def of(state: State, sizes: np.ndarray, features: Features) -> SkeletonRows:
        """The family of states with these sizes [n, S]."""
        varies = (sizes != sizes[0]).any(axis=0)
        symbols = [Var(f"size{n}") for n in np.flatnonzero(varies)]
        left = iter(symbols)
        own = iter([next(left) if v else int(n) for v, n in zip(varies, sizes[0], strict=True)])
        made = features(with_sizes(state, lambda _: next(own)))
        return SkeletonRows(varies, sizes[0], ArrayProgram(made, symbols))

    def has(self, sizes: np.ndarray) -> np.ndarray:
        """Whether each of the states with these sizes [n, S] is in the family."""
        return ((sizes == self.same) | self.varies).all(axis=1)


class Skeletons:
    """The programs for the features of candidates that take `paths`.

    state_of: maps the schedule function's result to its state.
    worth: fewest candidates for which a program is made.
    """

    def __init__(
        self,
        paths: Paths,
        state_of: Callable[[object], State],
        features: Features,
        worth: int,
    ) -> None:
        self._paths, self._state_of, self._features = paths, state_of, features
        self._worth = worth
        self._ways: dict[Path, Way] = {}
        self._families: dict[object, list[SkeletonRows]] = {}

    def parts(
        self, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[np.ndarray, ArrayProgram | None, np.ndarray]]:
        """The candidates in parts with one program each: their numbers [n], the program and its
        input [n, K].  The program is None for a part with few candidates.
        """
        for skeleton, (rows, sizes, state) in self._by_skeleton(candidates).items():
            families = self._families.setdefault(skeleton, [])
            for family in families:
                mine = family.has(sizes)
                if mine.any():
                    yield rows[mine], family.program, sizes[mine][:, family.varies]
                rows, sizes = rows[~mine], sizes[~mine]
            if len(rows) >= self._worth:
                families.append(SkeletonRows.of(state, sizes, self._features))
                yield rows, families[-1].program, sizes[:, families[-1].varies]
            elif len(rows):
                yield rows, None, sizes

    def _by_skeleton(
        self, candidates: Sequence[Candidate]
    ) -> dict[object, tuple[np.ndarray, np.ndarray, State]]:
        """For each skeleton, the candidates whose states have it: their indices in `candidates`
        [n], the sizes that they choose [n, number of sizes in the skeleton], and the state of one.
        """
        paths: dict[Path, list[tuple[int, list[int]]]] = {}
        for n, candidate in enumerate(candidates):
            knobs: dict[str, Knob] = {}
            path = self._paths.follow(candidate, knobs)
            columns = (Column.of(knobs[name], part) for name, part in path.columns)
            paths.setdefault(path, []).append((n, [c.value(candidate) for c in columns]))
        family: dict[object, tuple[list[np.ndarray], list[np.ndarray], State]] = {}
        for path, taken in paths.items():
            if path not in self._ways:
                self._ways[path] = Way(path, self._state_of(path.made))
            way = self._ways[path]
            rows, sizes, _ = family.setdefault(way.skeleton, ([], [], way.state))
            rows.append(np.array([n for n, _ in taken]))
            numbers = np.array([k for _, k in taken], np.int64).reshape(len(taken), -1)
            sizes.append(way.sizes(numbers))
        return {k: (np.concatenate(r), np.concatenate(s), t) for k, (r, s, t) in family.items()}


def with_sizes(state: State, f: Callable[[Number], Number]) -> State:
    """The state with `f` applied to each of its sizes, in an order that the skeleton determines."""
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
    """The complete text of a state."""
    return "\n".join(
        f"{s.name} {s.roots} {s.leaves} {s.is_output} {s.relations} {sorted(s.kinds.items())} "
        f"{s.attach} {s.store} {s.folds} {s.scope} {s.layout} {s.aligns} "
        f"{s.buffers} {s.reads} "
        f"{[str(expression(n)) for n in s.op.shape]} "
        + " ".join(f"{a.name}:{expression(a.extent)}" for a in s.root_axes)
        + (" ".join(map(str, s.compute.body)) if not s.is_placeholder else "")
        for s in state.stages.values()
    )
