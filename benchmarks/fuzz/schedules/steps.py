"""Random steps of a schedule, single ones and usual combinations.

A step may be illegal: then it must raise ScheduleError and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.loop_tables import LOOP_KINDS, Scope
from tilesmith.support.errors import ScheduleError
from tilesmith.te.relations import Tail

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 32, 64)
SCOPES = ("heap", "stack", "stack")
INDICES = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.x", "threadIdx.y")


class Unfit(Exception):
    """What was drawn needs what this schedule does not have."""


Move = Callable[[te.Schedule, Random], None]


def computed(s: te.Schedule) -> list[te.Stage]:
    """All stages with loops."""
    return [x for x in s.stages if not x.state.is_placeholder]


def _stage(s: te.Schedule, r: Random) -> te.Stage:
    return r.choice(computed(s))


def _axis(stage: te.Stage, r: Random) -> str:
    if not stage.state.leaves:
        raise Unfit
    return r.choice(stage.state.leaves)


def _inner(stage: te.Stage, r: Random) -> str:
    return stage.state.leaves[-1] if stage.state.leaves and r.random() < 0.7 else _axis(stage, r)


def _tail(s: te.Schedule, stage: te.Stage, r: Random) -> Tail:
    """What happens past the end; rarely what must be refused."""
    reads_argument = any(s.state.stages[n].is_placeholder for n, _ in stage.state.reads)
    if r.random() < (0.03 if stage.state.is_output or reads_argument else 0.3):
        return "roundup"
    return r.choice(("peel", "peel", "guard"))


def _scope(s: te.Schedule, r: Random) -> Scope:
    """A kind of memory; shared memory, and registers, seldom where they must be refused."""
    bound = any(LOOP_KINDS[k].level for x in s.stages for k in x.state.kinds.values())
    if r.random() < (0.4 if bound else 0.02):
        return "shared"
    return "register" if r.random() < 0.1 else r.choice(SCOPES)


def _reduced(stage: te.Stage) -> list[str]:
    names = stage.state.reduce_names()
    return [a for a in stage.state.leaves if a in names]


def _attached(s: te.Schedule) -> list[te.Stage]:
    return [x for x in s.stages if not isinstance(x.attach, str)]


def _split(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    size = {"factor" if r.random() < 0.75 else "nparts": r.choice(SIZES)}
    stage.split(_axis(stage, r), tail=_tail(s, stage, r), **size)


def _tile(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    leaves = stage.state.leaves
    if len(leaves) < 2:
        raise Unfit
    i = r.randrange(len(leaves) - 1)
    stage.tile(leaves[i], leaves[i + 1], r.choice(SIZES), r.choice(SIZES), tail=_tail(s, stage, r))


def _fuse(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    leaves = stage.state.leaves
    if len(leaves) < 2:
        raise Unfit
    i = r.randrange(len(leaves) - 1)
    stage.fuse(*leaves[i : i + r.choice([2, 2, 3, 4])])


def _fuse_all(s: te.Schedule, r: Random) -> None:
    """All spatial loops outside of all others, as one."""
    stage = _stage(s, r)
    reduced = _reduced(stage)
    spatial = [a for a in stage.state.leaves if a not in reduced]
    if len(spatial) < 2:
        raise Unfit
    stage.reorder(*spatial, *reduced)
    stage.fuse(*spatial)


def _skew(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.skew(_axis(stage, r), _axis(stage, r), r.choice([0, 1, 3, 5]), r.choice([1, 2, 4, 8]))


def _reorder(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    leaves = list(stage.state.leaves)
    r.shuffle(leaves)
    stage.reorder(*leaves[: r.choice([2, 3, 9])])


def _vectorize(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.vectorize(_inner(stage, r))


def _unroll(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.unroll(_inner(stage, r))


def _parallel(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.parallel(
        stage.state.leaves[0] if r.random() < 0.7 and stage.state.leaves else _axis(stage, r)
    )


def _serial(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.serial(_axis(stage, r))


def _bind(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.bind(_axis(stage, r), r.choice(INDICES), r.choice([1, 1, 1, 2, 4]))


def _threads(s: te.Schedule, r: Random) -> None:
    """All stages at the root as blocks of threads."""
    for stage in computed(s):
        spatial = [a for a in stage.state.leaves if a not in _reduced(stage)]
        if stage.attach != "root" or not spatial:
            continue
        try:
            outer, inner = stage.split(
                spatial[0], r.choice(SIZES), tail=r.choice(["peel", "guard"])
            )
            stage.bind(outer, "blockIdx.x")
            stage.bind(inner, "threadIdx.x")
        except ScheduleError:
            continue


def _compute_at(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    readers = s.state.consumers()[stage.name]
    target = s[r.choice(readers)] if readers and r.random() < 0.85 else _stage(s, r)
    stage.compute_at(target, _axis(target, r))


def _attach_all(s: te.Schedule, r: Random) -> None:
    """Each stage in a loop of a reader, readers first."""
    for stage in reversed(computed(s)):
        readers = s.state.consumers()[stage.name]
        leaves = s[r.choice(readers)].leaf_axes if readers else ()
        if leaves:
            axis = r.choice(leaves)
            try:
                stage.compute_at(axis.stage, axis)
            except ScheduleError:
                continue


def _compute_inline(s: te.Schedule, r: Random) -> None:
    _stage(s, r).compute_inline()


def _compute_root(s: te.Schedule, r: Random) -> None:
    _stage(s, r).compute_root()


def _store_at(s: te.Schedule, r: Random) -> None:
    attached = _attached(s)
    if not attached:
        return _compute_at(s, r)
    stage = r.choice(attached)
    target = s[stage.state.attach.stage]
    return stage.store_at(target, _axis(target, r))


def _store_root(s: te.Schedule, r: Random) -> None:
    attached = _attached(s)
    if not attached:
        return _compute_at(s, r)
    return r.choice(attached).store_root()


def _fold_storage(s: te.Schedule, r: Random) -> None:
    stored = [x for x in s.stages if x.state.store is not None and x.state.roots]
    if not stored:
        return r.choice([_store_at, _store_root])(s, r)
    stage = r.choice(stored)
    return stage.fold_storage(r.choice(stage.state.roots), r.choice([1, 2, 3, 5, 8]))


def _cache_write(s: te.Schedule, r: Random) -> None:
    s.cache_write(r.choice(_stage(s, r).op.outputs), _scope(s, r))


def _cache_read(s: te.Schedule, r: Random) -> None:
    stage = r.choice(s.stages)
    readers = [x.name for x in s.stages if any(n == stage.name for n, _ in x.state.reads)]
    if not readers:
        raise Unfit
    some = r.sample(readers, r.randint(1, len(readers)))
    s.cache_read(r.choice(stage.op.outputs), _scope(s, r), some)


def _rfactor(s: te.Schedule, r: Random) -> None:
    stages = [x for x in computed(s) if _reduced(x)]
    if not stages:
        raise Unfit
    stage = r.choice(stages)
    axis = r.choice(_reduced(stage))
    if r.random() < 0.6:
        size = {r.choice(["factor", "nparts"]): r.choice(SIZES[:8])}
        axis = str(r.choice(stage.split(axis, **size)))
    s.rfactor(stage.op.outputs[0], axis)


def _flatten_axes(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    names = stage.state.roots
    first = r.randrange(len(names)) if names else 0
    s.flatten_axes(stage.op.outputs[0], *names[first : first + 2])


def _unflatten_axis(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    s.unflatten_axis(stage.op.outputs[0], _axis(stage, r), r.choice([1, 2, 3, 5]))


def _transform_layout(s: te.Schedule, r: Random) -> None:
    stage = r.choice(s.stages)
    tensor = r.choice(stage.op.outputs)
    order = list(range(tensor.rank))
    r.shuffle(order)
    dims = [str(x) for x in order]
    if dims and r.random() < 0.6:
        block = r.choice([2, 3, 4, 8])
        dims.append(f"{dims[0]}%{block}")
        dims[0] = f"{dims[0]}/{block}"
    s.transform_layout(tensor, " ".join(dims))


def _set_scope(s: te.Schedule, r: Random) -> None:
    _stage(s, r).set_scope(_scope(s, r))


def _storage_align(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.storage_align(_axis(stage, r), r.choice([4, 8, 16]), r.choice([0, 1, 3]))


def _double_buffer(s: te.Schedule, r: Random) -> None:
    r.choice(_attached(s) or computed(s)).double_buffer()


def _pipeline(s: te.Schedule, r: Random) -> None:
    r.choice(_attached(s) or computed(s)).pipeline(r.choice([2, 2, 3, 4]))


def _pragma(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    stage.pragma(_axis(stage, r), "note", "x")


def _prefetch(s: te.Schedule, r: Random) -> None:
    stage = _stage(s, r)
    if not stage.state.reads:
        raise Unfit
    source, value = r.choice(stage.state.reads)
    tensor = s.state.stages[source].op.outputs[value]
    if not isinstance(stage.attach, str) and r.random() < 0.5:
        outer = s[stage.state.attach.stage]
        axis, parts = outer[_axis(outer, r)], r.choice([1, 2, 3])
        stage.prefetch(tensor, axis, r.choice([0, 1, 3]), _axis(stage, r), parts)
    else:
        over = _axis(stage, r) if r.random() < 0.5 else None
        stage.prefetch(tensor, _axis(stage, r), r.choice([0, 1, 2, 5]), over)


def _winograd(s: te.Schedule, r: Random) -> None:
    stages = [x for x in computed(s) if len(x.state.reduce_names()) == 3]
    if not stages:
        raise Unfit
    s.winograd(r.choice(stages).op.outputs[0], r.choice([2, 4]))


def _tensorize(s: te.Schedule, r: Random) -> None:
    """Loops as large as an instruction's tile, mostly of one that fits the element types."""
    stages = [x for x in computed(s) if _reduced(x) and len(_reduced(x)) < len(x.state.leaves)]
    if not stages:
        raise Unfit
    stage = r.choice(stages)
    read = {s.state.stages[n].op.outputs[v].dtype for n, v in stage.state.reads}
    known = [i for i in ts.tensor_intrinsics("native").values() if len(i.axes) in (1, 2)]
    fitting = [i for i in known if {o.dtype for o in i.operands} == read]
    intrinsic = r.choice(fitting if fitting and r.random() < 0.9 else known)
    if r.random() < 0.1:
        return stage.tensorize(_axis(stage, r), intrinsic)
    spatial = [a for a in stage.state.leaves if a not in _reduced(stage)]
    axes = [spatial[-1], *_reduced(stage)[-1:]][: len(intrinsic.axes)]
    sizes = zip(axes, intrinsic.extents, strict=True)
    tile = [str(stage.split(axis, extent)[1]) for axis, extent in sizes]
    stage.reorder(*[a for a in stage.state.leaves if a not in tile], *tile)
    return stage.tensorize(tile[0], intrinsic)


def _split_all(s: te.Schedule, r: Random) -> None:
    """A loop of each stage split, and the inner part vectorised or unrolled."""
    for stage in computed(s):
        if not stage.state.leaves:
            continue
        try:
            _, inner = stage.split(_inner(stage, r), r.choice(SIZES), tail=_tail(s, stage, r))
            r.choice([stage.vectorize, stage.unroll])(inner)
        except ScheduleError:
            continue


def _parallel_all(s: te.Schedule, r: Random) -> None:
    for stage in computed(s):
        if stage.state.leaves and stage.attach == "root":
            try:
                stage.parallel(stage.state.leaves[0])
            except ScheduleError:
                continue


MOVES: list[tuple[Move, int]] = [
    (_split, 5), (_tile, 3), (_fuse, 2), (_fuse_all, 1), (_skew, 1), (_reorder, 3), (_vectorize, 2),
    (_unroll, 2), (_parallel, 1), (_serial, 1), (_bind, 1), (_compute_at, 5), (_attach_all, 1),
    (_compute_inline, 2), (_compute_root, 1), (_store_at, 2), (_store_root, 2), (_fold_storage, 1),
    (_cache_write, 2), (_cache_read, 2), (_rfactor, 3), (_flatten_axes, 1), (_unflatten_axis, 1),
    (_transform_layout, 2), (_set_scope, 1), (_storage_align, 1), (_double_buffer, 1),
    (_pipeline, 1), (_pragma, 1), (_prefetch, 2), (_winograd, 1), (_tensorize, 2), (_split_all, 1),
    (_parallel_all, 1),
]  # fmt: skip


def random_steps(s: te.Schedule, r: Random) -> int:
    """Applies random steps; returns how many were refused."""
    moves, weights = zip(*MOVES, strict=True)
    if r.random() < 0.06:
        _threads(s, r)
    if r.random() < 0.1:
        with suppress(ScheduleError, Unfit):  # before other steps change the loops
            _tensorize(s, r)
    refused = 0
    for move in r.choices(moves, weights, k=r.choice([2, 4, 6, 8, 10, 12, 15, 20, 30])):
        before = s.checkpoint()
        try:
            move(s, r)
        except Unfit:
            s.restore(before)
        except ScheduleError:
            refused += 1
    return refused
