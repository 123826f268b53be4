"""Halide's schedules applied to those of Tilesmith."""

from __future__ import annotations

import warnings
from typing import Any

from tilesmith import te
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.tensor import Extern, producers_first

from .definitions import Function
from .schedules import Fuse, Mark, Rename, Reorder, ScheduleWarning, Split, Steps
from .stages import Chain, Loop, Stages


def scheduled(stages: Stages, outputs: tuple[Function, ...]) -> te.Schedule:
    """The schedule of `outputs` with the steps and places of all Funcs."""
    results = [t for f in outputs for t in stages.chains[f].values[:1]]
    s = te.create_schedule(results)
    needed = set(producers_first([t.op for t in results]))
    for chain in stages.chains.values():
        chain.keep(needed)
    chains = {f: c for f, c in stages.chains.items() if c.made}
    for func, chain in chains.items():
        if chain.is_combined and func.placement.compute == "default" and func not in outputs:
            chain.inlined.add(chain.values[0])
        for tensor in chain.inlined:
            s[tensor].compute_inline()
        for loop in chain.loops:
            if loop is not None:
                is_output = loop.tensor in set(s.outputs)
                _apply(s[loop.tensor], loop, is_output)
        for names, steps in chain.fixed:
            _warn_of_unused(func, names, steps)
        if chain.merged is not None:
            _unused(func, *chain.merged)
    for func, chain in reversed(chains.items()):
        _place(s, stages, func, chain, outputs)
    return s


def _apply(stage: te.Stage, loop: Loop, is_output: bool) -> None:
    """Take the steps of a definition.  `loop.axes` follows the loops."""
    axes = loop.axes

    def axis(name: str) -> str:
        if name not in axes:
            raise ScheduleError(
                f"{stage.name} has no loop {name}; its loops are {', '.join(axes) or 'none'}"
            )
        return axes[name]

    for step in loop.steps.steps:
        match step:
            case Split(old, outer, inner, factor, tail):
                known = axis(old)
                kind: Any = "peel" if tail == "roundup" and is_output else tail
                o, i = stage.split(known, factor, tail=kind)
                del axes[old]
                axes[outer], axes[inner] = o.name, i.name
            case Fuse(inner, outer, fused):
                first, second = axis(outer), axis(inner)
                loops = [a.name for a in stage.leaf_axes if a.name != first]
                loops.insert(loops.index(second), first)
                stage.reorder(*loops)  # Halide fuses any two loops, at the place of the inner one
                made = stage.fuse(first, second)
                del axes[outer], axes[inner]
                axes[fused] = made.name
            case Reorder(names):
                stage.reorder(*(axis(n) for n in reversed(names)))
            case Mark(name, kind):
                getattr(stage, kind)(axis(name))
            case Rename(old, new):
                axes[new] = axis(old)
                if new != old:
                    del axes[old]


def _unused(func: Function, names: list[str], steps: Steps) -> list[str]:
    """The steps that have no effect, since the compiler orders the loops `names`.  Raises
    ScheduleError for a loop that is not there.
    """
    loops, unused = set(names), list[str]()
    for step in steps.steps:
        needs: tuple[str, ...]
        makes: tuple[str, ...] = ()
        match step:
            case Split(old, outer, inner):
                needs, makes = (old,), (outer, inner)
            case Fuse(inner, outer, fused):
                needs, makes = (inner, outer), (fused,)
            case Rename(old, new):
                needs, makes = (old,), (new,)
            case Reorder(order):
                needs = order
            case Mark(name):
                needs = (name,)
        for name in needs:
            if name not in loops:
                raise ScheduleError(
                    f"{func.name()} has no loop {name}; its loops are {', '.join(sorted(loops))}"
                )
        if makes:
            loops = loops - set(needs) | set(makes)
        taken = isinstance(step, Reorder) and all(n in names for n in needs)
        if not (taken or isinstance(step, Rename) or step == Mark(needs[0], "serial")):
            kind = step.kind if isinstance(step, Mark) else type(step).__name__.lower()
            unused.append(f"{kind} of {', '.join(needs)}")
    return unused


def _warn_of_unused(func: Function, names: list[str], steps: Steps) -> None:
    unused = _unused(func, names, steps)
    if unused:
        _warn(
            f"{func.name()}: {'; '.join(unused)}: no effect, since an update that is neither a "
            "reduction nor independent at each point becomes loops whose vectors and threads the "
            "compiler chooses; reorder sets their order, and rfactor divides a reduction"
        )


def _warn(what: str) -> None:
    warnings.warn(what, ScheduleWarning, stacklevel=2)


def _place(
    s: te.Schedule, stages: Stages, func: Function, chain: Chain, outputs: tuple[Function, ...]
) -> None:
    """Give the stages of a Func their place and memory.  One with loops of its own is computed
    whole, so a loop of a reader would only repeat it.
    """
    place = func.placement
    computed_whole = any(isinstance(t[0].op, Extern) for t in chain.made)
    if computed_whole and isinstance(place.compute, tuple):
        _warn(
            f"{func.name()}.compute_at({place.compute[0].name()}, {place.compute[1]}): no effect, "
            f"since an update of {func.name()} becomes loops, which are computed whole, as by "
            "compute_root"
        )
    alive = [t[0] for t in reversed(chain.made) if t[0] not in chain.inlined]
    for tensor in alive:
        stage = s[tensor]
        if isinstance(place.compute, tuple) and not computed_whole:
            stage.compute_at(*_loop_of(s, stages, func, *place.compute))
            if place.store == "root":
                stage.store_root()
            elif place.store is not None and place.store != place.compute:
                stage.store_at(*_loop_of(s, stages, func, *place.store))
        is_output = tensor in set(s.outputs)
        if place.compute == "default" and func not in outputs and len(alive) == 1:
            _place_near(s, stage)
        if place.scope is not None and not is_output:
            stage.set_scope(place.scope)  # type: ignore[arg-type]
        if isinstance(tensor.op, Extern):
            continue
        names = dict(zip(func.arg_names[::-1], stage.axis, strict=True))
        for name, factor in place.folds.items():
            if place.store is not None:
                stage.fold_storage(names[name], factor)
        order = func.arg_names[::-1]
        for name, factor in place.aligns.items():
            if order.index(name) > 0:  # the stride of the next outer dimension is padded
                stage.storage_align(names[order[order.index(name) - 1]], factor)
        if place.order is not None and not is_output:
            numbers = [order.index(n) for n in reversed(place.order)]
            s.transform_layout(tensor, lambda *i, n=numbers: tuple(i[k] for k in n))


def _place_near(s: te.Schedule, stage: te.Stage) -> None:
    """Compute a Func with updates and without a place, such as the sum inside an expression, in the
    innermost loop of its reader.  A vector of the reader takes a vector of results.
    """
    readers = s.state.consumers()[stage.name]
    if len(readers) != 1 or isinstance(stage.op, Extern) or isinstance(s[readers[0]].op, Extern):
        return
    reader = s[readers[0]]
    loops = reader.leaf_axes
    kinds = [reader.kind(a) for a in loops]
    count = kinds.index("vectorized") if "vectorized" in kinds else len(loops)
    if not count or reader.attach == "inline":
        return
    stage.compute_at(reader, loops[count - 1])
    if count < len(loops) and stage.axis and not stage.state.relations:
        lanes = stage.axis[-1]
        stage.reorder(*stage.axis[:-1], *stage.reduce_axis, lanes)
        stage.vectorize(lanes)


def _loop_of(
    s: te.Schedule, stages: Stages, func: Function, target: Function, name: str
) -> tuple[te.Tensor, str]:
    """The stage of `target` that has loop `name` and needs `func`, and its name of the loop."""
    if not isinstance(target, Function) or target not in stages.chains:
        raise UsageError(
            f"{func.name()}.compute_at: expected a Func that is stored and reads it, found "
            f"{target!r}; give that Func a place of its own, such as compute_root"
        )
    found = stages.chains[func].values[0].op
    loops = [x for x in stages.chains[target].loops if x is not None and name in x.axes]
    for loop in loops:
        if found in producers_first([loop.tensor.op]):
            return loop.tensor, loop.axes[name]
    known = [n for x in stages.chains[target].loops if x is not None for n in x.axes]
    raise UsageError(
        f"{func.name()}.compute_at: expected a loop of {target.name()} "
        f"({', '.join(known) or 'it has none: its updates are loops of their own'}) that needs "
        f"{func.name()}, found {name}"
    )
