"""Schedules for any expression on a device.

A stage without a reduction is inlined, unless it is costly and read more than once.  Every other
stage is a separate launch that stores its result in memory.  Rules for products (`tiles`) or rows
(`rows`) may instead compute the stage together with its reader.  One thread runs recurrences and
loops that a user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from tilesmith.ir.expr import same
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.structure import is_costly, stages
from tilesmith.strategy.sketch.structure import StageBody, bodies
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.stage import Stage
from tilesmith.te.tensor import Compute, Extern, Placeholder, Tensor

from .attention import attention_of, schedule_attention
from .blocks import bind_elements, block_size
from .columns import is_by_columns, schedule_columns
from .rows import (
    has_few_elements,
    is_combined,
    rows_of,
    schedule_rows,
    share_terms,
    shares_terms,
)
from .split_sums import divide_sum, parts_of_elements
from .tensor_tiles import schedule_tensor_tiles, tensor_tile
from .tiles import Product, product_of, product_parts, schedule_product

AGAIN = 2
"""Upper bound on evaluations per element of an inlined costly stage; with more, it is stored."""


def default_schedule(args: Sequence[Tensor], target: Target, bound: float) -> Schedule:
    """The schedule of an expression that the rules choose by default.

    Raises UsageError if nothing is computed.
    """
    outputs = tuple(a for a in args if not isinstance(a.op, Placeholder))
    if not outputs:
        raise UsageError("none of the arguments is an output: give the computed tensors, too")
    s = create_schedule([t.op for t in outputs])
    axes = [a for op in stages(outputs) for a in (*op.axis, *op.reduce_axis)]
    if not any(same_dim(a.extent, 0) for a in axes):
        schedule_expression(s, target)
    return s


def schedule_expression(s: Schedule, target: Target, cfg: Config = ANALYTIC) -> None:
    """Schedule a whole expression.  `s` has no steps except the layouts of parameters.

    Knobs of a stage after the first are called `N.…`, where N is the stage's number.
    """
    attention = attention_of(s, target)
    if attention is not None:
        schedule_attention(s, attention)
        return
    number = count()

    def own() -> Config:
        return cfg.under(str(n)) if (n := next(number)) else cfg

    alone = _run_by_one(s)
    inline_stages(s, alone)
    pending = {n: b for n, b in bodies(s).items() if n not in alone}
    done: set[str] = set()
    for name, body in pending.items():
        if not body.op.reduce_axis or _is_tiled(body, target):
            continue
        if parts_of_elements(body, target) > 1:
            continue
        out = _epilogue(pending, name, done)
        if is_by_columns(body, s[out], target):
            schedule_columns(s, name, out, target)
            done |= {name, out}
    for name, body in reversed(pending.items()):  # readers before their producers
        if body.op.reduce_axis or name in done:
            continue
        inside = (pending[n] for n in _read_in_row(s, pending, name) if n not in done)
        read = [r for r in inside if not _is_apart(r, target)]
        rows = rows_of(body, read, target) if read else None
        if rows:
            schedule_rows(s, name, rows, [r.name for r in read], target)
            done |= {name, *(r.name for r in read)}
    for name, body in pending.items():
        if name in done:
            continue
        product = product_of(name, body.op) if body.op.reduce_axis else None
        if product is not None and _is_tiled(body, target):
            out = _epilogue(pending, name, done)
            tile = tensor_tile(body.op, target)
            if tile is not None:
                schedule_tensor_tiles(s, tile, name, out, target)
            else:
                schedule_product(s, product, out, target, own())
            done |= {name, out}
    for name, body in pending.items():
        if name in done:
            continue
        parts = parts_of_elements(body, target) if body.op.reduce_axis else 1
        if parts > 1:
            out = _epilogue(pending, name, done)
            bind_elements(s[divide_sum(s, name, out, parts, target)], target)
            done |= {name, out}
        elif body.op.reduce_axis and shares_terms(body, target):
            _alone_in_rows(s, name, target)
        else:
            out = _epilogue(pending, name, done) if body.op.reduce_axis else name
            thread = bind_elements(s[out], target, own())
            if out != name and thread is not None:
                s[name].compute_at(s[out], thread)
                s[name].set_scope("register")
            done |= {name, out}


def schedule_elements(s: Schedule, target: Target) -> None:
    """Bind a thread to each element of each stored stage; threads of a block don't cooperate."""
    alone = _run_by_one(s)
    inline_stages(s, alone)
    for name in bodies(s):
        if name not in alone:
            bind_elements(s[name], target)


def _is_tiled(body: StageBody, target: Target) -> bool:
    """Whether a product is computed in tiles: it has enough elements, or blocks divide its sums."""
    product = product_of(body.name, body.op) if body.op.reduce_axis else None
    if product is None:
        return False
    by_rows = has_few_elements(body, target) and shares_terms(body, target)
    return not by_rows or _parts(product, body, target) > 1


def _parts(product: Product, body: StageBody, target: Target) -> int:
    """The number of parts into which blocks divide the sums of a product in tiles."""
    tile = tensor_tile(body.op, target)
    return tile.parts if tile is not None else product_parts(product, body.op, target)


def _is_apart(body: StageBody, target: Target) -> bool:
    """Whether a reduction is launched separately from its readers in rows."""
    if not body.op.reduce_axis:
        return False
    return _is_tiled(body, target) or parts_of_elements(body, target) > 1


def _run_by_one(s: Schedule) -> set[str]:
    """The stages that one thread runs: recurrences, and loops that a user wrote."""
    sequential: set[str] = set()
    for stage in s.stages:
        if isinstance(stage.op, Extern):
            sequential.add(stage.name)
        elif not stage.state.is_placeholder and stage.state.recurrence is not None:
            sequential |= {stage.name, *s.state.inside_scan(stage.name)}
    return sequential


def inline_stages(s: Schedule, alone: set[str]) -> None:
    """Inline stages that are cheap to recompute into their readers, except the stages `alone`."""
    readers = s.state.consumers()
    for stage in s.stages:
        if stage.state.is_placeholder or stage.name in alone:
            continue
        by = readers[stage.name]
        if not alone.intersection(by) and _is_inlined(stage, [s[r] for r in by]):
            stage.compute_inline()


def _is_inlined(stage: Stage, readers: Sequence[Stage]) -> bool:
    op = stage.state.compute
    if stage.state.is_output or op.reduce_axis:
        return False
    if not is_costly(op.body):
        return True
    needed = sum(_iterations(r.state.compute) for r in readers)
    return needed <= AGAIN * expected_size(a.extent for a in op.axis)


def _iterations(op: Compute) -> int:
    return expected_size(a.extent for a in (*op.axis, *op.reduce_axis))


def _readers(pending: Mapping[str, StageBody], name: str) -> list[StageBody]:
    return [b for b in pending.values() if any(x.source == name for x in b.reads)]


def _read_in_row(s: Schedule, pending: Mapping[str, StageBody], name: str) -> list[str]:
    """The stages whose only readers are `name` and other stages of this list.  They are reductions,
    or stages that compute a function of the results of reductions, such as a mean.
    """
    inside = {name}
    order: list[str] = []
    for other in reversed(list(pending)):
        body, by = pending[other], {b.name for b in _readers(pending, other)}
        if by and by <= inside and (body.op.reduce_axis or _is_of_results(s, pending, body)):
            inside.add(other)
            order.insert(0, other)
    return order


def _is_of_results(s: Schedule, pending: Mapping[str, StageBody], body: StageBody) -> bool:
    """Whether a stage without a reduction has no more elements than a reduction that it reads."""
    read = (pending[x.source] for x in body.reads if x.source in pending)
    return not s[body.name].state.is_output and any(
        r.op.reduce_axis and r.spatial >= body.spatial for r in read
    )


def _epilogue(pending: Mapping[str, StageBody], name: str, done: set[str]) -> str:
    """The stage in whose tiles a reduction is computed.  This is the reduction's only reader if it
    is elementwise; else the reduction itself.
    """
    op, readers = pending[name].op, _readers(pending, name)
    if len(readers) != 1 or readers[0].name in done or readers[0].op.reduce_axis:
        return name
    (reader,) = readers
    axes = tuple(a.var for a in reader.op.axis)
    at_place = all(same(x.load.indices, axes) for x in reader.reads if x.source == name)
    return reader.name if at_place and same_shape(reader.op.shape, op.shape) else name


def _alone_in_rows(s: Schedule, name: str, target: Target) -> None:
    """Bind a block to each element of a reduction that is computed without other stages."""
    stage = s[name]
    if not stage.axis:  # The stage has a single element, so each step of its sum is a launch.
        share_terms(s, name, block_size(target))
        return
    own = s[s.cache_write(stage.op.outputs[0], "register" if is_combined(stage) else "shared")]
    rows = frozenset(a.var for a in stage.state.compute.axis)
    schedule_rows(s, name, rows, [own.name], target)
