"""The coordinates of each Func that a run needs: bounds inference from the outputs inwards.

Func without a place of their own are inlined first, so that only stored Funcs have regions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Const, Expr, Load, const, substitute
from tilesmith.ir.simplify import EMPTY, interval, simplify
from tilesmith.support.errors import UsageError
from tilesmith.te.rewrite import loads, map_loads

from .buffers import Buffer, ImageParam, Source
from .definitions import Definition, Function
from .domains import Domain
from .schedules import Steps

Box = list[tuple[int, int]]
"""First and last coordinate of each dimension, innermost first."""

_LARGEST = 1 << 31

_ROUNDS = 100
"""How often the updates of a Func may enlarge what they use of it."""


@dataclass(frozen=True, eq=False)
class Range:
    """The values of a reduction variable.

    start: the first one.
    extent: how many there are.
    """

    start: int
    extent: int


@dataclass(eq=False)
class Known:
    """A definition of a stored Func whose sizes and parameters are numbers.

    args, values: as in `Definition`; reads are those of stored Funcs and of images.
    ranges: the reduction variables, innermost first.
    where: the conditions of the domain.
    steps: the schedule.
    """

    args: tuple[Expr, ...]
    values: tuple[Expr, ...]
    ranges: dict[ir.Var, Range]
    where: tuple[Expr, ...]
    steps: Steps

    def context(self, box: Box, pure: Sequence[Expr], inside: bool = True) -> Context:
        """What is known of the variables while coordinates run over `box`.

        inside: whether the conditions of the domain hold.
        """
        facts = EMPTY
        for v, (low, high) in zip(pure, box, strict=True):
            assert isinstance(v, ir.Var)
            facts = facts.with_var(v, low, high)
        for v, r in self.ranges.items():
            facts = facts.with_var(v, r.start, r.start + r.extent - 1)
        if inside:
            for condition in self.where:
                facts = facts.assuming(condition)
        return facts

    def reads(self, box: Box, pure: Sequence[Expr]) -> Iterator[tuple[Load, Context]]:
        """What the definition reads while coordinates run over `box`, and what is known there."""
        for roots, inside in (((*self.args, *self.values), True), (self.where, False)):
            facts = self.context(box, pure, inside)
            for load in loads(roots):
                yield load, facts


class Resolved:
    """The stored Funcs of a run, consumers first, with their definitions.

    constants: the values of parameters and sizes.
    """

    def __init__(self, outputs: Iterable[Function], constants: Mapping[Expr, Expr]) -> None:
        self.outputs = tuple(outputs)
        self.constants = dict(constants)
        self._inlined: dict[Function, tuple[Expr, ...]] = {}
        self.definitions: dict[Function, list[Known]] = {}
        self.images: dict[Source, Buffer | ImageParam] = {}
        order: dict[Function, None] = {}
        for func in self.outputs:
            self._visit(func, order)
        self.funcs = tuple(reversed(order))

    def is_stored(self, func: Function) -> bool:
        """Whether a Func has memory: an output, one with updates, or one with a place."""
        place = func.placement.compute
        if func.has_update_definitions() and place == "inline":
            raise UsageError(
                f"{func.name()}.compute_inline: expected a Func without updates, found "
                f"{func.num_update_definitions()}; use compute_at or compute_root"
            )
        is_output = any(func is f for f in self.outputs)
        return is_output or func.has_update_definitions() or place not in ("default", "inline")

    def _visit(self, func: Function, order: dict[Function, None]) -> None:
        """Add `func` and the stored Funcs that it reads, producers first."""
        if func in self.definitions:
            return
        self.definitions[func] = known = []
        known.extend(self._known(func, d) for d in func.definitions or [func.pure])
        for d in known:
            for load in loads((*d.args, *d.values, *d.where)):
                source = load.buffer
                assert isinstance(source, Source)
                if not isinstance(source.owner, Function):
                    self.images[source] = source.owner
                elif source.owner is not func:
                    self._visit(source.owner, order)
        order[func] = None

    def _known(self, func: Function, d: Definition) -> Known:
        args, values, where = (
            tuple(self.resolved(e, func) for e in group)
            for group in (d.args, d.values, d.domain.where if d.domain else ())
        )
        ranges = self._ranges(func, d.domain) if d.domain else {}
        return Known(args, values, ranges, where, self.chosen(d.steps))

    def _ranges(self, func: Function, domain: Domain) -> dict[ir.Var, Range]:
        return {
            v: Range(*(self.number(e, f"the RDom of {func.name()}") for e in ends))
            for v, ends in domain.axes.items()
        }

    def number(self, e: Expr, what: str) -> int:
        """The value of an expression of sizes and parameters.  Raises UsageError for others."""
        value = simplify(substitute(e, self.constants))
        if not isinstance(value, Const):
            raise UsageError(
                f"{what}: expected a number when the pipeline is compiled, found {e}; leave a "
                "parameter out of the arguments of a file, or make it a GeneratorParam"
            )
        return int(value.value)

    def chosen(self, steps: Steps) -> Steps:
        """The steps of the first special case whose condition holds."""
        for condition, special in steps.special:
            if self.number(condition, "specialize"):
                return self.chosen(special)
        return steps

    def resolved(self, e: Expr, reader: Function) -> Expr:
        """`e` with constants for parameters, and with the values of inlined Funcs."""
        return map_loads((substitute(e, self.constants),), lambda at: self._value(at, reader))[0]

    def _value(self, load: Load, reader: Function) -> Expr:
        source = load.buffer
        assert isinstance(source, Source)
        func = source.owner
        if not isinstance(func, Function) or func is reader:
            return load
        while (made := func.wrappers.get(reader, func.wrappers.get(None))) not in (None, reader):
            func = made
        load = Load(func.sources[source.index], load.indices)
        if self.is_stored(func):
            return load
        if func not in self._inlined:
            (only,) = func.definitions
            self._inlined[func] = tuple(self.resolved(v, func) for v in only.values)
        places = dict(zip(func.definitions[0].args, load.indices, strict=True))
        return substitute(self._inlined[func][source.index], places)

    def boxes(self, asked: Mapping[Function, Box]) -> dict[Function, Box]:
        """The coordinates of each stored Func that a run of the outputs needs.

        asked: the coordinates of the outputs.

        Raises UsageError if an output is needed outside of them, and for reads at coordinates
        without bounds.
        """
        needed: dict[Function, Box] = {f: list(box) for f, box in asked.items()}
        for func in self.funcs:
            box = self._bounded(func, needed[func])
            needed[func] = self._own(func, box, is_output=func in asked)
            for d in self.definitions[func]:
                for load, facts in d.reads(needed[func], func.definitions[0].args):
                    self._need(func, load, facts, needed, asked)
        return needed

    def _need(
        self,
        func: Function,
        load: Load,
        facts: Context,
        needed: dict[Function, Box],
        asked: Mapping[Function, Box],
    ) -> None:
        """Add what `load` reads to the coordinates that are needed."""
        source = load.buffer
        assert isinstance(source, Source)
        owner = source.owner
        if not isinstance(owner, Function) or owner is func:
            return
        read = [bounds(i, facts, func, load) for i in load.indices]
        needed[owner] = _union(needed.get(owner), read)
        if owner in asked and needed[owner] != asked[owner]:
            raise UsageError(
                f"{source.name}, an output of {asked[owner]}, is read by {func.name()} at {read}; "
                "realize more of it"
            )

    def _bounded(self, func: Function, box: Box) -> Box:
        """`box`, or the bounds that the program states, which must contain it.  Bounds of a Func
        inside a loop are those of an iteration, which lowering infers.
        """
        if isinstance(func.placement.compute, tuple):
            return box
        made = []
        for name, (low, high) in zip(func.arg_names, box, strict=True):
            if name in func.placement.bounds:
                start, size = func.placement.bounds[name]
                first = low if start is None else self.number(start, f"{func.name()}.bound")
                last = first + self.number(size, f"{func.name()}.bound") - 1
                if low < first or high > last:
                    raise UsageError(
                        f"{func.name()}.bound: {name} is stated as {first} to {last}, and {low} to "
                        f"{high} is needed"
                    )
                low, high = first, last
            made.append((low, high))
        return made

    def _own(self, func: Function, box: Box, is_output: bool) -> Box:
        """`box` with all coordinates at which updates of `func` write or read it, while each runs
        over the result.
        """
        whole = box
        for _ in range(_ROUNDS):
            before, whole = whole, self._used(func, whole)
            if whole == before:
                break
        else:
            raise UsageError(
                f"{func.name()}: expected updates that use a bounded part of it, found that each "
                f"use of {whole} (first and last coordinate of each dimension) needs more; use "
                "hl.clamp"
            )
        if is_output and whole != box:
            raise UsageError(
                f"{func.name()} is realized for {box} (first and last coordinate of each "
                f"dimension), and an update uses {whole}; realize these, or clamp the coordinates"
            )
        return whole

    def _used(self, func: Function, box: Box) -> Box:
        """`box` with the coordinates that updates of `func` over `box` write or read."""
        whole = box
        pure = func.definitions[0].args
        for d in self.definitions[func][1:]:
            used = [(n.indices, facts) for n, facts in d.reads(box, pure)
                    if n.buffer in func.sources]  # fmt: skip
            for place, facts in [(d.args, d.context(box, pure)), *used]:
                ends = [
                    own if index is v else bounds(index, facts, func, None)
                    for index, v, own in zip(place, pure, box, strict=True)
                ]
                whole = _union(whole, ends)
        return whole


def bounds(index: Expr, facts: Context, func: Function, load: Load | None) -> tuple[int, int]:
    """The first and the last value of a coordinate.  Raises UsageError if it has no bounds."""
    values = interval(index, facts)
    if values.lo is None or values.hi is None or values.hi - values.lo >= _LARGEST:
        read = f" of {load.buffer.name}" if load is not None else ""
        raise UsageError(f"{func.name()}: the coordinate {index}{read} has no bounds; use hl.clamp")
    return int(values.lo), int(values.hi)


def _union(a: Box | None, b: Box) -> Box:
    if a is None:
        return b
    return [(min(p[0], q[0]), max(p[1], q[1])) for p, q in zip(a, b, strict=True)]


def point(box: Box, where: Sequence[Expr]) -> tuple[Expr, ...]:
    """The place in memory, slowest dimension first, of the element at coordinates `where`."""
    return tuple(simplify(i - const(low)) for i, (low, _) in reversed(list(zip(where, box))))


def extents(box: Box) -> tuple[int, ...]:
    """The shape of memory for `box`, slowest dimension first."""
    return tuple(high - low + 1 for low, high in reversed(box))
