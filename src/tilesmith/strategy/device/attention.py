"""Attention in one launch: a block for each head and tile of rows.

    for head, rows in blocks:                            # 16 rows, 8 x 16 threads
        logits[16, keys] = q * k, scaled and masked      # shared; q and k are fetched in steps
        most[16], total[16] = max, sum of exp            # shared; 8 threads for a row
        for step of 32 keys:
            p[16, 32] = exp(logits - most) / total       # shared
            values[32, width] = v                        # shared
            own += p * values                            # registers
        result = own

The whole row of logits lies in shared memory, so no logits are in global memory.  Rows that are
longer than shared memory holds take the rules for products and for rows, one launch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations

from tilesmith.ir.expr import same
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.loop_tables import BLOCKS, THREADS
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim, same_shape
from tilesmith.ops.structure import loads, product_of_loads
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis, Stage
from tilesmith.te.tensor import Compute, Extern, Tensor

from .blocks import fused
from .tensor_tiles import LOADING, tensor_tile

HEIGHTS = (16, 8)
"""Threads of a block along rows."""
X = 8
"""Threads along keys, or along the width.  Those of a wave read 8 rows of keys, `KEYS` apart, and 4
rows of queries: no two of them lie in one bank, if rows are one element longer than a step.
"""
ROWS = (4, 2, 1)
"""Rows of a thread."""
KEYS = 4
"""Keys of a thread at a time."""
STEPS = (32, 16)
"""Terms of a sum whose operands lie in shared memory at a time."""
ROW = 32
"""Rows of logits are `X` elements longer than a multiple of this.  What a wave reduces of 4 rows
then lies in different banks.
"""
RESULTS = 64
"""Most results of a thread: they stay in registers."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Stages of an attention, by name.

    scores: the first product.
    logits: what the rows' reductions read: the scores, or what is computed of each of them.
    rows: the reductions of rows, producers first.
    values: the second product.
    out: the result: the second product, or what is computed of each of its elements.
    row: the axis along which rows are counted, by number.
    threads: of a block, along rows.
    height: rows of a block.
    step: terms of a sum whose operands lie in shared memory at a time.
    """

    scores: str
    logits: str
    rows: tuple[str, ...]
    values: str
    out: str
    row: int
    threads: int
    height: int
    step: int


def attention_of(s: Schedule, target: Target) -> Attention | None:
    """The attention that a schedule without steps computes; None if it is another expression, rows
    are too long for shared memory, or matrix instructions compute its products.
    """
    if any(isinstance(x.op, Extern) or x.state.recurrence for x in s.stages):
        return None
    ops = {x.name: x.state.compute for x in s.stages if not x.state.is_placeholder}
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
    if values not in after or not rows or sums != {*products, *rows}:
        return None
    if not _fit(ops[scores], ops[values]) or any(len(ops[n].reduce_axis) > 1 for n in rows):
        return None
    results = {ops[n].outputs[0] for n in behind}
    if not all(_is_at_place(ops[n], results, ops[values]) for n in behind - {values}):
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
    made = [
        Attention(scores, logits, rows, values, outputs[0], row, y, y * n, step)
        for step, y, n in combinations(STEPS, HEIGHTS, ROWS)
    ]
    return _fastest(made, ops, target)


def _are_known(ops: Iterable[Compute]) -> bool:
    return all(isinstance(x.extent, int) for op in ops for x in (*op.axis, *op.reduce_axis))


def _after(readers: Mapping[str, Sequence[str]], name: str) -> set[str]:
    """The stages that depend on a stage."""
    found: set[str] = set()
    pending = [*readers[name]]
    while pending:
        reader = pending.pop()
        if reader not in found:
            found.add(reader)
            pending += readers[reader]
    return found


def _fit(scores: Compute, values: Compute) -> bool:
    """Whether the columns of the scores are the terms of the values' sums, at least one for each
    thread.
    """
    if len(scores.reduce_axis) != 1 or len(values.reduce_axis) != 1:
        return False
    if len(scores.axis) < 2 or len(values.axis) < 2:
        return False
    (keys,) = values.reduce_axis
    width = expected(values.axis[-1].extent)
    few = -(-width // X) * max(ROWS) <= RESULTS and expected(keys.extent) >= X
    rows = same_dim(scores.axis[-2].extent, values.axis[-2].extent)
    return rows and few and same_dim(scores.axis[-1].extent, keys.extent)


def _is_row(op: Compute, row: int, scores: Compute) -> bool:
    """Whether a reduction has a result for each row of the scores."""
    rows, keys = (scores.axis[n].extent for n in (row, row + 1))
    has_rows = same_dim(op.axis[row].extent, rows)
    return has_rows and same_dim(op.reduce_axis[0].extent, keys)


def _is_at_place(op: Compute, results: set[Tensor], values: Compute) -> bool:
    """Whether each element is computed of those of `results` at its place."""
    reads = (x for x in loads(op) if x.buffer in results)
    return same_shape(op.shape, values.shape) and all(
        same(x.indices, tuple(a.var for a in op.axis)) for x in reads
    )


def _fastest(
    made: Sequence[Attention], ops: Mapping[str, Compute], target: Target
) -> Attention | None:
    device = target.device
    assert device is not None
    *heads, length, _ = (a.extent for a in ops[made[0].values].axis)
    count, rows = expected_size(heads), expected(length)

    def cost(a: Attention) -> float:
        """Time in rows of a thread: of computing them, and of fetching keys and values."""
        blocks = count * -(-rows // a.height)
        return -(-blocks // device.units) * (a.height + LOADING) / a.threads

    def fits(a: Attention) -> bool:
        sides = device.block_x >= X and a.threads <= device.block_y
        threads = sides and X * a.threads <= device.block_threads
        return threads and a.height <= rows and _bytes(a, ops) <= device.shared_bytes

    fitting = (a for a in made if fits(a))
    return min(fitting, key=cost, default=None)


def _bytes(a: Attention, ops: Mapping[str, Compute]) -> int:
    """Most bytes of shared memory of a block."""
    scores, values = (product_of_loads(ops[n]) for n in (a.scores, a.values))
    assert scores is not None and values is not None
    logits, width = ops[a.logits], expected(ops[a.values].axis[-1].extent)
    row = expected(logits.axis[-1].extent) + ROW
    size = a.height * row * logits.outputs[0].dtype.bytes
    size += sum(a.height * (X + 1) * ops[n].outputs[0].dtype.bytes for n in a.rows)
    widest = max(x.dtype.bytes for x in (*scores, *values))
    return size + widest * ((a.step + 1) * (2 * a.height + X * KEYS) + a.step * width)


def schedule_attention(s: Schedule, a: Attention, target: Target) -> None:
    """Compute an attention in one launch."""
    kept = {a.scores, a.logits, *a.rows, a.values, a.out}
    for stage in s.stages:
        if not stage.state.is_placeholder and stage.name not in kept:
            stage.compute_inline()
    out, values = _accumulated(s, a.out, a.values)
    block, thread = _tile(out, a)
    values.compute_at(out, thread)
    _steps(s, values, a, -(-expected(out.axis[-1].extent) // X))
    for name in reversed(a.rows):  # what reads another one is attached first
        _reduce_row(s, name, a, out, block)
    logits, scores = _accumulated(s, a.logits, a.scores)
    logits.compute_at(out, block)
    logits.set_scope("shared")
    logits.storage_align(logits.axis[-2], ROW, X)
    *others, m, n = logits.axis
    y, m = logits.split(m, nparts=a.threads, tail="guard")
    no, n = logits.split(n, factor=X * KEYS, tail="guard")
    x, n = logits.split(n, nparts=X)
    logits.reorder(*others, no, y, x, m, n)
    _bind(logits, y, x)
    logits.unroll(m)
    logits.unroll(n)
    scores.compute_at(logits, x)
    _steps(s, scores, a, KEYS)


def _accumulated(s: Schedule, out: str, product: str) -> tuple[Stage, Stage]:
    """The stage `out`, and a product that it reads, in registers."""
    if out != product:
        s[product].set_scope("register")
        return s[out], s[product]
    own = s[s.cache_write(s[out].op.outputs[0], "register")]
    return s[out], own


def _tile(out: Stage, a: Attention) -> tuple[Axis, Axis]:
    """Bind the loops of the result: the one over blocks, and the innermost one over threads."""
    *others, m, n = out.axis
    block, m = out.split(m, factor=a.height, tail="guard")
    y, m = out.split(m, nparts=a.threads)
    x, n = out.split(n, nparts=X, tail="guard")
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


def _steps(s: Schedule, own: Stage, a: Attention, columns: int) -> None:
    """Fetch the operands of a product in registers for some terms of the sum at a time.

    columns: of a thread.  Threads read columns so far apart; if those are more than `KEYS`, the
        columns that they read together are neighbours in shared memory.
    """
    factors = product_of_loads(own.state.compute)
    assert factors is not None
    (terms,) = own.state.compute.reduce_axis
    tensors = [x.buffer for x in factors]
    along = [x.indices[-1] is terms.var for x in factors]
    operands = [s[s.cache_read(t, "shared", [own])] for t in tensors if isinstance(t, Tensor)]
    step = min(a.step, expected(terms.extent))
    outer, inner = own.split(own.reduce_axis[0], factor=step, tail="guard")
    own.reorder(outer, inner, *own.axis)
    for axis in own.axis:
        own.unroll(axis)
    for operand, is_row in zip(operands, along, strict=True):
        operand.compute_at(own, outer)
        if is_row and len(operand.axis) > 1:
            operand.storage_align(operand.axis[-2], step + 1 - step % 2)
        elif not is_row and columns > KEYS:
            last = len(operand.axis) - 1
            parts = LayoutDim(last, "inner", columns), LayoutDim(last, "outer", columns)
            layout = Layout((*map(LayoutDim, range(last)), *parts))
            s.transform_layout(operand.op.outputs[0], layout)
        rest = fused(operand, operand.axis)
        for size, index in ((X, THREADS[0]), (a.threads, THREADS[1])):
            rest, part = operand.split(rest, factor=size, tail="guard")
            operand.bind(part, index)


def _reduce_row(s: Schedule, name: str, a: Attention, out: Stage, block: Axis) -> None:
    """Let the threads along x share the terms of a row's reduction, and one of them add.  Each
    reduces in a register: other threads then read shared memory that is written once.
    """
    stage = s[name]
    _, part = stage.split(stage.reduce_axis[0], factor=X, tail="guard")
    partial = s[s.rfactor(stage.op.outputs[0], part)]
    for whole, first in ((stage, 0), (partial, 1)):
        own = s[s.cache_write(whole.op.outputs[0], "register")]
        axes = list(whole.axis)
        row, y = whole.split(axes[first + a.row], factor=a.threads, tail="guard")
        whole.bind(y, THREADS[1])
        if first:
            whole.bind(axes[0], THREADS[0])
        whole.reorder(row, y)
        whole.set_scope("shared")
        own.compute_at(whole, y)
    for whole in (stage, partial):
        whole.compute_at(out, block)
