"""Prefetching for accesses that are not sequential, and the choice to compute read positions once.

Hardware prefetchers follow sequential reads.  They foresee neither data-dependent indices nor rows
that are read backwards.  Such rows are prefetched a little ahead.  If elements of a row are read in
any order, the whole row is prefetched sequentially while the row before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from tilesmith.ir.expr import Expr, Load, Var, free_vars, post_order, reads_memory, same, vars_of
from tilesmith.ir.layout import Layout
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.strategy.access import known_strides, places
from tilesmith.strategy.group import Group
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Tensor

_MANY_ROWS = 16


def is_used_again(group: Group, op: Compute) -> bool:
    """Whether to compute `op` once and store it.  This is faster if a reader of `op` uses its
    values as indices of a gather along the vectorised axis, and many rows of the reader use the
    same indices.
    """
    if op.reduce_axis or not any(isinstance(n, Load) for b in op.body for n in post_order(b)):
        return False
    for reader in group.consumers(op):
        axes = {a.var: a.extent for a in reader.axis}
        number = group.innermost(reader)
        if number is None:
            continue
        inner = reader.axis[number]
        for indices in _as_index(reader, op.outputs[0]):
            along = vars_of(indices)
            rows = [n for v, n in axes.items() if v not in along]
            if inner.var in along and all(isinstance(n, int) for n in rows):
                return math.prod(rows) >= _MANY_ROWS  # type: ignore[arg-type]  # numbers
    return False


def _as_index(reader: Compute, tensor: Tensor) -> Iterator[tuple[Expr, ...]]:
    """The indices at which `reader` loads from `tensor` to index another tensor."""
    taken = (n for b in reader.body for n in post_order(b) if isinstance(n, Load))
    for index in (i for load in taken for i in load.indices):
        for n in post_order(index):
            if isinstance(n, Load) and n.buffer is tensor:
                yield n.indices


def prefetch_taken(
    s: Schedule, group: Group, op: Compute, target: Target, keep: Iterable[Compute] = ()
) -> None:
    """Add prefetches to the scheduled root stage `op`, whose innermost loop is vectorised.

    The prefetched tensors are read backwards or at indices from memory.  Tensors that stay in the
    cache are not prefetched.
    """
    stage = s[op.outputs[0]]
    leaves = stage.leaf_axes
    loops = [n for n, a in enumerate(leaves) if not LOOP_KINDS[stage.kind(a)].is_expanded]
    extents = [a.extent for a in leaves if isinstance(a.extent, int)]
    if not loops or len(extents) < len(leaves):
        return
    outer = leaves[loops[-2]] if len(loops) > 1 else None
    inner = leaves[loops[-1]]
    number = group.innermost(op)
    if number is None:
        return
    along = op.axis[number].var
    row = math.prod(extents[loops[-1] :])
    reads = places(op, keep)[:-1]
    for tensor, indices in reads:
        alone = sum(t is tensor for t, _ in reads) == 1
        if alone and tensor in set(group.inputs) and tensor not in group.layouts:
            distance = _distance(tensor, indices, along, row, target)
            if not distance:
                continue
            if outer is not None and row * tensor.dtype.bytes <= target.model.l1_bytes // 2:
                stage.prefetch(tensor, outer, distance, over=inner)
            elif not _by_index(indices):  # the row is too long to be prefetched as a whole
                vector = math.prod(extents[loops[-1] + 1 :])
                taken = vector * tensor.dtype.bytes
                stage.prefetch(tensor, inner, -(-target.model.bytes_in_flight // taken))


def _distance(
    tensor: Tensor, indices: tuple[Expr, ...], inner: Var, row: int, target: Target
) -> int:
    """Prefetch distance of a row in iterations; 0: the row is not prefetched.

    inner: the vectorised axis.
    row: elements that one iteration of the surrounding loop reads.
    """
    by_index = _by_index(indices)
    if not all(isinstance(n, int) for n in tensor.shape):
        return 0
    size = tensor.dtype.bytes
    if math.prod(tensor.shape) * size < target.model.l2_bytes:  # type: ignore[arg-type]  # numbers
        return 0
    last = int(tensor.shape[-1])  # type: ignore[arg-type]  # a number, for no scalar is so large
    along = [i for i in indices if inner in free_vars(i)]
    # Readers access the elements of a row in any order.
    if same(along, by_index) and same(along, [indices[-1]]):
        most_of_it = row >= last * size // LINE_BYTES
        return 1 if most_of_it and last * size <= target.model.l1_bytes // 2 else 0
    steps = known_strides(tensor, indices, Layout.row_major(tensor.rank))
    backwards = any(k is not None and k < 0 for k in steps.values())
    rows = (1,) if by_index else (1, -1) if backwards else ()
    return -(-target.model.bytes_in_flight // (row * size)) if steps.get(inner) in rows else 0


def _by_index(indices: tuple[Expr, ...]) -> list[Expr]:
    """The `indices` that are loaded from memory."""
    return [i for i in indices if reads_memory(i)]
