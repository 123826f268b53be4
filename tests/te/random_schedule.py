"""Random schedules: steps drawn one by one, legal or not; an illegal one must raise and change
nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith import te
from tilesmith.support.errors import ScheduleError

Draw = Callable[[Sequence[Any]], Any]
"""Picks one element."""


def random_steps(s: te.Schedule, draw: Draw, count: int) -> int:
    """Tries `count` random steps on `s`; returns how many were illegal."""
    refused = 0
    for _ in range(count):
        before = s.checkpoint()
        try:
            draw(_MOVES)(s, draw)
        except ScheduleError as e:
            assert str(e)
            assert s.checkpoint() == before, "an illegal step changed the schedule"
            refused += 1
    return refused


def pasted(s: te.Schedule) -> te.Schedule:
    """The schedule that the text of `s` makes when it is run as Python."""
    tree = ast.parse(s.text())
    assert all(isinstance(x, ast.Expr) and isinstance(x.value, ast.Call) for x in tree.body)
    made = te.create_schedule(s.ops)
    exec(compile(tree, "schedule", "exec"), {"s": made})
    return made


def _stage(s: te.Schedule, draw: Draw) -> te.Stage:
    return draw([x for x in s.stages if not x.state.is_placeholder])


def _axis(stage: te.Stage, draw: Draw) -> str:
    leaves = stage.state.leaves
    if not leaves:
        raise ScheduleError("no loops to choose from")
    return draw(leaves)


def _split(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    size = draw([1, 2, 3, 4, 5, 8])
    tail = draw(["peel", "peel", "peel", "guard", "roundup"])
    if draw([True, True, False]):
        stage.split(_axis(stage, draw), factor=size, tail=tail)
    else:
        stage.split(_axis(stage, draw), nparts=size, tail=tail)


def _fuse(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    leaves = stage.state.leaves
    if len(leaves) < 2:
        raise ScheduleError("nothing to fuse")
    first = draw(range(len(leaves) - 1))
    stage.fuse(*leaves[first : first + draw([2, 2, 3])])


def _skew(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    stage.skew(_axis(stage, draw), _axis(stage, draw), draw([0, 1, 3, 5, 6]), draw([1, 2, 4, 8]))


def _reorder(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    leaves = list(stage.state.leaves)
    chosen = []
    while leaves:
        chosen.append(leaves.pop(draw(range(len(leaves)))))
    stage.reorder(*chosen)


def _annotate(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    getattr(stage, draw(["vectorize", "unroll", "parallel", "serial"]))(_axis(stage, draw))


def _compute_at(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    readers = s.state.consumers()[stage.name]
    target = s[draw(readers)] if readers and draw([True, True, False]) else _stage(s, draw)
    stage.compute_at(target, _axis(target, draw))


def _store(s: te.Schedule, draw: Draw) -> None:
    attached = [x for x in s.stages if not isinstance(x.attach, str)]
    if not attached:
        _compute_at(s, draw)
        return
    stage = draw(attached)
    attach = stage.attach
    target = s.state.stages[attach.stage]
    if stage.state.store is not None and draw([True, False]):
        stage.fold_storage(draw(stage.state.roots), draw([1, 3, 5, 8]))
    elif target.attach == "root" and draw([True, True, False]):
        stage.store_root()
    else:
        stage.store_at(attach.stage, draw(target.leaves))


def _inline(s: te.Schedule, draw: Draw) -> None:
    _stage(s, draw).compute_inline()


def _root(s: te.Schedule, draw: Draw) -> None:
    _stage(s, draw).compute_root()


def _cache(s: te.Schedule, draw: Draw) -> None:
    if draw([True, False]):
        s.cache_write(draw(_stage(s, draw).op.outputs), draw(["heap", "stack"]))
    else:
        stage = draw(s.stages)
        readers = [r.name for r in s.stages if any(n == stage.name for n, _ in r.state.reads)]
        s.cache_read(stage.op.outputs[0], draw(["heap", "stack"]), readers[: draw([1, 1, 2])])


def _rfactor(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    s.rfactor(stage.op.outputs[0], _axis(stage, draw))


def _flatten(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    names = stage.state.roots
    first = draw(range(len(names)))
    s.flatten_axes(stage.op.outputs[0], *names[first : first + 2])


def _unflatten(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    s.unflatten_axis(stage.op.outputs[0], _axis(stage, draw), draw([1, 2, 3, 5]))


def _layout(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    rank = stage.op.outputs[0].rank
    order = list(range(rank))
    dims = [str(order.pop(draw(range(len(order))))) for _ in range(rank)]
    if dims and draw([True, False]):
        block = draw([2, 3, 4])
        dims.append(f"{dims[0]}%{block}")
        dims[0] = f"{dims[0]}/{block}"
    if not stage.state.is_output:  # outputs and arguments keep their shape for the comparison
        s.transform_layout(stage.op.outputs[0], " ".join(dims))


def _memory(s: te.Schedule, draw: Draw) -> None:
    stage = _stage(s, draw)
    choice = draw(["align", "double", "scope", "prefetch"])
    if choice == "align":
        stage.storage_align(_axis(stage, draw), draw([4, 8]), draw([0, 1]))
    elif choice == "double":
        stage.double_buffer()
    elif choice == "scope":
        stage.set_scope(draw(["heap", "stack", "stack", "register"]))
    else:
        source = draw(stage.state.reads)[0]
        over = _axis(stage, draw) if draw([True, False]) else None
        stage.prefetch(
            s.state.stages[source].op.outputs[0], _axis(stage, draw), draw([0, 1, 2]), over
        )


_MOVES: list[Callable[[te.Schedule, Draw], None]] = [
    _split, _split, _split, _fuse, _fuse, _skew, _reorder, _reorder, _annotate, _annotate,
    _compute_at, _compute_at, _compute_at, _compute_at, _store, _store, _inline, _root,
    _cache, _rfactor, _flatten, _unflatten, _layout, _memory,
]  # fmt: skip
