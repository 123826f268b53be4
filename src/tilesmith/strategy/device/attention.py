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

from collections.abc import Iterable, Mapping
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
from tilesmith.strategy.attention import Attention, attention_in
from tilesmith.strategy.cpu.attention_result import reading
from tilesmith.strategy.group import Group, accumulator, upstream
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, Extern, Tensor

from .blocks import fused
from .tensor_tiles import tensor_tile

SIDES = (8, 16), (4, 16), (16, 8), (8, 8)
"""Threads of a block (along rows, along keys or columns).  Row strides of the logits are padded:
accesses to 16 or 8 neighbours in neighbouring rows go to different banks.
"""
ROWS = (4, 2, 1)
"""Rows per thread."""
KEYS = 4
"""Keys that a thread computes together."""
STEPS = (32, 16)
"""Candidate sizes of a step: the terms of a sum whose operands shared memory holds together."""
STEP = 4
"""Fixed cost of fetching the operands of a step; the unit is the cost of one term of a sum."""
RESULTS = 64
"""Upper bound on the accumulators of a thread, so that they stay in registers."""


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """The stages of an attention that one launch computes.

    core: the products and the stages between them.
    running: the stage that combines the results of all chunks; None: there is one chunk.
    out: the result: the second product, or a function of each of its elements.  Axes may be
        reordered and merged, for instance to join heads.
    row: number of the axis that counts rows.
    joined: for rows and for columns, whether they are merged with other axes of the result.
    """

    core: Attention
    running: Compute | None
    out: Compute
    row: int
    joined: tuple[bool, bool]

    @property
    def last(self) -> Compute:
        """The reduction that the result reads."""
        return self.running or self.core.values

    @property
    def keys(self) -> int:
        """Number of keys."""
        return expected(self.core.logits.axis[-1].extent)


@dataclass(frozen=True, slots=True, eq=False)
class Blocking:
    """The blocks of an attention.

    stages: the stages to schedule.
    threads: threads of a block along rows, and along keys or columns.
    height: rows per block.
    step: number of terms of a sum whose operands are in shared memory together.
    cost: time per key; the unit is the time in which a thread adds one term of a sum.
    """

    stages: Stages
    threads: tuple[int, int]
    height: int
    step: int
    cost: float


def attention_of(s: Schedule, target: Target) -> Blocking | None:
    """The blocks for the attention that an empty schedule computes.  None for another expression,
    if rows exceed shared memory, or if matrix instructions compute its products.
    """
    computed = [x.state for x in s.stages if not x.state.is_placeholder]
    outputs = tuple(t for x in computed if x.is_output for t in x.compute.outputs)
    ops = tuple(x.compute for x in computed)
    stages = attention_stages(Group((), outputs, ops, {}), target)
    return None if stages is None else fastest(stages, target, stages.keys)


def attention_stages(group: Group, target: Target) -> Stages | None:
    """The stages of an attention of any length; None for another expression, and if matrix
    instructions compute one of the products.
    """
    if any(isinstance(op, Extern) or op.recurrence for op in group.stages):
        return None
    a, outputs = attention_in(group), {t.op for t in group.outputs}
    if a is None or len(outputs) != 1 or not _are_known(group.stages):
        return None
    (out,) = outputs
    running = tuple(op for op in a.epilogue if op.reduce_axis)
    sums = {op for op in group.stages if op.reduce_axis}
    if sums != {a.scores, a.values, *a.rows, *running} or not isinstance(out, Compute):
        return None
    if len(running) > 1 or any(len(op.reduce_axis) > 1 for op in (*a.rows, *running)):
        return None
    last = running[0] if running else a.values
    behind = {last, *(op for op in group.stages if last in upstream(op))}
    read_early = any(
        r is not last and r in behind for op in (*a.rows, a.values) for r in group.consumers(op)
    )
    if running and (read_early or not _is_combined(last, a.values)):
        return None
    read = reading(out, last)
    if read is None or not _fit(a.scores, a.values):
        return None
    if any(tensor_tile(op, target) is not None for op in (a.scores, a.values)):
        return None
    if not same_shape(a.logits.shape, a.scores.shape):
        return None
    row = len(a.scores.axis) - 2
    if any(len(op.axis) <= row or not _is_row(op, row, a.scores) for op in a.rows):
        return None
    joined = tuple(not isinstance(i, Var) for i in read[0][-2:])
    return Stages(a, running[0] if running else None, out, row, (joined[0], joined[1]))


def _are_known(ops: Iterable[Compute]) -> bool:
    return all(isinstance(x.extent, int) for op in ops for x in (*op.axis, *op.reduce_axis))


def _fit(scores: Compute, values: Compute) -> bool:
    """Whether the second product sums over the columns of the scores, one or more per thread."""
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
    """Whether a reduction combines the chunks of `values` for each of its rows and columns; the
    axis of chunks is just before that of rows.
    """
    chunk, (*others, m, n) = op.reduce_axis[0], op.axis
    expected_indices = tuple(a.var for a in (*others, chunk, m, n))
    reads = [x for x in loads(op) if x.buffer is values.outputs[0]]
    return len(reads) == 1 and same(reads[0].indices, expected_indices)


def fastest(stages: Stages, target: Target, keys: int) -> Blocking | None:
    """The blocks of least cost in chunks of `keys` keys; None if no block size fits."""
    device = target.device
    assert device is not None
    *heads, length, across = (a.extent for a in stages.last.axis)
    count, rows, width = expected_size(heads), expected(length), expected(across)
    is_whole = stages.running is None and keys >= stages.keys
    # Accumulators per element.  Several chunks also need the maximum, total and sum of all chunks.
    numbers = 1 if is_whole else 4

    def made(step: int, threads: tuple[int, int], each: int) -> Blocking:
        height = threads[0] * each
        rounds = device.rounds(count * -(-rows // height))
        cost = rounds * (height + device.load_fmas) / prod(threads) * (step + STEP) / step
        return Blocking(stages, threads, height, step, cost)

    def fits(b: Blocking) -> bool:
        y, x = b.threads
        threads = x <= device.block_x and y <= device.block_y and y * x <= device.block_threads
        few = b.height // y * -(-width // x) * numbers <= RESULTS
        pairs = zip(stages.joined, (rows % b.height, width % x), strict=True)
        tiles = b.height <= rows and not any(rest for is_joined, rest in pairs if is_joined)
        return threads and few and tiles and _bytes(b, keys) <= device.shared_bytes

    ways = (made(*way) for way in combinations(STEPS, SIDES, ROWS))
    return min(filter(fits, ways), key=lambda b: b.cost, default=None)


def _bytes(b: Blocking, keys: int) -> int:
    """Upper bound on the bytes of shared memory per block."""
    a = b.stages.core
    scores, values = (product_of_loads(op) for op in (a.scores, a.values))
    assert scores is not None and values is not None
    width, x = expected(a.values.axis[-1].extent), b.threads[1]
    row = keys + (x - keys) % BANKS
    size = b.height * row * a.logits.outputs[0].dtype.bytes
    size += sum(b.height * (x + 1) * op.outputs[0].dtype.bytes for op in a.rows)
    widest = max(e.dtype.bytes for e in (*scores, *values))
    return size + widest * ((b.step + 1) * (2 * b.height + x * KEYS) + b.step * width)


def schedule_attention(s: Schedule, b: Blocking) -> None:
    """Compute an attention in one launch."""
    stages, a = b.stages, b.stages.core
    kept = {a.scores, a.logits, *a.rows, a.values, stages.running, stages.out}
    inner = [x for x in s.stages if not x.state.is_placeholder and x.state.compute not in kept]
    for stage in inner:
        stage.compute_inline()
    read = reading(stages.out, stages.last)
    assert read is not None
    out = s[stages.out]
    last = accumulator(s, stages.last, stages.out, "register")
    block, thread = _tile(out, b, *read)
    last.compute_at(out, thread)
    if stages.running is not None:
        values = s[a.values]
        values.set_scope("register")
        _divide(s, last, b)
        place = last, last.reduce_axis[0]
        values.compute_at(*place)
        last.reorder(place[1], *last.axis)
        for axis in last.axis:
            last.unroll(axis)
    else:
        values, place = last, (out, block)
    _steps(s, values, b)
    for op in reversed(a.rows):  # attach readers first
        _reduce_row(s, s[op], b, place)
    logits = s[a.logits]
    scores = accumulator(s, a.scores, a.logits, "register")
    logits.compute_at(*place)
    logits.set_scope("shared")
    along_y, along_x = b.threads
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
    _steps(s, scores, b)


def _tile(
    out: Stage, b: Blocking, indices: tuple[Expr, ...], split: Mapping[Var, int]
) -> tuple[Axis, Axis]:
    """Bind the loops of the result.  Returns the loop over blocks, and the innermost loop over
    threads.

    indices: the indices at which the result reads the sums.
    split: axes of the result that merge two axes of the sums, each with the extent of the inner one
        of the two.
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
    block, m = out.split(m, factor=b.height, tail="guard")
    m, y = out.split(m, factor=b.threads[0])
    n, x = out.split(n, factor=b.threads[1], tail="guard")
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


def _divide(s: Schedule, own: Stage, b: Blocking) -> None:
    """Divide rows and columns of a stage among threads; each keeps its elements in registers."""
    for axis, factor in zip(own.axis[-2:], b.threads, strict=True):
        s.unflatten_axis(own.op.outputs[0], axis, factor)


def _steps(s: Schedule, own: Stage, b: Blocking) -> None:
    """Copy the operands of a product to shared memory, some terms of the sum at a time."""
    factors = product_of_loads(own.state.compute)
    assert factors is not None
    (terms,) = own.state.compute.reduce_axis
    tensors = [x.buffer for x in factors]
    along = [x.indices[-1] is terms.var for x in factors]
    operands = [s[s.cache_read(t, "shared", [own])] for t in tensors if isinstance(t, Tensor)]
    _divide(s, own, b)
    step = min(b.step, expected(terms.extent))
    outer, inner = own.split(own.reduce_axis[0], factor=step, tail="guard")
    own.reorder(outer, inner, *own.axis)
    for axis in own.axis:
        own.unroll(axis)
    for operand, is_row in zip(operands, along, strict=True):
        operand.compute_at(own, outer)
        if is_row and len(operand.axis) > 1:
            operand.storage_align(operand.axis[-2], step + 1 - step % 2)
        rest = fused(operand, operand.axis)
        for size, index in zip(reversed(b.threads), THREADS[:2], strict=True):
            rest, part = operand.split(rest, factor=size, tail="guard")
            operand.bind(part, index)


def _reduce_row(s: Schedule, stage: Stage, b: Blocking, place: tuple[Stage, Axis]) -> None:
    """Let the threads along x share the terms of a row's reduction, and one of them combine the
    partial results.  Each thread reduces in a register, so that it writes shared memory only once.

    place: the loop inside which the row is complete.
    """
    along_y, along_x = b.threads
    _, part = stage.split(stage.reduce_axis[0], factor=along_x, tail="guard")
    partial = s[s.rfactor(stage.op.outputs[0], part)]
    for whole, first in ((stage, 0), (partial, 1)):
        own = s[s.cache_write(whole.op.outputs[0], "register")]
        axes = list(whole.axis)
        if first:  # the partial results of a row are contiguous
            order = (*range(1, len(axes)), 0)
            s.transform_layout(whole.op.outputs[0], Layout(tuple(map(LayoutDim, order))))
        row, y = whole.split(axes[first + b.stages.row], factor=along_y, tail="guard")
        whole.bind(y, THREADS[1])
        if first:
            whole.bind(axes[0], THREADS[0])
        whole.reorder(row, y)
        whole.set_scope("shared")
        own.compute_at(whole, y)
    for whole in (stage, partial):
        whole.compute_at(*place)
