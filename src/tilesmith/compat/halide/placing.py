"""Halide's schedules applied to those of Tilesmith."""

from __future__ import annotations

import warnings
from typing import Any

from tilesmith import te
from tilesmith.support.errors import UsageError
from tilesmith.te.tensor import Extern, producers_first

from .definitions import Function
from .schedules import ScheduleWarning, Steps, reordered
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
    loop.steps.check(stage.name, loop.axes)
    axes = loop.axes
    for step in loop.steps.steps:
        known = [axes[name] for name in step.needs]
        made = known
        match step.kind:
            case "split":
                kind: Any = "peel" if step.tail == "roundup" and is_output else step.tail
                made = [a.name for a in stage.split(known[0], step.factor, tail=kind)]
            case "fuse":
                second, first = known
                loops = [a.name for a in stage.leaf_axes if a.name != first]
                loops.insert(loops.index(second), first)
                stage.reorder(*loops)  # Halide fuses any two loops, at the place of the inner one
                made = [stage.fuse(first, second).name]
            case "reorder":
                stage.reorder(*reversed(known))
            case "vectorize" | "unroll" | "parallel" | "serial":
                getattr(stage, step.kind)(known[0])
        if step.makes:
            for name in step.needs:
                del axes[name]
            axes.update(zip(step.makes, made, strict=True))


def _unused(func: Function, names: list[str], steps: Steps) -> list[str]:
    """The steps that have no effect, since the compiler orders the loops `names`.  Raises
    ScheduleError for steps that do not fit these.
    """
    steps.check(func.name(), names)
    return [
        f"{step.kind} of {', '.join(step.needs)}"
        for step in steps.steps
        if step.kind not in ("rename", "serial")
        and not (step.kind == "reorder" and all(n in names for n in step.needs))
    ]


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
    place.check(func.name())
    computed_whole = any(isinstance(t[0].op, Extern) for t in chain.made)
    steps: dict[str, Any] = {f"{word}_storage": given for word, given in (
        ("fold", place.folds), ("align", place.aligns), ("reorder", place.order))}  # fmt: skip
    if isinstance(place.compute, tuple):
        steps[f"compute_at({place.compute[0].name()}, {place.compute[1]})"] = True
    unused = [name for name, given in steps.items() if given]
    if computed_whole and unused:
        _warn(
            f"{func.name()}.{', '.join(unused)}: no effect, since an update of {func.name()} "
            "becomes loops, which are computed whole, as by compute_root"
        )
    alive = [t[0] for t in reversed(chain.made) if t[0] not in chain.inlined]
    for tensor in alive:
        stage = s[tensor]
        if isinstance(place.compute, tuple) and not computed_whole:
            stage.compute_at(*_loop_of(s, stages, func, "compute_at", *place.compute))
            if place.store == "root":
                stage.store_root()
            elif place.store is not None and place.store != place.compute:
                stage.store_at(*_loop_of(s, stages, func, "store_at", *place.store))
        is_output = tensor in set(s.outputs)
        if place.compute == "default" and func not in outputs and len(alive) == 1:
            _place_near(s, stage)
        if place.scope is not None and not is_output:
            stage.set_scope(place.scope)  # type: ignore[arg-type]
        if isinstance(tensor.op, Extern):
            continue
        names = dict(zip(func.arg_names[::-1], stage.axis, strict=True))
        for name, factor in place.folds.items():
            stage.fold_storage(names[name], factor)
        order = func.arg_names[::-1]
        for name, factor in place.aligns.items():
            if order.index(name) > 0:  # the stride of the next outer dimension is padded
                stage.storage_align(names[order[order.index(name) - 1]], factor)
        if place.order is not None and not is_output:
            numbers = [order.index(n) for n in reordered(order, place.order[::-1])]
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
    s: te.Schedule, stages: Stages, func: Function, step: str, target: Function, name: str
) -> tuple[te.Tensor, str]:
    """The stage of `target` that has loop `name` and needs `func`, and its name of the loop."""
    if not isinstance(target, Function) or target not in stages.chains:
        raise UsageError(
            f"{func.name()}.{step}: expected a Func that is stored and reads it, found "
            f"{target!r}; give that Func a place of its own, such as compute_root"
        )
    found = stages.chains[func].values[0].op
    loops = [x for x in stages.chains[target].loops if x is not None and name in x.axes]
    for loop in loops:
        if found in producers_first([loop.tensor.op]):
            return loop.tensor, loop.axes[name]
    known = [n for x in stages.chains[target].loops if x is not None for n in x.axes]
    raise UsageError(
        f"{func.name()}.{step}: expected a loop of {target.name()} "
        f"({', '.join(known) or 'it has none: its updates are loops of their own'}) that needs "
        f"{func.name()}, found {name}"
    )
