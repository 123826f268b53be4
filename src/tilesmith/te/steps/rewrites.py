"""Steps that rewrite operations: cache_read, cache_write, rfactor, flatten_axes, unflatten_axis.

Each step gives one or more stages a new operation with the same meaning.  The remaining axes keep
their identity, so references to them stay valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.ir.expr import Expr, Load, Var, all_of, const, select, substitute
from tilesmith.support.errors import ScheduleError

from ..relations import Guard, add, axis_values, ceil_div, dim, dim_expr, divide, mul
from ..rewrite import map_loads
from ..state import At, StageState, State, make_stage, unique
from ..tensor import Compute, Extern, IterVar, Reduce, Tensor
from .base import Name, Names, Number, Quoted, Step, primitive, value_text
from .placement import checked_scope


def _fresh(axes: tuple[IterVar, ...]) -> tuple[IterVar, ...]:
    return tuple(IterVar(Var(a.name), a.extent, a.is_reduce) for a in axes)


def _renamed(old: tuple[IterVar, ...], new: tuple[IterVar, ...]) -> dict[Expr, Expr]:
    return {a.var: b.var for a, b in zip(old, new, strict=True)}


def unscheduled(stage: StageState, what: str) -> None:
    if isinstance(stage.op, Extern):
        raise ScheduleError(f"{what} of {stage.name}: it is loops, not an expression")
    if stage.recurrence is not None:
        raise ScheduleError(
            f"{what} of {stage.name}: it is a scan, which reads its own results; {what} a compute "
            "that reads it"
        )
    if stage.relations or stage.leaves != stage.roots or stage.kinds or stage.attach == "inline":
        raise ScheduleError(
            f"{what} of {stage.name} must come before its loops are scheduled, since it moves them "
            "to another stage; call it first"
        )


def _with_body(state: State, stage: StageState, body: tuple[Expr, ...]) -> State:
    """`stage` computing `body` over the same axes."""
    old = stage.compute
    op = replace(old, body=body)
    return state.with_operation(replace(stage, op=op, reads=state.reads_of(op)))


def _rewrite_readers(state: State, readers: tuple[str, ...], f: Callable[[Load], Expr]) -> State:
    for name in readers:
        reader = state.stage(name)
        if isinstance(reader.op, Extern):
            raise ScheduleError(f"{name} is loops, whose reads can't be changed to a copy")
        state = _with_body(state, reader, map_loads(reader.compute.body, f))
    return state


@primitive("cache_write", of_schedule=True)
class CacheWrite(Step):
    """`C[i] = expr` becomes `C_scope[i] = expr; C[i] = C_scope[i]`."""

    scope: Quoted

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        old = stage.compute
        unscheduled(stage, "cache_write")
        axes = _fresh(old.axis)
        renamed = _renamed(old.axis, axes)
        name = state.unique_name(f"{stage.name}_{self.scope}")
        copy = Compute(name, axes, tuple(substitute(b, renamed) for b in old.body), old.reduce_axis)
        in_step = any(stage.name in state.inside_scan(n) for n in state.stages)
        attach = stage.attach if in_step else "root"
        scope = checked_scope(self.scope)
        cached = make_stage(name, copy, stage.reads, scope=scope, attach=attach)
        state = state.with_new_stage(cached, before=stage.name)
        op = Compute(
            old.name, old.axis, tuple(t[tuple(a.var for a in old.axis)] for t in copy.outputs)
        )
        spatial = stage.roots[: len(old.axis)]
        return state.with_operation(
            replace(stage, op=op, reads=state.reads_of(op), roots=spatial, leaves=spatial)
        )


@primitive("cache_read", of_schedule=True)
class CacheRead(Step):
    """Readers of value `value` of `stage` read a copy in `scope` instead: `A[e]` becomes
    `A_scope[e]`, where `A_scope[i] = A[i]`.
    """

    value: Number
    scope: Quoted
    readers: Names

    def __str__(self) -> str:
        read = value_text(self.stage, self.value)
        return f"s.cache_read({read}, {self.scope!r}, {list(self.readers)!r})"

    def apply(self, state: State) -> State:
        source = state.stage(self.stage)
        if not 0 <= self.value < len(source.op.outputs):
            raise ScheduleError(
                f"{self.stage} has {len(source.op.outputs)} values, there is no number {self.value}"
            )
        key = (self.stage, self.value)
        if not self.readers:
            raise ScheduleError(f"cache_read of {self.stage} needs at least one reader")
        for reader in self.readers:
            if key not in state.stage(reader).reads:
                readers = [s.name for s in state.stages.values() if key in s.reads]
                raise ScheduleError(
                    f"cache_read of {self.stage}: {reader} does not read it; its readers are "
                    f"{', '.join(readers) or 'none'}"
                )
        tensor = source.op.outputs[self.value]
        op = source.op
        names = [a.name for a in op.axis] if isinstance(op, Compute) else []
        names = names or [f"i{n}" for n in range(len(tensor.shape))]
        axes = tuple(map(IterVar, map(Var, names), tensor.shape))
        name = state.unique_name(f"{self.stage}_{self.scope}")
        copy = Compute(name, axes, (tensor[tuple(a.var for a in axes)],))
        state = state.with_new_stage(
            make_stage(name, copy, (key,), scope=checked_scope(self.scope)), after=self.stage
        )
        cached = copy.outputs[0]

        def redirect(load: Load) -> Expr:
            return Load(cached, load.indices) if state.tensors[_tensor(load)] == key else load

        return _rewrite_readers(state, self.readers, redirect)


def _tensor(load: Load) -> Tensor:
    assert isinstance(load.buffer, Tensor)
    return load.buffer


@primitive("rfactor", of_schedule=True)
class RFactor(Step):
    """`C[i] = sum(f(ko, ki), (ko, ki))` becomes `R[ki, i] = sum(f(ko, ki), ko); C[i] = sum(R[ki,
    i], ki)`.
    """

    axis: Name

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        old = stage.compute
        reduced = stage.reduce_names()
        leaves = [a for a in stage.leaves if a in reduced]
        if self.axis not in leaves:
            raise ScheduleError(
                f"rfactor of {stage.name} needs one of its reduction loops "
                f"({', '.join(leaves) or 'none'}), found {self.axis}"
            )
        _check_laws(stage, self.axis, is_outermost=self.axis == leaves[0])
        busy = [a for a in leaves if stage.kind(a) != "serial"]
        busy += [
            s.attach.axis
            for s in state.stages.values()
            if isinstance(s.attach, At) and s.attach.stage == stage.name
        ]
        if busy or stage.prefetches or stage.pragmas:
            raise ScheduleError(
                f"rfactor of {stage.name} must come before its reduction loops are annotated or "
                f"have stages attached ({', '.join(busy) or 'a prefetch or pragma'})"
            )
        extents = stage.extents()
        factored = IterVar(Var(self.axis), dim(extents[self.axis]))
        others = {
            a: IterVar(Var(a), dim(extents[a]), is_reduce=True) for a in leaves if a != self.axis
        }
        values = {self.axis: factored.var, **{a: v.var for a, v in others.items()}}
        relations = tuple(r for r in stage.relations if r.parents[0] in reduced)
        derived = axis_values(relations, extents, values)
        guards = list(derived.guards)
        for root, tail in derived.overhang.items():
            guards.append(Guard(derived.values[root] < dim_expr(extents[root]), tail))

        axes = _fresh(old.axis)
        mapping = _renamed(old.axis, axes)
        for root, axis in zip(stage.roots, stage.root_axes, strict=True):
            if axis.is_reduce:
                mapping[axis.var] = derived.values[root]
        first = old.body[0]
        assert isinstance(first, Reduce)
        reducer = first.reducer
        sources = tuple(substitute(s, mapping) for s in first.sources)
        if guards:
            inside = all_of(*(g.cond for g in guards))
            identity = reducer.identity(tuple(s.dtype for s in sources))
            sources = tuple(select(inside, s, e) for s, e in zip(sources, identity, strict=True))
        rest = tuple(others.values())
        body = (
            tuple(Reduce(reducer, sources, rest, n) for n in range(len(sources)))
            if rest
            else sources
        )
        name = state.unique_name(f"{stage.name}_rf")
        partial = Compute(name, (factored, *axes), body, rest)
        state = state.with_new_stage(make_stage(name, partial, stage.reads), before=stage.name)

        last = IterVar(Var(self.axis), factored.extent, is_reduce=True)
        partials = tuple(t[(last.var, *(a.var for a in old.axis))] for t in partial.outputs)
        body = tuple(Reduce(reducer, partials, (last,), n) for n in range(len(partials)))
        op = Compute(old.name, old.axis, body, (last,))
        spatial = stage.roots[: len(old.axis)]
        keep = tuple(r for r in stage.relations if r not in relations)
        root = unique(self.axis, set(replace(stage, roots=spatial, relations=keep).axis_names()))
        new_leaves: list[str] = []
        for leaf in stage.leaves:
            if leaf == self.axis:
                new_leaves.append(root)
            elif leaf not in reduced:
                new_leaves.append(leaf)
        return state.with_operation(
            replace(
                stage,
                op=op,
                reads=state.reads_of(op),
                roots=(*spatial, root),
                leaves=tuple(new_leaves),
                relations=keep,
            )
        )


def _check_laws(stage: StageState, axis: str, is_outermost: bool) -> None:
    """Raises ScheduleError if partial results along `axis` would change the answer.

    is_outermost: whether `axis` is the outermost reduction loop.
    """
    first = stage.compute.body[0]
    assert isinstance(first, Reduce)
    reducer, laws = first.reducer, first.reducer.laws
    if not laws.associative or not laws.neutral:
        law, what = ("associative", "is not associative")
        if laws.associative:
            law, what = ("neutral", "is changed by its start")
        raise ScheduleError(
            f"cannot rfactor {stage.name}: reducer {reducer.name!r} {what}{laws.why_not(law)}, so "
            "that partial results do not combine to the same answer; leave the reduction whole, "
            "or declare a combination that can be divided"
        )
    if not laws.commutative and not is_outermost:
        raise ScheduleError(
            f"cannot rfactor {stage.name} along {axis}: reducer {reducer.name!r} is not "
            f"commutative{laws.why_not('commutative')}, and partial results along an inner loop "
            "combine values in another order; rfactor the outermost reduction loop (split it with "
            "nparts)"
        )


@primitive("flatten_axes", of_schedule=True)
class FlattenAxes(Step):
    """`T[i, j] = f(i, j)` becomes `T[ij] = f(ij // J, ij % J)` and its readers' `T[a, b]` become
    `T[a * J + b]`.
    """

    axes: Names

    def apply(self, state: State) -> State:
        stage = _of_own_memory(state, self.stage, "flatten_axes")
        old = stage.compute
        spatial = stage.roots[: len(old.axis)]
        unknown = [a for a in self.axes if a not in spatial]
        if unknown or len(self.axes) < 2:
            raise ScheduleError(
                f"flatten_axes of {stage.name} needs two or more of its axes {', '.join(spatial)}; "
                "found "
                f"{', '.join(self.axes) or 'none'}"
            )
        first = spatial.index(self.axes[0])
        end = first + len(self.axes)
        if spatial[first:end] != self.axes:
            raise ScheduleError(
                f"flatten_axes of {stage.name} needs neighbours in order, found "
                f"{', '.join(self.axes)}"
            )
        parts = old.axis[first:end]
        extent = parts[0].extent
        for part in parts[1:]:
            extent = dim(extent * part.extent)
        axis = IterVar(Var("".join(self.axes)), extent)
        mapping: dict[Expr, Expr] = {}
        rest: Expr = axis.var
        for part in reversed(parts[1:]):
            rest, mapping[part.var] = divide(rest, part.extent)
        mapping[parts[0].var] = rest
        axes = (*old.axis[:first], axis, *old.axis[end:])
        op = Compute(
            old.name, axes, tuple(substitute(b, mapping) for b in old.body), old.reduce_axis
        )

        def flat(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            flattened = indices[first]
            for part, index in zip(parts[1:], indices[first + 1 : end], strict=True):
                flattened = add(mul(flattened, part.extent), index)
            return (*indices[:first], flattened, *indices[end:])

        return _with_other_axes(state, stage, op, flat)


@primitive("unflatten_axis", of_schedule=True)
class UnflattenAxis(Step):
    """`T[i] = f(i)` becomes `T[io, ii] = f(io * factor + ii)`, and its readers' `T[a]` become
    `T[a // factor, a % factor]`.
    """

    axis: Name
    factor: Number

    def apply(self, state: State) -> State:
        stage = _of_own_memory(state, self.stage, "unflatten_axis")
        old = stage.compute
        spatial = stage.roots[: len(old.axis)]
        if self.axis not in spatial or self.factor < 1:
            raise ScheduleError(
                f"unflatten_axis of {stage.name} needs one of its axes {', '.join(spatial)} and a "
                f"factor of at least 1; found {self.axis} and {self.factor}"
            )
        place = spatial.index(self.axis)
        axis = old.axis[place]
        outer = IterVar(Var(f"{self.axis}o"), dim(ceil_div(axis.extent, self.factor)))
        inner = IterVar(Var(f"{self.axis}i"), self.factor)
        position = add(mul(outer.var, self.factor), inner.var)
        fits = isinstance(axis.extent, int) and axis.extent % self.factor == 0
        inside = None if fits else position < dim_expr(axis.extent)
        body = tuple(_where(inside, substitute(b, {axis.var: position})) for b in old.body)
        axes = (*old.axis[:place], outer, inner, *old.axis[place + 1 :])
        op = Compute(old.name, axes, body, old.reduce_axis)

        def parts(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return (*indices[:place], *divide(indices[place], self.factor), *indices[place + 1 :])

        return _with_other_axes(state, stage, op, parts)


def _where(inside: Expr | None, value: Expr) -> Expr:
    """`value` where `inside` holds.  Elsewhere, where `value` must not be read, the start value of
    the reduction, or zero.
    """
    if inside is None:
        return value
    if not isinstance(value, Reduce):
        return select(inside, value, const(0, value.dtype))
    start = value.reducer.identity(tuple(s.dtype for s in value.sources))
    sources = (select(inside, s, e) for s, e in zip(value.sources, start, strict=True))
    return Reduce(value.reducer, tuple(sources), value.axes, value.index)


def _of_own_memory(state: State, name: str, what: str) -> StageState:
    """The stage `name`.  Raises ScheduleError if its axes can't be replaced, because it is an
    output or has steps.
    """
    stage = state.stage(name)
    if stage.is_output:
        raise ScheduleError(
            f"{what} of {name}: it is an output, whose shape the caller knows; fuse or split its "
            f"loops, or cache_write it and {what} of the copy"
        )
    unscheduled(stage, what)
    if stage.layout is not None or stage.aligns:
        raise ScheduleError(f"{what} of {name} must come before its layout or alignment is chosen")
    return stage


def _with_other_axes(
    state: State,
    stage: StageState,
    op: Compute,
    indices: Callable[[tuple[Expr, ...]], tuple[Expr, ...]],
) -> State:
    """The state in which `stage` computes `op`.  `indices` maps the old indices of a read of the
    stage to the new ones.
    """
    new = make_stage(stage.name, op, stage.reads, attach=stage.attach, scope=stage.scope)
    state = state.with_operation(new)

    def redirect(load: Load) -> Expr:
        name, value = state.tensors[_tensor(load)]
        if name != stage.name or load.buffer in set(op.outputs):
            return load
        return Load(op.outputs[value], indices(load.indices))

    readers = tuple(
        s.name for s in state.stages.values() if any(n == stage.name for n, _ in s.reads)
    )
    return _rewrite_readers(state, readers, redirect)
