"""Checks of the places where stages are computed and stored.  They run after every step that could
make a place illegal.

- A stage attached at a loop has all its readers inside that loop.
- A loop with attached stages is not vectorised.
- An inlined stage has nothing attached.
- The steps of a scan run in order (`check_scan`).
- Loops that carry values of a stage to their next iteration run in sequence.
- An output is attached at a loop only if its reader provably visits each element of the output.  So
  the output is written completely.
"""

from __future__ import annotations

from tilesmith.ir.expr import Load, Var, post_order
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.types import same_dim
from tilesmith.support.errors import ScheduleError

from .check_scan import check_scan
from .state import At, StageState, State
from .tensor import Extern


def check(state: State) -> None:
    """Raises ScheduleError if some attachment of `state` is illegal."""
    for stage in state.stages.values():
        if stage.recurrence is not None:
            check_scan(state, stage)
    attached = [s for s in state.stages.values() if isinstance(s.attach, At)]
    if not attached:
        return
    for stage in attached:
        _check_acyclic(state, stage)
    consumers = state.consumers()
    for stage in attached:
        _check_target(state, stage)
        for reader in consumers[stage.name]:
            _check_reader(state, stage, reader)
        if not consumers[stage.name]:
            raise ScheduleError(
                f"{stage.name} cannot be computed at {stage.attach}: no stage reads it"
            )
        if stage.is_output:
            _check_output(state, stage, consumers[stage.name])
        if stage.store is not None:
            _check_storage(state, stage)


def _check_acyclic(state: State, stage: StageState) -> None:
    seen = {stage.name}
    attach = stage.attach
    while isinstance(attach, At):
        if attach.stage in seen:
            raise ScheduleError(
                f"{stage.name} cannot be computed at {stage.attach}: that lies inside itself"
            )
        seen.add(attach.stage)
        attach = state.stage(attach.stage).attach


def _check_target(state: State, stage: StageState) -> None:
    place = stage.attach
    assert isinstance(place, At)
    target = state.stage(place.stage)
    if target.attach == "inline":
        raise ScheduleError(
            f"{stage.name} cannot be computed at {place}: {place.stage} is inlined and has no loops"
        )
    if place.axis not in target.leaves:
        raise ScheduleError(
            f"{stage.name} is computed at {place}, which is no loop of {place.stage} (any more); "
            "its loops are "
            f"{', '.join(target.leaves) or 'none'}: split, fuse and inline first, attach afterwards"
        )
    for outer in target.leaves[: target.leaves.index(place.axis) + 1]:
        if target.kind(outer) == "vectorized":
            raise ScheduleError(
                f"{stage.name} cannot be computed at {place}: loop {outer} is vectorised, all its "
                "iterations run at "
                "once; attach outside it or vectorise another loop"
            )


def _check_reader(state: State, stage: StageState, reader: str) -> None:
    place = stage.attach
    assert isinstance(place, At)
    if reader == place.stage:
        return
    target = state.stages[place.stage]
    depth = target.leaves.index(place.axis)
    for link in state.ancestors(reader):
        if link.stage == place.stage:
            if target.leaves.index(link.axis) >= depth:
                return
            break
    raise ScheduleError(
        f"{stage.name} cannot be computed at {place}: its reader {reader} is not inside that loop; "
        f"compute {reader} "
        f"there too, inline it, or attach {stage.name} further out"
    )


def _check_storage(state: State, stage: StageState) -> None:
    """Check that the memory of `stage` is allocated outside the loop where `stage` is computed, and
    that loops between the two run in sequence.
    """
    place, store = stage.attach, stage.store
    assert isinstance(place, At)
    target = state.stages[place.stage]
    leaves = target.leaves[: target.leaves.index(place.axis) + 1]
    own = isinstance(store, At) and store.stage == place.stage
    if store != target.attach and not (own and store.axis in leaves):  # type: ignore[union-attr]
        outer = "store_root" if target.attach == "root" else f"the loop {target.attach}"
        raise ScheduleError(
            f"{stage.name} is computed at {place} and cannot be stored at {store}: expected one of "
            f"the loops {', '.join(leaves)} of {place.stage}, or {outer}"
        )
    if stage.buffers > 1:
        raise ScheduleError(
            f"{stage.name} cannot be double-buffered and stored at {store}: both say which "
            "iterations share its memory"
        )
    for axis in state.kept_over(stage.name):
        kind = target.kind(axis)
        if not LOOP_KINDS[kind].is_ordered:
            raise ScheduleError(
                f"{stage.name} cannot be computed at {place} and stored at {store}: loop "
                f"{place.stage}.{axis} between them is {kind}, and only iterations that follow "
                f"each other can hand values on; store it at {axis}, or run that loop in sequence"
            )


def _check_output(state: State, stage: StageState, consumers: list[str]) -> None:
    """Check that an output attached at a loop is written completely, each element once."""
    place = stage.attach
    assert isinstance(place, At)
    target = state.stages[place.stage]
    why = ""
    readers = [
        s.name for s in state.stages.values() if any(name == stage.name for name, _ in s.reads)
    ]
    if isinstance(stage.op, Extern):
        why = "loops written by hand write all of it"
    elif consumers != [place.stage] or readers != [place.stage]:
        why = f"its only reader must be {place.stage} itself"
    elif target.attach != "root" and not target.is_output:
        why = f"{place.stage} is not computed whole"
    else:
        axes = {a.var: (n, a) for n, a in zip(target.roots, target.root_axes, strict=True)}
        used: set[str] = set()
        for body in target.compute.body:
            for node in post_order(body):
                if not isinstance(node, Load) or state.tensors[node.buffer][0] != stage.name:  # type: ignore[index]
                    continue
                names: list[str] = []
                for index, own in zip(node.indices, stage.compute.axis, strict=True):
                    name, axis = (
                        axes.get(index, ("", None)) if isinstance(index, Var) else ("", None)
                    )
                    if axis is None or axis.is_reduce or not same_dim(axis.extent, own.extent):
                        why = f"{place.stage} does not read it element by element ({node})"
                    names.append(name)
                if len(set(names)) != len(names):
                    why = f"{place.stage} reads only a diagonal of it ({node})"
                used.update(names)
        origins = target.origins()
        for outer in target.leaves[: target.leaves.index(place.axis) + 1]:
            if not why and not origins[outer] <= used:
                why = f"the enclosing loop {outer} would write the same elements again"
    if why:
        raise ScheduleError(
            f"{stage.name} is an output and cannot be computed at {place}: {why}; compute it at "
            "the root, or "
            "cache_write it and attach the copy"
        )
