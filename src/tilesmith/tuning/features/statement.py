"""The features of one statement, and its time as predicted by a closed formula.

Sizes, counts and times are given as `log(1 + x)`, fractions and flags as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilesmith.ir.expr import Expr, free_vars
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.ir.types import Dim
from tilesmith.perf.cycles import Instructions
from tilesmith.perf.operations import KINDS, instructions_of
from tilesmith.search_space.traced import expression
from tilesmith.te.relations import SplitRelation

from . import algebra as sym
from .algebra import Number
from .footprint import SymbolicFootprints, not_one
from .nest import Statement, SymbolicAccess, SymbolicLoop, SymbolicNest
from .operations import operations

READS = 3
"""Reads of a statement that have features of their own, the largest first."""
INNER = 3
"""Innermost loops that have features of their own."""

_LEVELS = ("l1", "l2", "l3")
_ACCESS = (
    "bytes", "stride", "lines_inner", *(f"traffic_{c}" for c in _LEVELS), "reuse_bytes",
    "reuse_times",
)  # fmt: skip
STATEMENT = (
    "points", "reduce_points", "runs", "loops", "is_reduction",
    *(f"inner{n}{what}" for n in range(INNER) for what in ("", "_set", "_reduce")),
    "lanes", "lane_use", "vector_instructions", "unrolled", "body",
    "results", "operands", "registers", "spill", "waiting",
    "parallel", "parallel_share", "forks", "tail_waste", "cut", "crossing",
    *KINDS, "intensity",
    "footprint", *(f"traffic_{c}" for c in _LEVELS), *(f"kept_{c}" for c in _LEVELS),
    "issue", "arithmetic", "memory", "entries", "seconds",
    *(f"{a}_{what}" for a in (*(f"read{n}" for n in range(READS)), "write") for what in _ACCESS),
)  # fmt: skip
"""Names of the features of a statement."""

PEELED = 0.5
"""Fraction of an iteration's time that even the shortest partial iteration takes."""
MASKED = 1.5
"""Time of a vector with unused lanes, relative to a full vector."""


@dataclass(frozen=True, slots=True)
class FeatureSetting:
    """The setting of a schedule that features depend on.

    target: the machine.
    threads: number of threads.
    """

    target: Target
    threads: int

    @property
    def caches(self) -> tuple[int, int, int]:
        return self.target.model.cache_bytes


@dataclass(frozen=True, slots=True, eq=False)
class StatementFeatures:
    """The features of a statement, and its contributions to the kernel's features.

    values: features by name.
    seconds: predicted time.
    arithmetic: cycles of arithmetic.
    traffic: bytes from each level.
    forks: number of starts of its parallel loop.
    body: size of its innermost body.
    """

    values: dict[str, Number]
    seconds: Number
    arithmetic: Number
    traffic: tuple[Number, ...]
    forks: Number
    body: Number


def size(n: Number) -> Number:
    """`log(1 + n)`."""
    return sym.log(sym.add(n, 1.0))


def statement_features(
    nest: SymbolicNest, prints: SymbolicFootprints, s: Statement, machine: FeatureSetting
) -> StatementFeatures:
    """The features of statement `s`."""
    target, model = machine.target, machine.target.model
    path = s.path
    own = path[s.own :]
    points = sym.product(loop.trips for loop in path)
    copied = _copied(path)
    inside = path[copied:]
    lanes = sym.product(loop.extent for loop in inside if loop.kind == "vectorized")
    hardware = target.vector_lanes(s.lane_bytes)
    vectors = sym.ceil_div(lanes, hardware)
    unrolled = sym.product(loop.extent for loop in inside if loop.kind == "unrolled")
    trips = sym.product(loop.trips for loop in path[:copied])
    counts = operations(s.body)
    each = sum(counts.values())

    # registers of the loop body that is copied
    def in_vectors(a: SymbolicAccess) -> Number:
        elements = prints.elements(s, a, copied)
        still = sym.is_most(_distance(_lane_steps(nest, s, a, inside)), 0)
        return sym.where(still, elements, sym.div(elements, sym.minimum(lanes, hardware)))

    def lines(a: SymbolicAccess) -> Number:
        """Cache lines that a vector touches."""
        return _vector_lines(nest, s, a, inside, hardware * a.bytes)

    writes = [a for a in s.accesses if a.write]
    reads = sorted(
        (a for a in s.accesses if not a.write),
        key=lambda a: -_static_size(nest, a),
    )
    results = sym.total(in_vectors(a) for a in writes)
    operands = sym.total(in_vectors(a) for a in reads)
    registers = target.vector_registers
    held = sym.add(results, 2)
    spill = sym.maximum(sym.sub(sym.div(held, registers), 1.0), 0.0)
    body = sym.mul(sym.mul(unrolled, vectors), max(each, 1))

    # time of one thread
    gathered = sym.mul(sym.minimum(lanes, hardware), model.gather_cycles)
    waiting = _waiting(path, copied, target)
    work = Instructions()
    for kind, n in counts.items():
        work.add(instructions_of(kind, model), n)
    computing = sym.mul(sym.mul(unrolled, vectors), work.cycles(model))
    loaded = sym.total(
        sym.mul(in_vectors(a), _load_cycles(_lane_steps(nest, s, a, inside), lines(a), gathered))
        for a in reads
        if not a.in_registers
    )
    stored = sym.total(sym.mul(in_vectors(a), lines(a)) for a in writes if not a.in_registers)
    spilled = sym.mul(sym.mul(spill, results), 2.0)
    issued = sym.div(sym.add(sym.add(body, operands), 2), model.issue_width)
    trip = sym.largest(
        [sym.maximum(computing, waiting), sym.add(loaded, spilled), stored, issued], 0.0
    )
    entries = _entries(path, copied)
    cut = _cut(path, copied, trips, trip, waiting, hardware)
    arithmetic = sym.add(sym.add(sym.mul(trips, trip), cut), sym.mul(entries, model.entry_cycles))

    traffic = [sym.total(prints.traffic(s, a, c) for a in s.accesses) for c in machine.caches]
    speeds = model.l2_bytes_per_cycle, model.l3_bytes_per_cycle, model.dram_bytes_per_cycle
    # Bytes that remain in a cache after the last call, if the cache holds all tensors.
    whole = prints.whole
    memory = sym.largest(
        [
            sym.where(sym.is_most(whole, c), 0.0, sym.div(t, b))
            for t, b, c in zip(traffic, speeds, machine.caches, strict=True)
        ],
        0.0,
    )
    shared, forks = _shared(path) if machine.threads > 1 else (1, 0)
    share = _share(shared, machine.threads)
    both = sym.add(
        sym.maximum(arithmetic, memory), sym.mul(sym.minimum(arithmetic, memory), 1 - model.overlap)
    )
    taken = sym.add(sym.mul(both, share), sym.mul(forks, float(model.fork_join_cycles)))
    seconds = sym.mul(taken, 1e-9 / model.ghz)

    reduced = sym.product(loop.trips for loop in own if loop.is_reduce)
    around = sym.product(loop.trips for loop in path[: s.own])
    footprint = sym.total(prints.bytes(s, a, 0) for a in s.accesses)
    v: dict[str, Number] = {
        "points": size(points),
        "reduce_points": size(reduced),
        "runs": size(around),
        "loops": float(len(path)),
        "is_reduction": float(bool(s.stage.compute.reduce_axis)),
        "lanes": size(lanes),
        "lane_use": sym.div(lanes, sym.mul(vectors, hardware)),
        "vector_instructions": size(sym.mul(trips, sym.mul(unrolled, vectors))),
        "unrolled": size(unrolled),
        "body": size(body),
        "results": size(results),
        "operands": size(operands),
        "registers": sym.div(held, registers),
        "spill": spill,
        "waiting": size(sym.mul(waiting, trips)),
        "parallel": size(shared),
        "parallel_share": share,
        "forks": size(forks),
        "tail_waste": sym.log(_tail_waste(nest, s)),
        "cut": sym.div(cut, sym.add(arithmetic, 1)),
        "crossing": sym.div(
            sym.total(
                sym.mul(in_vectors(a), sym.sub(lines(a), 1))
                for a in s.accesses
                if not a.in_registers
            ),
            sym.add(sym.add(operands, results), 1),
        ),
        **{k: size(sym.mul(points, n)) for k, n in counts.items()},
        "intensity": sym.log(
            sym.add(sym.div(sym.mul(points, max(each, 1)), sym.add(footprint, 1)), 1e-3)
        ),
        "footprint": size(footprint),
        **{f"traffic_{c}": size(t) for c, t in zip(_LEVELS, traffic, strict=True)},
        **{
            f"kept_{c}": size(prints.kept(s, b))
            for c, b in zip(_LEVELS, machine.caches, strict=True)
        },
        "issue": size(sym.mul(trips, issued)),
        "arithmetic": size(arithmetic),
        "memory": size(memory),
        "entries": size(entries),
        "seconds": sym.log(sym.add(sym.mul(seconds, 1e9), 1.0)),
    }
    for n in range(min(INNER, len(path))):
        loop = path[-1 - n]
        v[f"inner{n}"] = size(loop.extent)
        v[f"inner{n}_set"] = size(prints.working_set(loop))
        v[f"inner{n}_reduce"] = float(loop.is_reduce)
    named = [(f"read{n}", a) for n, a in enumerate(reads[:READS])]
    named += [("write", a) for a in writes[:1]]
    for name, a in named:
        for what, value in _access_features(nest, prints, s, a, machine).items():
            v[f"{name}_{what}"] = value
    return StatementFeatures(v, seconds, arithmetic, tuple(traffic), forks, sym.mul(body, 1))


def _access_features(
    nest: SymbolicNest,
    prints: SymbolicFootprints,
    s: Statement,
    a: SymbolicAccess,
    machine: FeatureSetting,
) -> dict[str, Number]:
    distance, times = prints.reuse(s, a)
    near = max(len(s.path) - 2, 0)
    lane = next((x for x in reversed(s.path[s.own :]) if x.kind == "vectorized"), None)
    lane = lane or (s.path[-1] if len(s.path) > s.own else None)
    stride: Number = 0 if lane is None else _stride(nest, s, a, lane)
    values = [
        size(prints.bytes(s, a, 0)),
        size(stride),
        size(sym.div(prints.bytes(s, a, near), LINE_BYTES)),
        *(size(prints.traffic(s, a, c)) for c in machine.caches),
        size(distance),
        size(times),
    ]
    return dict(zip(_ACCESS, values, strict=True))


def _copied(path: tuple[SymbolicLoop, ...]) -> int:
    """Position in `path` from which on all loops are unrolled or vectorised."""
    n = len(path)
    while n and LOOP_KINDS[path[n - 1].kind].is_expanded:
        n -= 1
    return n


def _stride(nest: SymbolicNest, s: Statement, a: SymbolicAccess, loop: SymbolicLoop) -> Number:
    """Distance in elements between the accesses of two neighbouring iterations."""
    steps = nest.steps(s, a, loop.axis)
    shape = nest.shape(a.tensor)
    result: Number = 0
    row: Number = 1
    for step, extent in zip(reversed(steps), reversed(shape), strict=True):
        result = sym.add(result, sym.mul(step, row))
        row = sym.mul(row, extent)
    return sym.maximum(result, sym.mul(result, -1))


def _lane_steps(
    nest: SymbolicNest, s: Statement, a: SymbolicAccess, inside: tuple[SymbolicLoop, ...]
) -> list[Number]:
    """For each dimension, the distance that an access's index moves from lane to lane."""
    lanes = [x for x in inside if x.kind == "vectorized" and x.stage == s.stage.name]
    return nest.steps(s, a, lanes[-1].axis) if lanes else []


def _load_cycles(steps: list[Number], lines: Number, gathered: Number) -> Number:
    """Cycles of loading a vector with these distances between lanes.  A contiguous vector lies on
    `lines` cache lines.  Any other vector is loaded element by element in `gathered` cycles.
    """
    if not steps:
        return 0.5
    near = sym.where(sym.is_most(steps[-1], 1), sym.mul(lines, 0.5), gathered)
    return sym.where(sym.is_most(_distance(steps[:-1]), 0), near, gathered)


def _distance(steps: list[Number]) -> Number:
    """The sum of the absolute values of `steps`; 0 if nothing moves."""
    return sym.total(sym.maximum(n, sym.mul(n, -1)) for n in steps)


def _vector_lines(
    nest: SymbolicNest,
    s: Statement,
    a: SymbolicAccess,
    inside: tuple[SymbolicLoop, ...],
    width: int,
) -> Number:
    """Cache lines that a vector of `width` bytes touches.  It is 2 for a contiguous vector wider
    than half a line, if rows are not whole lines; else 1.
    """
    steps = _lane_steps(nest, s, a, inside)
    if not steps:
        return 1
    together = sym.is_most(_distance([*steps[:-1], sym.sub(steps[-1], 1)]), 0)
    row = sym.mul(nest.shape(a.tensor)[-1], a.bytes)
    rest = sym.sub(row, sym.mul(sym.floor_div(row, LINE_BYTES), LINE_BYTES))
    crossing = sym.where(sym.is_most(rest, 0), 1, 1 if width <= LINE_BYTES // 2 else 2)
    return sym.where(together, crossing, 1)


def _cut(
    path: tuple[SymbolicLoop, ...],
    copied: int,
    trips: Number,
    trip: Number,
    floor: Number,
    hardware: int,
) -> Number:
    """Extra cycles of partial last iterations of loops: their vectors are not full, and the rest of
    the body does not hide the latency of their results.
    """
    losses: list[Number] = []
    for loop in path[:copied]:
        part = sym.add(sym.mul(loop.rest, 1 - PEELED), PEELED)
        if isinstance(loop.lanes, Expr) or loop.lanes > 0:
            lanes = sym.mul(loop.rest, loop.lanes)
            vectors = sym.mul(
                sym.ceil_div(sym.floor_div(sym.add(lanes, 0.5), 1.0), hardware), float(hardware)
            )
            masked = sym.where(sym.is_most(sym.sub(vectors, lanes), 0.5), 1.0, MASKED)
            part = sym.mul(sym.div(vectors, loop.lanes), masked)
        lost = sym.sub(sym.maximum(floor, sym.mul(trip, part)), sym.mul(trip, loop.rest))
        lost = sym.mul(sym.div(trips, loop.trips), lost)
        losses.append(sym.where(sym.is_most(loop.rest, 1e-6), 0.0, lost))
    return sym.total(losses)


def _static_size(nest: SymbolicNest, a: SymbolicAccess) -> float:
    return nominal(nest.state.stages[a.tensor[0]].op.shape)


def nominal(extents: Iterable[Dim]) -> float:
    """The product of extents, where each knob counts as 2.  So the order of such products does not
    depend on the values of knobs.
    """
    result = 1.0
    for n in map(expression, extents):
        known: dict[Expr, Number] = {} if isinstance(n, int) else dict.fromkeys(free_vars(n), 2)
        result *= float(sym.number(n, known))  # type: ignore[arg-type]  # nothing is unknown
    return result


def _waiting(path: tuple[SymbolicLoop, ...], copied: int, target: Target) -> Number:
    """Cycles per iteration of the body in which a reduction waits for the previous iteration."""
    if copied == 0 or not path[copied - 1].is_reduce:
        return 0.0
    serial = sym.product(x.extent for x in path[copied:] if x.is_reduce and x.kind == "unrolled")
    last = path[copied - 1].extent
    return sym.where(not_one(last), sym.mul(serial, float(target.model.fma_latency)), 0.0)


def _entries(path: tuple[SymbolicLoop, ...], copied: int) -> Number:
    """Number of entries into the loops of `path` before position `copied`."""
    entries: list[Number] = []
    outside: Number = 1
    for loop in path[:copied]:
        entries.append(sym.where(not_one(loop.extent), outside, 0))
        outside = sym.mul(outside, loop.trips)
    return sym.total(entries)


def _shared(path: tuple[SymbolicLoop, ...]) -> tuple[Number, Number]:
    """Iterations that threads share, and the number of starts of the parallel loop."""
    outside: Number = 1
    for loop in path:
        if loop.kind == "parallel":
            return loop.extent, sym.where(not_one(loop.extent), outside, 0)
        outside = sym.mul(outside, loop.extent)
    return 1, 0


def _share(shared: Number, threads: int) -> Number:
    """Fraction of the iterations that the busiest thread runs."""
    return sym.div(sym.ceil_div(shared, threads), shared)


def _tail_waste(nest: SymbolicNest, s: Statement) -> Number:
    """Ratio of the points of whole tiles to the points of the domain."""
    extents = nest.extents(s.stage.name)
    return sym.product(
        sym.div(sym.mul(extents[r.outer], extents[r.inner]), extents[r.parent])
        for r in s.stage.relations
        if isinstance(r, SplitRelation)
    )
