"""Attention in one launch: a block for each head and tile of rows.

    for head, rows in blocks:                            # 16 rows, 16 x 8 threads
        logits[16, keys] = q * k, scaled and masked      # shared; q and k are fetched in steps
        most[16], total[16] = max, sum of exp            # shared; 16 threads for a row
        for step of 32 keys:
            p[16, 32] = exp(logits - most) / total       # shared
            values[32, width] = v                        # shared
            own += p * values                            # registers
        result = own

Neighbouring threads have neighbouring rows, keys and columns: they access different banks of shared
memory, and load neighbours in global memory.

The whole row of logits is in shared memory, so no logits are in global memory.  Longer rows are
computed in chunks of keys (`streamed_attention`).  Then all of the above is inside a loop over
chunks, which combines their results in registers:

        for chunk of keys:
            logits, most, total, own = as above, of the chunk
            running = running combined with (most, total, own)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

from tilesmith.ir.expr import Expr, Var, same
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.loop_tables import BLOCKS, THREADS
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.structure import loads, product_of_loads
from tilesmith.perf.warps import BANKS
from tilesmith.strategy.cpu.attention_result import reading
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, Extern, Tensor

from .blocks import fused
from .tensor_tiles import LOADING, tensor_tile

SIDES = (8, 16), (4, 16), (16, 8), (8, 8)
"""Threads of a block (along rows, along keys or columns).  Strides of rows of logits are padded so
that neighbouring rows of 16 or 8 neighbours are in different banks.
"""
ROWS = (4, 2, 1)
"""Rows per thread."""
KEYS = 4
"""Keys per thread at a time."""
STEPS = (32, 16)
"""Terms of a sum whose operands are in shared memory at a time."""
STEP = 4
"""Fixed cost of fetching the operands of a step, in terms of the sum."""
RESULTS = 64
"""Upper bound on a thread's numbers for its results: they stay in registers."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of an attention, by name.

    scores: the first product.
    logits: the stage that the reductions of rows read: the scores, or a function of each score.
    rows: the reductions of rows, producers first.
    values: the second product.
    running: the combination of the results of all chunks; empty: there is one chunk.
    out: the result: the second product, or a function of each of its elements.  It may have its
        axes in another order, and several of them merged, as where heads are joined.
    row: number of the axis that counts rows.
    joined: whether rows, and whether columns, are merged with other axes of the result.
    """

    scores: str
    logits: str
    rows: tuple[str, ...]
    values: str
    running: str
    out: str
    row: int
    joined: tuple[bool, bool]

    @property
    def last(self) -> str:
        """The reduction that the result reads."""
        return self.running or self.values


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention with the sizes of its blocks.

    stages: the stages to schedule.
    threads: threads of a block along rows, and along keys or columns.
    height: rows per block.
    step: terms of a sum whose operands are in shared memory at a time.
    cost: time per key, relative to a thread's term of a sum.
    """

    stages: Stages
    threads: tuple[int, int]
    height: int
    step: int
    cost: float


def attention_of(s: Schedule, target: Target) -> Attention | None:
    """The attention that a schedule without steps computes.  None if it is another expression, if
    rows exceed shared memory, or if matrix instructions compute its products.
    """
    stages = attention_stages(s, target)
    if stages is None:
        return None
    ops = computes(s)
    return fastest(stages, ops, target, expected(ops[stages.logits].axis[-1].extent))


def computes(s: Schedule) -> dict[str, Compute]:
    """The expressions of a schedule, by the name of their stage."""
    return {x.name: x.state.compute for x in s.stages if not x.state.is_placeholder}


def attention_stages(s: Schedule, target: Target) -> Stages | None:
    """The stages of an attention of any length; None for another expression, and if matrix
    instructions compute one of the products.
    """
    if any(isinstance(x.op, Extern) or x.state.recurrence for x in s.stages):
        return None
    ops = computes(s)
    products = [n for n, op in ops.items() if product_of_loads(op)]
    outputs = [x.name for x in s.stages if x.state.is_output]
    if len(products) != 2 or len(outputs) != 1 or not _are_known(ops.values()):
        return None
    scores, values = products
    readers = s.state.consumers()
    after = _after(readers, scores)
    behind = {values} | _after(readers, values)
    rows = tuple(n for n in ops if n in after - behind and ops[n].reduce_axis)
    sums = {n for n, op in ops.items() if op.reduce_axis}
    running = sums & behind - {values}
    if values not in after or not rows or sums != {*products, *rows, *running}:
        return None
    if len(running) > 1 or any(len(ops[n].reduce_axis) > 1 for n in (*rows, *running)):
        return None
    last = next(iter(running), values)
    behind = {last} | _after(readers, last)
    of_chunks = {n for n in (*rows, values) if not behind.isdisjoint({*readers[n]} - {last})}
    if running and (of_chunks or not _is_combined(ops[last], ops[values])):
        return None
    read = reading(ops[outputs[0]], ops[last])
    if read is None or not _fit(ops[scores], ops[values]):
        return None
    if any(tensor_tile(ops[n], target) is not None for n in products):
        return None
    logits = scores
    while len(readers[logits]) == 1 and not ops[readers[logits][0]].reduce_axis:
        (logits,) = readers[logits]
    if logits in behind or not same_shape(ops[logits].shape, ops[scores].shape):
        return None
    row = len(ops[scores].axis) - 2
    if any(len(ops[n].axis) <= row or not _is_row(ops[n], row, ops[scores]) for n in rows):
        return None
    combined = "" if last == values else last
    joined = tuple(not isinstance(i, Var) for i in read[0][-2:])
    return Stages(scores, logits, rows, values, combined, outputs[0], row, (joined[0], joined[1]))


def _are_known(ops: Iterable[Compute]) -> bool:
    return all(isinstance(x.extent, int) for op in ops for x in (*op.axis, *op.reduce_axis))


def _after(readers: Mapping[str, Sequence[str]], name: str) -> set[str]:
    """The stages that depend on a stage."""
    downstream: set[str] = set()
    pending = [*readers[name]]
    while pending:
        reader = pending.pop()
        if reader not in downstream:
            downstream.add(reader)
            pending += readers[reader]
    return downstream


def _fit(scores: Compute, values: Compute) -> bool:
    """Whether the scores' columns are the terms of the values' sums, at least one per thread."""
    if len(scores.reduce_axis) != 1 or len(values.reduce_axis) != 1:
        return False
    if len(scores.axis) < 2 or len(values.axis) < 2:
        return False
    (keys,) = values.reduce_axis
    rows = same_dim(scores.axis[-2].extent, values.axis[-2].extent)
    same_keys = same_dim(scores.axis[-1].extent, keys.extent)
    return rows and same_keys and expected(keys.extent) >= min(x for _, x in SIDES)


def _is_row(op: Compute, row: int, scores: Compute) -> bool:
    """Whether a reduction has one result for each row of the scores."""
    rows, keys = (scores.axis[n].extent for n in (row, row + 1))
    has_rows = same_dim(op.axis[row].extent, rows)
    return has_rows and same_dim(op.reduce_axis[0].extent, keys)


def _is_combined(op: Compute, values: Compute) -> bool:
    """Whether a reduction combines the chunks of `values` for each of its rows and columns; chunks
    are the axis before rows.
    """
    chunk, (*others, m, n) = op.reduce_axis[0], op.axis
    expected_indices = tuple(a.var for a in (*others, chunk, m, n))
    reads = [x for x in loads(op) if x.buffer is values.outputs[0]]
    return len(reads) == 1 and same(reads[0].indices, expected_indices)


def fastest(
    found: Stages, ops: Mapping[str, Compute], target: Target, keys: int
) -> Attention | None:
    """The attention of least cost in chunks of `keys` keys; None if no block size fits."""
    device = target.device
    assert device is not None
    *heads, length, across = (a.extent for a in ops[found.last].axis)
    count, rows, width = expected_size(heads), expected(length), expected(across)
    is_whole = not found.running and keys >= expected(ops[found.logits].axis[-1].extent)
    # results of a chunk; otherwise also maximum, total and sum of all chunks
    numbers = 1 if is_whole else 4

    def made(step: int, threads: tuple[int, int], each: int) -> Attention:
        height = threads[0] * each
        rounds = -(-count * -(-rows // height) // device.units)
        cost = rounds * (height + LOADING) / prod(threads) * (step + STEP) / step
        return Attention(found, threads, height, step, cost)

    def fits(a: Attention) -> bool:
        y, x = a.threads
        threads = x <= device.block_x and y <= device.block_y and y * x <= device.block_threads
        few = a.height // y * -(-width // x) * numbers <= RESULTS
        pairs = zip(found.joined, (rows % a.height, width % x), strict=True)
        tiles = a.height <= rows and not any(rest for is_joined, rest in pairs if is_joined)
        return threads and few and tiles and _bytes(a, ops, keys) <= device.shared_bytes

    ways = (made(*way) for way in combinations(STEPS, SIDES, ROWS))
    return min(filter(fits, ways), key=lambda a: a.cost, default=None)


def _bytes(a: Attention, ops: Mapping[str, Compute], keys: int) -> int:
    """Upper bound on the bytes of shared memory per block."""
    stages = a.stages
    scores, values = (product_of_loads(ops[n]) for n in (stages.scores, stages.values))
    assert scores is not None and values is not None
    width, x = expected(ops[stages.values].axis[-1].extent), a.threads[1]
    row = keys + (x - keys) % BANKS
    size = a.height * row * ops[stages.logits].outputs[0].dtype.bytes
    size += sum(a.height * (x + 1) * ops[n].outputs[0].dtype.bytes for n in stages.rows)
    widest = max(e.dtype.bytes for e in (*scores, *values))
    return size + widest * ((a.step + 1) * (2 * a.height + x * KEYS) + a.step * width)


def schedule_attention(s: Schedule, a: Attention) -> None:
    """Compute an attention in one launch."""
    stages = a.stages
    kept = {stages.scores, stages.logits, *stages.rows, stages.values, stages.running, stages.out}
    for stage in s.stages:
        if not stage.state.is_placeholder and stage.name not in kept:
            stage.compute_inline()
    ops = computes(s)
    read = reading(ops[stages.out], ops[stages.last])
    assert read is not None
    out, last = _accumulated(s, stages.out, stages.last)
    block, thread = _tile(out, a, *read)
    last.compute_at(out, thread)
    if stages.running:
        values = s[stages.values]
        values.set_scope("register")
        _divide(s, last, a)
        place = last, last.reduce_axis[0]
        values.compute_at(*place)
        last.reorder(place[1], *last.axis)
        for axis in last.axis:
            last.unroll(axis)
    else:
        values, place = last, (out, block)
    _steps(s, values, a)
    for name in reversed(stages.rows):  # attach readers first
        _reduce_row(s, name, a, place)
    logits, scores = _accumulated(s, stages.logits, stages.scores)
    logits.compute_at(*place)
    logits.set_scope("shared")
    along_y, along_x = a.threads
    logits.storage_align(logits.axis[-2], BANKS, along_x)
    *others, m, n = logits.axis
    m, y = logits.split(m, factor=along_y, tail="guard")
    no, n = logits.split(n, factor=along_x * KEYS, tail="guard")
    n, x = logits.split(n, factor=along_x, tail="guard")
    logits.reorder(*others, no, y, x, m, n)
    _bind(logits, y, x)
    logits.unroll(m)
    logits.unroll(n)
    scores.compute_at(logits, x)
    _steps(s, scores, a)


def _accumulated(s: Schedule, out: str, product: str) -> tuple[Stage, Stage]:
    """The stage `out`, and a reduction that it reads, in registers."""
    if out != product:
        s[product].set_scope("register")
        return s[out], s[product]
    own = s[s.cache_write(s[out].op.outputs[0], "register")]
    return s[out], own


def _tile(
    out: Stage, a: Attention, indices: tuple[Expr, ...], split: Mapping[Var, int]
) -> tuple[Axis, Axis]:
    """Bind the loops of the result.  Returns the loop over blocks, and the innermost loop over
    threads.

    indices: where the result reads the sums.
    split: axes of the result that merge two axes of the sums, with the extent of the inner one.
    """
    loops: dict[Expr, Axis] = {}
    for axis, own in zip(out.axis, out.state.compute.axis, strict=True):
        size = split.get(own.var)
        if size is None:
            loops[own.var] = axis
        else:
            loops[own.var // size], loops[own.var % size] = out.split(axis, factor=size)
    m, n = (loops.pop(i) for i in indices[-2:])
    others = list(loops.values())
    block, m = out.split(m, factor=a.height, tail="guard")
    m, y = out.split(m, factor=a.threads[0])
    n, x = out.split(n, factor=a.threads[1], tail="guard")
    out.reorder(*others, block, y, x, m, n)
    if others:
        out.bind(fused(out, others), BLOCKS[1])
    out.bind(block, BLOCKS[0])
    _bind(out, y, x)
    out.unroll(m)
    out.unroll(n)
    return block, x


def _bind(stage: Stage, y: Axis, x: Axis) -> None:
    for axis, index in ((y, THREADS[1]), (x, THREADS[0])):
        stage.bind(axis, index)


def _divide(s: Schedule, own: Stage, a: Attention) -> None:
    """Divide rows and columns of a stage in registers among threads; each stores its own."""
    for axis, factor in zip(own.axis[-2:], a.threads, strict=True):
        s.unflatten_axis(own.op.outputs[0], axis, factor)


def _steps(s: Schedule, own: Stage, a: Attention) -> None:
    """Fetch operands of a product in registers to shared memory, some terms at a time."""
    factors = product_of_loads(own.state.compute)
    assert factors is not None
    (terms,) = own.state.compute.reduce_axis
    tensors = [x.buffer for x in factors]
    along = [x.indices[-1] is terms.var for x in factors]
    operands = [s[s.cache_read(t, "shared", [own])] for t in tensors if isinstance(t, Tensor)]
    _divide(s, own, a)
    step = min(a.step, expected(terms.extent))
    outer, inner = own.split(own.reduce_axis[0], factor=step, tail="guard")
    own.reorder(outer, inner, *own.axis)
    for axis in own.axis:
        own.unroll(axis)
    for operand, is_row in zip(operands, along, strict=True):
        operand.compute_at(own, outer)
        if is_row and len(operand.axis) > 1:
            operand.storage_align(operand.axis[-2], step + 1 - step % 2)
        rest = fused(operand, operand.axis)
        for size, index in zip(reversed(a.threads), THREADS[:2], strict=True):
            rest, part = operand.split(rest, factor=size, tail="guard")
            operand.bind(part, index)


def _reduce_row(s: Schedule, name: str, a: Attention, place: tuple[Stage, Axis]) -> None:
    """Let the threads along x share the terms of a row's reduction, and one of them add the partial
    results.  Each reduces in a register, so that shared memory is written only once.

    place: the loop inside which the row is complete.
    """
    stage, (along_y, along_x) = s[name], a.threads
    _, part = stage.split(stage.reduce_axis[0], factor=along_x, tail="guard")
    partial = s[s.rfactor(stage.op.outputs[0], part)]
    for whole, first in ((stage, 0), (partial, 1)):
        own = s[s.cache_write(whole.op.outputs[0], "register")]
        axes = list(whole.axis)
        if first:  # partial results of a row are contiguous
            order = (*range(1, len(axes)), 0)
            s.transform_layout(whole.op.outputs[0], Layout(tuple(map(LayoutDim, order))))
        row, y = whole.split(axes[first + a.stages.row], factor=along_y, tail="guard")
        whole.bind(y, THREADS[1])
        if first:
            whole.bind(axes[0], THREADS[0])
        whole.reorder(row, y)
        whole.set_scope("shared")
        own.compute_at(whole, y)
    for whole in (stage, partial):
        whole.compute_at(*place)
