"""Stored Funcs as tensor expressions.

A Func is a chain of stages, one for each definition:

- A pure definition is a compute.
- An update that combines each value with its old one over an RDom is a reduction.  If the first
  definition is the neutral value, both are one reduction; else a compute combines the two.
- An update whose points read no result of each other is a compute, which selects the old value
  elsewhere.
- Other updates, such as scatters and recurrences, are loops (`te.extern`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tilesmith import te
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Const, Expr, Load, const, index_of, same, select, substitute
from tilesmith.ir.simplify import simplify
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.rewrite import loads, map_loads
from tilesmith.te.state import make_stage
from tilesmith.te.tensor import BY_OPERATION, Operation

from .buffers import Source
from .definitions import Function
from .regions import Box, Known, Resolved, bounds, extents, point
from .rfactor import combination, neutral
from .schedules import Steps, reordered


@dataclass(eq=False)
class Loop:
    """The stage whose loops a definition has.

    tensor: its first value.
    steps: the schedule.
    axes: the stage's names of loops, by Halide's.
    """

    tensor: te.Tensor
    steps: Steps
    axes: dict[str, str]


@dataclass(eq=False)
class Chain:
    """The stages of a Func.

    box: its coordinates.
    made: all stages, first definition first; the last one has the values.
    inlined: the stages that need no memory.
    loops: for each definition, its loops; None for a definition that is part of another stage.
    fixed: for definitions that the compiler orders itself, the names of their loops, outermost
        first, and their steps.
    merged: the same for a first definition that a reduction with steps of its own begins with.
    is_combined: whether the last stage adds the start of a reduction to its result.
    """

    box: Box
    made: list[tuple[te.Tensor, ...]] = field(default_factory=list)
    inlined: set[te.Tensor] = field(default_factory=set)
    loops: list[Loop | None] = field(default_factory=list)
    fixed: list[tuple[list[str], Steps]] = field(default_factory=list)
    merged: tuple[list[str], Steps] | None = None
    is_combined: bool = False

    def keep(self, needed: Collection[Operation]) -> None:
        """Drop the stages that are not `needed`, such as a value that an update replaces."""
        self.made = [m for m in self.made if m[0].op in needed]
        self.inlined = {t for t in self.inlined if t.op in needed}
        self.loops = [x if x and x.tensor.op in needed else None for x in self.loops]

    @property
    def values(self) -> tuple[te.Tensor, ...]:
        return self.made[-1]

    @property
    def is_pure(self) -> bool:
        """Whether no update has been added yet."""
        return len(self.loops) == 1


class Stages:
    """The tensor expressions of a run.

    resolved: the stored Funcs.
    boxes: their coordinates.
    images: the tensor of each image, with the coordinates of its elements.
    """

    def __init__(
        self,
        resolved: Resolved,
        boxes: Mapping[Function, Box],
        images: Mapping[Source, tuple[te.Tensor, Box]],
    ) -> None:
        self._places: dict[Source, tuple[te.Tensor, Box]] = dict(images)
        self.chains: dict[Function, Chain] = {}
        for func in reversed(resolved.funcs):
            self.chains[func] = chain = Chain(boxes[func])
            self._definitions = resolved.definitions[func]
            for number, d in enumerate(resolved.definitions[func]):
                self._add(func, number, d, chain)
                for source, tensor in zip(func.sources, chain.values, strict=True):
                    self._places[source] = tensor, chain.box

    def _add(self, func: Function, number: int, d: Known, chain: Chain) -> None:
        if number == 0:
            chain.made.append(self._computed(func, chain, lambda where: self._reads(
                d.values, self._coordinates(chain, func, where))))  # fmt: skip
            chain.loops.append(self._loop(func, d, chain.values[0]))
            return
        chain.is_combined = False
        combined = combination(d, func.sources)
        args = func.definitions[0].args
        own = all(a is b for a, b in zip(d.args, args, strict=True))
        whole = own and not any(n.buffer in func.sources for n in loads(d.where))
        if d.ranges and whole and combined is not None and len({op for op, _ in combined}) == 1:
            self._reduce(func, d, combined, chain)
        elif self._is_pointwise(func, d):
            self._select(func, d, chain)
        else:
            self._extern(func, d, chain)

    def _loop(self, func: Function, d: Known, tensor: te.Tensor) -> Loop:
        """The loops of a stage with an axis for each coordinate and each reduction variable."""
        names = [*func.arg_names[::-1], *(v.name for v in reversed(d.ranges))]
        op = tensor.op
        assert isinstance(op, te.Compute)
        return Loop(tensor, d.steps, dict(zip(names, stage_axes(op), strict=False)))

    def _reads(self, roots: Sequence[Expr], to: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
        """Expressions whose variables have the values `to`, and that read tensors."""

        def of_tensor(load: Load) -> Expr:
            tensor, box = self._places[load.buffer]  # type: ignore[index]
            return tensor[point(box, load.indices)]

        return map_loads(tuple(simplify(substitute(e, dict(to))) for e in roots), of_tensor)

    def _coordinates(self, chain: Chain, func: Function, where: Sequence[Expr]) -> dict[Expr, Expr]:
        """The values of the coordinates at a place in memory."""
        lows = [low for low, _ in chain.box]
        args = func.definitions[0].args
        return {a: i + low for a, i, low in zip(args, reversed(where), lows, strict=True)}

    def _computed(self, func: Function, chain: Chain, values: Any) -> tuple[te.Tensor, ...]:
        """The tensors of `values(place in memory)`."""
        names = func.arg_names[::-1]
        return te.compute(
            extents(chain.box), lambda *where: tuple(values(where)), func.name(), names
        )

    def _reduce(
        self, func: Function, d: Known, combined: list[tuple[str, Expr]], chain: Chain
    ) -> None:
        axes = {v: te.reduce_axis(r.extent, v.name) for v, r in d.ranges.items()}
        at = {v: axis.var + d.ranges[v].start for v, axis in axes.items()}
        op = combined[0][0]

        def terms(where: Sequence[Expr]) -> Any:
            to = {**self._coordinates(chain, func, where), **at}
            found = self._reads([*(e for _, e in combined), *d.where], to)
            terms, conditions = found[: len(combined)], found[len(combined) :]
            if conditions:
                terms = tuple(
                    select(ir.all_of(*conditions), t, neutral(op, t.dtype)) for t in terms
                )
            return _reducer(op, len(terms))(terms, list(axes.values())[::-1])

        sums = self._computed(func, chain, terms)
        loop = self._loop(func, d, sums[0])
        first = chain.made[-1]
        start = func.definitions[0].values
        is_neutral = chain.is_pure and all(
            isinstance(v, Const) and v is neutral(op, v.dtype) for v in start
        )
        if is_neutral:
            chain.made[-1] = sums
            if chain.loops[0] and not d.steps.steps:
                loop.steps = chain.loops[0].steps
            elif chain.loops[0]:
                chain.merged = [*chain.loops[0].axes], chain.loops[0].steps
            chain.loops = [None, loop]
            return
        chain.made.append(sums)
        whole = self._computed(
            func,
            chain,
            lambda where: [
                ir.binary(op, a[where], b[where]) for a, b in zip(first, sums, strict=True)
            ],
        )
        self._fold_away(chain, len(chain.made) - 2, whole, [])
        chain.made.append(whole)
        chain.loops.append(loop)
        chain.is_combined = True

    def _fold_away(
        self, chain: Chain, number: int, into: tuple[te.Tensor, ...], steps: Sequence[Any]
    ) -> None:
        """Inline stage `number`, which stage `into` with `steps` reads only at its own place, if it
        is a compute without a reduction.  Its loops are then those of `into`, so that only one of
        the two may have steps.
        """
        first = chain.made[number][0]
        moved = [x for x in chain.loops if x is not None and x.tensor is first]
        op = first.op
        if not (isinstance(op, te.Compute) and op.axis and not op.reduce_axis):
            return
        if steps and any(x.steps.steps for x in moved):
            return
        chain.inlined.add(first)
        for loop in moved:
            loop.tensor = into[0]

    def _is_pointwise(self, func: Function, d: Known) -> bool:
        """Whether the points of an update are independent, and a coordinate of the result says
        which of them gives its value.
        """
        used: list[Expr] = []
        for arg, v in zip(d.args, func.definitions[0].args, strict=True):
            if arg in d.ranges:
                used.append(arg)
            elif arg is not v and not isinstance(simplify(arg), Const):
                return False
        if len(set(used)) < len(d.ranges) or len(used) != len(d.ranges):
            return False
        return all(
            index is ir.cast(arg, i64)
            for load in loads((*d.values, *d.where))
            if load.buffer in func.sources
            for arg, index in zip(d.args, load.indices, strict=True)
            if arg in d.ranges
        )

    def _select(self, func: Function, d: Known, chain: Chain) -> None:
        old = chain.made[-1]
        pure = func.definitions[0].args
        pairs = zip(d.args, pure, strict=True)
        fixed = [(v, a) for a, v in pairs if a is not v and a not in d.ranges]
        own = {a: pure[index_of(d.args, a)] for a in d.ranges}

        def values(where: Sequence[Expr]) -> Any:
            to = self._coordinates(chain, func, where)
            conditions = [to[v] == a for v, a in fixed]
            for a, r in d.ranges.items():
                low, high = chain.box[index_of(d.args, a)]
                if r.start > low:
                    conditions.append(to[own[a]] >= r.start)
                if r.start + r.extent - 1 < high:
                    conditions.append(to[own[a]] < r.start + r.extent)
            to = {**to, **{a: to[v] for a, v in own.items()}}
            found = self._reads([*d.values, *d.where], to)
            news, more = found[: len(d.values)], found[len(d.values) :]
            here = simplify(ir.all_of(*conditions, *more))
            return [
                new if here is const(True) else select(here, new, o[where])
                for new, o in zip(news, old, strict=True)
            ]

        made = self._computed(func, chain, values)
        at_own_place = all(
            same(load.indices, made[0].op.axis and [a.var for a in made[0].op.axis])  # type: ignore[union-attr]
            for load in loads(made[0].op.body)  # type: ignore[union-attr]
            if load.buffer in set(old)
        )
        if at_own_place:
            self._fold_away(chain, len(chain.made) - 1, made, d.steps.steps)
        chain.made.append(made)
        op = made[0].op
        assert isinstance(op, te.Compute)
        axes = dict(zip(func.arg_names[::-1], stage_axes(op), strict=True))
        names = {a.name: axes[func.arg_names[index_of(pure, v)]] for a, v in own.items()}
        chain.loops.append(Loop(made[0], d.steps, {**axes, **names}))

    def _extern(self, func: Function, d: Known, chain: Chain) -> None:
        old = chain.made[-1]
        pure = [v for a, v in zip(d.args, func.definitions[0].args, strict=True) if a is v]
        start = self._definitions[0].values if chain.is_pure else ()
        roots = (*d.args, *d.values, *d.where)
        tensors = dict.fromkeys(
            self._places[n.buffer][0]  # type: ignore[index]
            for n in loads((*roots, *start))
            if n.buffer not in func.sources
        )
        inputs = [*tensors] if start else [*tensors, *old]
        self._check_images(func, [d, *self._definitions[: len(chain.loops) == 1]], chain.box)
        order = self._order(func, d, [*d.ranges, *pure])
        lows = dict(zip(func.definitions[0].args, chain.box, strict=True))

        def body(b: te.LoopBuilder, *arrays: Any) -> None:
            count = len(func.sources)
            results = arrays[-count:]
            array_of = dict(zip(inputs, arrays, strict=False))

            def value(load: Load) -> Expr:
                if load.buffer in func.sources:
                    array = results[load.buffer.index]  # type: ignore[attr-defined]
                    return array[point(chain.box, load.indices)]
                tensor, box = self._places[load.buffer]  # type: ignore[index]
                return array_of[tensor][point(box, load.indices)]

            with b.independent_nest(extents(chain.box)) as where:
                to = self._coordinates(chain, func, where)
                first = map_loads(tuple(simplify(substitute(e, to)) for e in start), value)
                for number, array in enumerate(results):
                    array[where] = first[number] if start else array_of[old[number]][where]
            with ExitStack() as nest:
                to = {}
                for v in order:
                    if v in d.ranges:
                        r = d.ranges[v]  # type: ignore[index]
                        to[v] = nest.enter_context(b.loop(r.extent, v.name)) + r.start  # type: ignore[attr-defined]
                    else:
                        low, high = lows[v]
                        to[v] = nest.enter_context(b.independent(high - low + 1, v.name)) + low  # type: ignore[attr-defined]
                exprs = map_loads(tuple(simplify(substitute(e, to)) for e in roots), value)
                places = exprs[: len(d.args)]
                news = exprs[len(d.args) : len(d.args) + count]
                conditions = exprs[len(d.args) + count :]
                if conditions:
                    nest.enter_context(b.when(ir.all_of(*conditions)))
                if count > 1:
                    news = tuple(b.let(f"new{n}", e) for n, e in enumerate(news))
                at = point(chain.box, [ir.cast(p, i64) for p in places])
                for array, new in zip(results, news, strict=True):
                    array[at] = new

        shape = extents(chain.box)
        made = te.extern(
            [shape] * len(func.sources),
            inputs,
            body,
            [s.dtype for s in func.sources],
            func.name(),
        )
        if start:
            chain.made.pop()
            chain.loops = [None]
            chain.fixed.append((func.arg_names[::-1], self._definitions[0].steps))
        chain.made.append(made)
        chain.loops.append(None)
        chain.fixed.append(([v.name for v in order], d.steps))  # type: ignore[attr-defined]

    def _order(self, func: Function, d: Known, default: list[Expr]) -> list[Expr]:
        """The loops of an update, outermost first: those that a schedule reorders in its order.

        Raises ScheduleError if another order of the domain's points may give another result.
        """
        inner_first = {v.name: v for v in default}  # type: ignore[attr-defined]
        for step in d.steps.steps:
            if step.kind == "reorder" and all(n in inner_first for n in step.needs):
                names = reordered(list(inner_first), step.needs)
                inner_first = {n: inner_first[n] for n in names}
        made = [v for v in inner_first.values() if v in d.ranges]
        moved = next((v for v, own in zip(made, d.ranges, strict=True) if v is not own), None)
        own_reads = any(n.buffer in func.sources for n in loads((*d.args, *d.where)))
        if moved is not None and (own_reads or combination(d, func.sources) is None):
            raise ScheduleError(
                f"{func.name()}: cannot reorder {moved} past other variables of its RDom, since "
                "each point of the update may read what the points before it wrote; expected the "
                f"order {', '.join(v.name for v in d.ranges)}, innermost first; Vars may move"  # type: ignore[attr-defined]
            )
        return list(reversed(inner_first.values()))

    def _check_images(self, func: Function, definitions: Sequence[Known], box: Box) -> None:
        """Raises UsageError for a read outside of an image: loops have no checks."""
        for load, facts in (r for d in definitions for r in d.reads(box, func.definitions[0].args)):
            source = load.buffer
            if isinstance(source, Source) and not isinstance(source.owner, Function):
                whole = self._places[source][1]
                ends = [bounds(i, facts, func, load) for i in load.indices]
                if any(a < low or b > high for (a, b), (low, high) in zip(ends, whole)):
                    raise UsageError(
                        f"{func.name()} reads {source.name} at {ends} (first and last coordinate "
                        f"of each dimension): expected {whole}; use a boundary condition"
                    )


def stage_axes(op: te.Compute) -> tuple[str, ...]:
    """The names of a stage's loops in its schedule."""
    return make_stage(op.name, op, ()).roots


def _reducer(op: str, count: int) -> Any:
    known = BY_OPERATION[op]
    if count == 1:
        over = getattr(te, known.name)
        return lambda terms, axes: [over(terms[0], axes)]
    return te.comm_reducer(
        lambda a, b: tuple(ir.binary(op, x, y) for x, y in zip(a, b, strict=True)),
        lambda *dtypes: tuple(known.identity((t,))[0] for t in dtypes),
        known.name,
    )
