"""Machines are described by targets: what `strategy` and `graph` fix for all of them are pure
numbers.  The list is where a new one is reviewed: nothing in bytes, seconds, cycles or threads.
"""

from __future__ import annotations

import ast
from pathlib import Path

import tilesmith

REVIEWED = """
graph/expectations.py DOUBLINGS _ROOM_DOUBLINGS
graph/indices.py _DEEPEST
graph/passes/control_flow.py GROWTH TRANSPOSED_ROWS
graph/passes/cse.py _SAMPLE
graph/passes/factors.py SHIFT
graph/passes/fold.py GROWTH
graph/passes/fuse.py MAX_BRANCHES MAX_NODES
graph/passes/integer_products.py _DEEPEST
graph/passes/memory_bounds.py FACTOR _LARGEST_NUMBER
graph/passes/packed_weights.py LONGEST_CHUNK SHORTEST_CHUNK
graph/passes/requantise.py _DEEPEST
graph/passes/split_taps.py MOST_WORK_LEFT PASS_CHANNELS
graph/passes/sub_pixel.py APART CHANNELS
graph/text.py INLINE_ELEMENTS
strategy/cpu/ahead.py _MANY_ROWS
strategy/cpu/attention.py SHARED_HEADS
strategy/cpu/concat.py MOST_VECTORS
strategy/cpu/contraction.py IDLE MAX_ROWS MAX_VECTORS PEELED_COLUMNS STREAMS UNEVEN
strategy/cpu/dots.py MAX_UNROLLED_STEPS SLOWER
strategy/cpu/full_lanes.py GAIN
strategy/cpu/injective.py MAX_COPIES MAX_CYCLE MAX_VECTORS
strategy/cpu/layouts.py ACROSS
strategy/cpu/low_precision.py GAIN SOFTWARE_HALF
strategy/cpu/operands.py LOST LOST_COMPETING PACKING PAIRING WALK
strategy/cpu/planes.py MOST
strategy/cpu/reduction.py ACCUMULATORS IN_ORDER MAX_UNROLLED WIDEST
strategy/cpu/scaled_chunks.py BLOCK_VECTORS DECODING MOST_ROWS TOGETHER
strategy/cpu/scaled_rows.py RUN_PAGES SHARED_ROWS SHARES STEPS
strategy/cpu/tile_dots.py PASSES
strategy/cpu/transposition.py LEAST_LINES ROWS U_BLOCKS V_BLOCKS
strategy/cpu/unrolling.py DISPLACED MAX_UNROLLED UNROLL_FACTORS
strategy/cpu/versions.py FEW LONG MANY
strategy/cpu/winograd.py TILES
strategy/cpu/winograd_cost.py ERRORS WINOGRAD_MARGIN
strategy/device/attention.py KEYS RESULTS ROWS SIDES STEP STEPS
strategy/device/blocks.py WAVES
strategy/device/copies_ahead.py BUFFERS RESIDENT
strategy/device/generic.py AGAIN
strategy/device/layouts.py OTHER
strategy/device/parallel.py LONGEST
strategy/device/rows.py STEP TERMS
strategy/device/streamed_attention.py COMBINING
strategy/device/tensor_tiles.py HEIGHTS PADS STEPS WAVES WIDTHS
strategy/device/tiles.py RESULTS RESULT_COUNTS SIDES STEP STEPS TILE TILES
strategy/intrinsics/aarch64.py _UNIT_ROUNDOFF
strategy/intrinsics/nvptx.py COLUMNS ROWS _GLOBAL _ROW_BYTES _SHARED _TOLERANCE
strategy/intrinsics/x86.py _AWAKE_FMAS _BUSY_ROWS _LANE_BYTES _ROWS _TILES _UNIT_ROUNDOFF _WIDTHS
strategy/sizes.py _FAR _MOST _STEPS
strategy/sketch/nest.py MAX_ORDERED MAX_UNROLLED_STATEMENTS
strategy/sketch/pack.py PACK_REUSE
strategy/sketch/place.py BLOCKS FAR REREAD
strategy/sketch/recompute.py GAIN MAX_NODES
strategy/sketch/scans.py COLUMNS ROWS
strategy/sketch/strips.py LONG MERGE_GAIN PROBES SIZES
strategy/sketch/tile.py MAX_ROWS MAX_VECTORS ROW_SHARE SHORT SLIDING
strategy/sketch/winograd.py FILTERED_MARGIN TRANSFORM VECTORS
strategy/sketch/work.py SHUFFLED
""".strip()


def is_numeric(value: ast.expr) -> bool:
    """Whether an expression is made of numbers alone."""
    leaves = [n for n in ast.walk(value) if isinstance(n, (ast.Constant, ast.Name, ast.Call))]
    return bool(leaves) and all(
        isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in leaves
    )


def numeric_constants(path: Path) -> list[str]:
    """The names that a module binds to numbers, or to tables of them."""
    found: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            found += [n.id for n in names if is_numeric(node.value)]
    return sorted(found)


def test_constants_of_strategy_and_graph_are_reviewed_pure_numbers():
    root = Path(tilesmith.__file__).parent
    paths = [p for room in ("graph", "strategy") for p in sorted((root / room).rglob("*.py"))]
    rows = [(p.relative_to(root).as_posix(), numeric_constants(p)) for p in paths]
    assert "\n".join(f"{p} {' '.join(names)}" for p, names in rows if names) == REVIEWED
