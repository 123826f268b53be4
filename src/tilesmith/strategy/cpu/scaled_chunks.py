"""Contractions whose partial sums are scaled: weights of few bits that are decoded in registers.

    y[m, n] = sum over c of f(partial[m, n, c], ...)     partial[m, n, c] = sum of x * w

`w` is decoded from packed words once for each tile of rows.  Decoding takes as many instructions as
one or two multiplications, so storing the decoded `w` would gain nothing.

    scaled x, sums of x: computed first, whole
    parallel over column blocks, outer rows
      total[rows, columns] on the stack
      for c:
        partial[rows, columns] in registers
        for words: for parts of a word, unrolled: partial += x (broadcast) * w (vectors)
        total += scale * partial
      epilogue

One row needs a wide tile, whose accumulators hide the latency of multiply-adds.  Many rows need a
narrow tile, in which several rows use each decoded vector.  Blocks of `BLOCK_VECTORS` suit both, so
one copy of the weights serves any number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.choices import Choose, preferred
from tilesmith.ir import extents
from tilesmith.ir.expr import Var, same
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.symbols import expected, expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim
from tilesmith.ops.structure import loads, product_of_loads
from tilesmith.perf.cost import constants_place
from tilesmith.perf.cycles import Instructions, dram_rate
from tilesmith.strategy.group import Group, group_tensors
from tilesmith.strategy.versions import Versions
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, Placeholder, Tensor

from .contraction import Contraction, analyse
from .injective import share_and_vectorize
from .operands import inline_chain
from .product import Product
from .reduction import in_vectors

BLOCK_VECTORS = 8
"""Vectors in a column block: as many as one row needs to hide the latency of multiply-adds."""

MOST_ROWS = 4
"""Upper bound on the rows of a tile.  In a tile with this many rows, decoding takes half as many
instructions as multiplying, and uses other ports.
"""


DECODING = 2
"""Instructions that decode a vector of weights: a mask and a conversion."""

TOGETHER = 2
"""Vectors of words that are decoded together.  Sums occupy the other registers."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaledChunks:
    """A contraction in chunks.

    total: the sum over chunks.
    partial: the sum inside a chunk.  Its axes are the axes of `total` and the chunk.
    c: the roles of the axes in `partial`.
    """

    total: Compute
    partial: Compute
    c: Contraction


def scaled_chunks(stages: Iterable[Compute]) -> ScaledChunks | None:
    """The contraction in chunks among `stages`, if there is one."""
    contractions: list[ScaledChunks] = []
    for total in stages:
        if len(total.reduce_axis) != 1 or len(total.body) != 1:
            continue
        wanted = [*(a.var for a in total.axis), total.reduce_axis[0].var]
        for load in loads(total):
            partial = load.buffer.op if isinstance(load.buffer, Tensor) else None
            if not isinstance(partial, Compute) or not same(load.indices, wanted):
                continue
            if product_of_loads(partial) is None or len(partial.axis) < 2:
                continue
            c = analyse(partial, frozenset(), partial.axis[-2])
            if c is not None and isinstance(c.w.buffer, Tensor) and _is_computed(c.w.buffer):
                contractions.append(ScaledChunks(total, partial, c))
    return contractions[0] if len(contractions) == 1 else None


def _is_computed(w: Tensor) -> bool:
    """Whether `w` is decoded from one packed tensor."""
    return isinstance(w.op, Compute) and all(isinstance(t.op, Placeholder) for t in w.op.inputs)


def packed_block(target: Target) -> int:
    """Columns of a block of packed words."""
    return BLOCK_VECTORS * target.vector_lanes(4)


def blocked_operands(found: ScaledChunks, target: Target) -> dict[Tensor, Layout]:
    """The layouts, in column blocks, of the tensors that are read along the columns."""
    column = found.total.axis[-1].var
    assert isinstance(found.c.w.buffer, Tensor)
    decoded = found.c.w.buffer.op
    assert isinstance(decoded, Compute)
    block, layouts = packed_block(target), {}
    for stage, var in ((found.total, column), (decoded, decoded.axis[-1].var)):
        for load in loads(stage):
            t = load.buffer
            if isinstance(t, Tensor) and isinstance(t.op, Placeholder) and load.indices[-1] is var:
                last = t.rank - 1
                dims = (LayoutDim(last, "outer", block), *map(LayoutDim, range(last)))
                layouts[t] = Layout((*dims, LayoutDim(last, "inner", block)))
    return layouts


def schedule_scaled_chunks(
    s: Schedule, group: Group, target: Target, cfg: Config = ANALYTIC
) -> bool:
    """Schedule the whole group around a contraction in chunks.

    Returns False without adding steps, if there is none.
    """
    contraction = scaled_chunks(group.stages)
    out = group.outputs[0].op
    if contraction is None or len(group.outputs) != 1 or not isinstance(out, Compute):
        return False
    total, partial, c = contraction.total, contraction.partial, contraction.c
    if len(out.axis) != len(total.axis) or not group.layout(group.outputs[0]).is_row_major:
        return False
    rows = _row_axis(total)
    run = () if rows is None else (partial.axis[rows],)
    whole = Product(group, replace(c, batch=()), total, run, target)
    epilogue = whole.epilogue
    before = [st for st in group.stages if st not in epilogue and st not in (total, partial, out)]
    whole.inline(s, epilogue)
    assert isinstance(c.w.buffer, Tensor) and isinstance(c.w.buffer.op, Compute)
    inline_chain(s, c.w.buffer.op)
    for stage in before:
        if stage is not c.w.buffer.op:
            _store(s, stage, target)

    lanes, columns, count = target.vector_lanes(4), whole.columns, whole.rows
    height, vectors = tile_of(count, target)
    height = cfg.choice("rows", lambda: range(1, min(count, MOST_ROWS) + 1), height)
    vectors = cfg.choice("vectors", (1, 2, 4, 8), vectors)
    width = min(vectors * lanes, -(-columns // lanes) * lanes)

    acc = whole.accumulator(s, "stack")
    o = s[whole.result]
    level, _ = whole.tile(s, width, height, cfg)
    in_vectors(o, o.leaf_axes[-1], width, lanes)

    t = s[acc]
    t.compute_at(o, level)
    (chunk,) = t.reduce_axis
    *others, column = t.axis
    single = [x for i, x in enumerate(others) if i not in whole.row_at]
    spatial = [others[i] for i in whole.row_at]
    t.reorder(*single, chunk, *spatial, column)
    for x in spatial:
        t.unroll(x)
    in_vectors(t, column, width, lanes)

    p = s[partial.outputs[0]]
    p.set_scope("register")
    p.compute_at(t, chunk)
    *others, column, own = p.axis
    single = [own, *(x for i, x in enumerate(others) if i not in whole.row_at)]
    spatial = [others[i] for i in whole.row_at]
    words, parts = p.reduce_axis
    together = cfg.choice("together", (1, 2, 4, 8), TOGETHER if count == 1 else 1)
    groups, column = p.split(column, factor=min(lanes * together, width))
    p.reorder(*single, words, groups, parts, *spatial, column)
    for x in (groups, parts, *spatial):
        p.unroll(x)
    in_vectors(p, column, min(lanes * together, width), lanes)
    return True


def tile_of(rows: int, target: Target) -> tuple[int, int]:
    """Rows, and vectors per row, of the register tile for a product with `rows` rows."""
    height = min(rows, MOST_ROWS)
    vectors = BLOCK_VECTORS
    while vectors > 1 and height * vectors > target.vector_registers // 2:
        vectors //= 2  # decoded numbers, words and elements of x need the other registers
    return height, vectors


def _row_axis(total: Compute) -> int | None:
    """Number of the longest axis before the last; None if all axes before the last have one
    element.
    """
    extents = [expected(a.extent) for a in total.axis[:-1]]
    longest = max(range(len(extents)), key=extents.__getitem__, default=None)
    fixed = longest is None or isinstance(total.axis[longest].extent, int)
    return None if fixed and (longest is None or extents[longest] == 1) else longest


def chunk_versions(body: Graph) -> Versions | None:
    """Versions for few rows and for whole tiles; None unless the number of rows is symbolic."""
    if not all(n.op.is_primitive() for n in body.nodes):
        return None
    contraction = scaled_chunks(group_tensors(body).stages)
    rows = None if contraction is None else _row_axis(contraction.total)
    if contraction is None or rows is None:
        return None
    extent = contraction.total.axis[rows].extent
    return Versions(extent, MOST_ROWS - 1) if isinstance(extent, Var) else None


def _store(s: Schedule, stage: Compute, target: Target) -> None:
    """Schedule a small stage that all column blocks read: it is computed first and stored."""
    tensor = stage.outputs[0]
    o, lanes = s[tensor], target.vector_lanes(4)
    if not stage.reduce_axis:
        sizes = [expected(a.extent) for a in stage.axis]
        share_and_vectorize(o, list(o.axis), sizes, tensor.dtype.bytes, target)
        return
    (along,) = o.reduce_axis
    if expected(along.extent) < 2 * lanes:
        return
    _, lane = o.split(along, factor=lanes)
    part = s[s.rfactor(tensor, lane)]
    part.set_scope("register")
    part.compute_at(o, o.axis[-1])
    first, *kept = part.axis
    part.reorder(*kept, *part.reduce_axis, first)
    part.vectorize(first)
    (last,) = o.reduce_axis
    o.vectorize(last)


def packing_choice(target: Target, choose: Choose = preferred) -> Callable[[Node, int], bool]:
    """The choice between weights packed in few bits and weights stored as floats.

    A product takes as long as its multiply-adds or as reading its weights, whichever is longer.
    Packed weights are also decoded, once for each tile of rows.  If the number of rows is symbolic,
    its minimum and its expected value both count, although only kernels with packed weights have a
    version for each (`chunk_versions`).
    """

    def choice(node: Node, bits: int) -> bool:
        x, w = node.inputs
        size = expected_size(w.shape)
        is_near = constants_place(size * x.dtype.bytes, target) in ("l1", "l2")
        if is_near and all(isinstance(d, int) for d in x.shape):
            return choose("packed", (node,), (False, True), False)
        gain = 1.0
        for rows in {expected_size(x.shape[:-1]), _fewest(x.shape[:-1])}:
            packed = _cycles(rows, size, bits / 8, True, target)
            gain *= _cycles(rows, size, x.dtype.bytes, False, target) / packed
        return choose("packed", (node,), (False, True), gain > 1)

    return choice


def _fewest(dims: Iterable[Dim]) -> int:
    """The least number of rows that `dims` allow."""
    sizes = (max(extents.values_of(d).lo or 1, 1) for d in dims)
    return math.prod(sizes)


def _cycles(rows: int, weights: int, each: float, is_packed: bool, target: Target) -> float:
    """Cycles of one core for a product with `weights` weights of `each` bytes."""
    vectors = weights / target.vector_lanes(4) / target.threads
    decoded = DECODING * -(-rows // tile_of(rows, target)[0]) * is_packed
    compute = vectors * Instructions(fma=rows, alu=decoded).cycles(target.model)
    memory = weights * each / target.threads / dram_rate(target)
    return max(compute, memory)
