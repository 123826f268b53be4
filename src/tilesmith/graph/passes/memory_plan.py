"""Memory planning: one arena for all values between inputs and outputs.

Nodes run in order.  A value's live range extends from the node that defines it to the last one that
reads it.  Two values may share bytes if their live ranges do not overlap.  Inputs, outputs and
constants have separate memory.  A value that an `InPlace` node defines or joins is inside another
value's memory, and so is a result that a group writes over an operand.  (If it is a result of the
program, the operand is inside the result's memory instead.)  Such memory is alive as long as any
value in it.  A node may request workspace, which is alive only while the node runs.

Optimal placement is NP-hard (dynamic storage allocation).  Here blocks are placed in several
orders, each block into the best-fitting gap, and the smallest arena wins.  "Efficient Memory
Management for Deep Neural Net Inference" (Pisarchyk and Lee, 2020) explains why the order by
decreasing size does well.

If sizes are known at run time only, blocks are placed for the expected sizes.  This placement
decides which of two blocks with overlapping live ranges is below the other.  The offset of a block
is then a formula for all sizes: the highest end of the blocks below it.

A block of data-dependent size (`graph.measure`) takes the bytes of its upper bound, if this is
known earlier than the size.  Blocks without a bound are in separate regions, planned in the same
way.  A region is allocated as soon as its size is known: at the last stage on which the size
depends.  If control flow computes the size of its own result, the result has separate memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilesmith.graph.measure import Stage, stages_of
from tilesmith.graph.nodes import Fused, Graph, InPlace, Node, Value
from tilesmith.ir.expr import Expr, maximum
from tilesmith.ir.symbols import as_dim, expected
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import Dim, same_dim

from .memory_bounds import known_before


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Places of values in memory.  Offsets are in bytes, from the start of the arena or of a
    region.  They are multiples of `LINE_BYTES`, except for values inside other values.

    offsets: offset of each value.
    workspace: offset of each node's workspace.
    arena_bytes: size of the arena.
    lower_bound: the maximum of the bytes alive at one time, at expected sizes.  No arena can be
        smaller.
    outside: value inside an input, an output or a constant -> this outer value, and the byte offset
        in it.
    regions: stage at which a region is allocated -> its size.
    region: value outside the arena -> the stage of its region.
    grown: results of control flow that have separate memory.
    """

    offsets: dict[Value, Dim]
    workspace: dict[Node, Dim]
    arena_bytes: Dim
    lower_bound: int
    outside: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    regions: dict[Stage, Dim] = field(default_factory=dict)
    region: dict[Value | Node, Stage] = field(default_factory=dict)
    grown: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A block of memory, alive while nodes `first`..`last` run.

    bytes: number of bytes, a formula if it depends on symbols.
    size: number of bytes if all symbols have their expected sizes.
    """

    owner: Value | Node
    size: int
    first: int
    last: int
    bytes: Dim
    region: Stage | None = None

    def meets(self, other: _Block) -> bool:
        """Whether the live ranges of both blocks overlap."""
        return self.first <= other.last and other.first <= self.last


def plan(
    graph: Graph,
    extra_bytes: Mapping[Node, Dim] | None = None,
    before: Sequence[Stage] = (),
) -> MemoryPlan:
    """The memory plan of `graph`, whose nodes run one after the other.

    extra_bytes: workspace that a node needs while it runs.
    before: for the body of a loop, the stages at which its free symbols become known.
    """
    homes = homes_of(graph)
    blocks = _blocks(graph, extra_bytes or {}, homes, [*before, *stages_of(graph)])
    grown = [b for b in blocks if _finds_own_size(b)]
    blocks = [b for b in blocks if b not in grown]
    in_arena = [b for b in blocks if b.region is None]
    bound = _lower_bound(in_arena)
    size, placed = _placed(in_arena, bound)
    regions: dict[Stage, Dim] = {}
    for stage in dict.fromkeys(b.region for b in blocks if b.region is not None):
        own = [b for b in blocks if b.region == stage]
        regions[stage], offsets_there = _placed(own, _lower_bound(own))
        placed |= offsets_there
    region = {b.owner: b.region for b in blocks if b.region is not None}
    offsets = {b.owner: start for b, start in placed.items() if isinstance(b.owner, Value)}
    workspace = {b.owner: start for b, start in placed.items() if isinstance(b.owner, Node)}
    inside = {v: (home, start) for v, (home, start) in homes.items() if home not in offsets}
    region |= {v: region[home] for v, (home, _) in homes.items() if home in region}
    offsets |= {
        v: plus(offsets[home], start) for v, (home, start) in homes.items() if home in offsets
    }
    alone = tuple(b.owner for b in grown if isinstance(b.owner, Value))
    return MemoryPlan(offsets, workspace, size, bound, inside, regions, region, alone)


def _finds_own_size(block: _Block) -> bool:
    """Whether a block is a result of control flow that computes the result's size itself."""
    if block.region is None or block.region.is_inside or not isinstance(block.owner, Value):
        return False
    return block.owner in block.region.node.outputs


def _placed(blocks: Sequence[_Block], bound: int) -> tuple[Dim, dict[_Block, Dim]]:
    """The bytes of the memory for all `blocks`, and the offset of each block."""
    best: tuple[int, dict[_Block, int]] | None = None
    for order in _ORDERS:
        placed = _place(sorted(blocks, key=order))
        size = max((offset + b.size for b, offset in placed.items()), default=0)
        if best is None or size < best[0]:
            best = (size, placed)
        if size == bound:
            break
    assert best is not None
    return _for_all_sizes(best[1]) if _any_symbolic(blocks) else (best[0], {**best[1]})


def value_bytes(value: Value) -> Dim:
    """Bytes of `value` in memory, in its layout."""
    size: Dim = 1
    for n in factors(value):
        size = size * n
    return size


def factors(value: Value) -> list[Dim]:
    """Numbers whose product is the size of `value` in bytes, in its layout."""
    if value.dtype.is_host:
        return [value.dtype.bytes]  # bytes of one host object
    shape: Sequence[Dim] = value.shape
    if value.layout is not None:
        shape = value.layout.physical_shape(shape)  # type: ignore[arg-type]  # ints and Exprs mix
    return [value.dtype.bytes, *shape]


def aligned(size: Dim) -> Dim:
    """The next multiple of `LINE_BYTES`."""
    if isinstance(size, int):
        return -(-size // LINE_BYTES) * LINE_BYTES
    return as_dim((size + (LINE_BYTES - 1)) // LINE_BYTES * LINE_BYTES)


def _any_symbolic(blocks: Iterable[_Block]) -> bool:
    return not all(isinstance(b.bytes, int) for b in blocks)


def _for_all_sizes(placed: Mapping[_Block, int]) -> tuple[Dim, dict[_Block, Dim]]:
    """The size of the arena and the offset of each block, as formulas.

    A block starts at the highest end of the lower blocks whose live ranges overlap its own.  The
    formula leaves out a lower block that is below another lower block, since the other block ends
    higher.
    """
    order = sorted(placed, key=lambda b: (placed[b], placed[b] + b.size))
    below: dict[_Block, set[_Block]] = {}
    ends: dict[_Block, Dim] = {}
    offsets: dict[_Block, Dim] = {}
    for i, block in enumerate(order):
        under = [b for b in order[:i] if b.meets(block)]
        covered = set().union(*(below[b] for b in under)) if under else set()
        below[block] = covered.union(under)
        offsets[block] = largest([ends[b] for b in under if b not in covered])
        ends[block] = plus(offsets[block], block.bytes)
    covered = set().union(*below.values())
    return largest([end for b, end in ends.items() if b not in covered]), offsets


def plus(a: Dim, b: Dim) -> Dim:
    """The sum of two sizes.  The sum is not simplified, because it may contain maxima, and proofs
    about maxima take long.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int) and a == 0:
        return b
    return a if isinstance(b, int) and b == 0 else a + b


def largest(sizes: Sequence[Dim]) -> Dim:
    """The maximum of `sizes`; 0 if there are none."""
    highest: Dim = max((n for n in sizes if isinstance(n, int)), default=0)
    for n in dict.fromkeys(n for n in sizes if isinstance(n, Expr)):
        highest = n if isinstance(highest, int) and highest == 0 else maximum(highest, n)
    return highest


def homes_of(graph: Graph) -> dict[Value, tuple[Value, int]]:
    """Value inside the memory of another -> the outermost such value, and the byte offset in it."""
    inside: dict[Value, tuple[Value, int]] = {}
    inputs, results = {*graph.inputs}, {*graph.outputs}
    for node in graph.nodes:
        for out, operand in node.op.body.in_place if isinstance(node.op, Fused) else ():
            over, under = node.outputs[out], node.inputs[operand]
            if over not in results:
                inside[over] = under, 0
            elif under not in inputs:  # otherwise both values are in the caller's memory
                inside[under] = over, 0
        if isinstance(node.op, InPlace):
            parts, wholes = node.outputs, node.inputs
            if node.op.joins:
                parts, wholes = wholes, parts
            size = wholes[0].dtype.bytes
            inside |= {v: (wholes[0], element * size) for v, element in zip(parts, node.op.offsets)}
    homes: dict[Value, tuple[Value, int]] = {}
    for v in inside:
        home, offset = inside[v]
        while home in inside:
            home, further = inside[home]
            offset += further
        homes[v] = home, offset
    return homes


def _blocks(
    graph: Graph,
    extra_bytes: Mapping[Node, Dim],
    homes: Mapping[Value, tuple[Value, int]],
    stages: Sequence[Stage],
) -> list[_Block]:
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for i, node in enumerate(graph.nodes):
        for v in (*node.inputs, *node.outputs):
            home, _ = homes.get(v, (v, 0))
            first.setdefault(home, i)
            last[home] = i
    outside = {*graph.inputs, *graph.outputs, *graph.constant}
    blocks = []
    for i, node in enumerate(graph.nodes):
        own = (v for v in node.outputs if v not in outside and v not in homes)
        blocks.extend(_block(v, factors(v), first[v], last[v], stages) for v in own)
        if not same_dim(extra_bytes.get(node, 0), 0):
            blocks.append(_block(node, [extra_bytes[node]], i, i, stages))
    return blocks


def _block(
    owner: Value | Node, size_factors: Sequence[Dim], first: int, last: int, stages: Sequence[Stage]
) -> _Block:
    known = known_before(size_factors, stages)
    region = known if isinstance(known, Stage) else None
    size: Dim = 1
    for n in size_factors if isinstance(known, Stage) else (known,):
        size = size * n
    size = aligned(size)
    return _Block(owner, max(expected(size), 0), first, last, size, region)


def _lower_bound(blocks: Sequence[_Block]) -> int:
    change: dict[int, int] = {}
    for b in blocks:
        change[b.first] = change.get(b.first, 0) + b.size
        change[b.last + 1] = change.get(b.last + 1, 0) - b.size
    alive = most = 0
    for _, delta in sorted(change.items()):
        alive += delta
        most = max(most, alive)
    return most


_ORDERS: tuple[Callable[[_Block], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first, -b.last),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.size, -b.last),
    lambda b: (b.first - b.last, -b.size, b.first),
)


def _place(blocks: list[_Block]) -> dict[_Block, int]:
    """Block -> its offset.  The blocks are placed in order, each into the smallest gap that is
    large enough.
    """
    placed: dict[_Block, int] = {}
    by_offset: list[tuple[int, _Block]] = []  # sorted by offset
    for b in blocks:
        best_at, best_gap, end = -1, -1, 0
        for offset, other in by_offset:
            if other.last < b.first or b.last < other.first:
                continue
            gap = offset - end
            if gap >= b.size and (best_at < 0 or gap < best_gap):
                best_at, best_gap = end, gap
            end = max(end, offset + other.size)
        offset = best_at if best_at >= 0 else end
        placed[b] = offset
        low, high = 0, len(by_offset)
        while low < high:
            middle = (low + high) // 2
            if by_offset[middle][0] <= offset:
                low = middle + 1
            else:
                high = middle
        by_offset.insert(low, (offset, b))
    return placed
