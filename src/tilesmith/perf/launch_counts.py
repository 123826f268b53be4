"""Static counts of a launch's memory accesses, from loop IR alone.

The indices of an access give the addresses of a warp's 32 threads, for a few blocks, warps and
iterations.  The worst of these cases counts.  An access whose address depends on data is unknown.

A global access is coalesced if it touches at most twice the sectors that its bytes would fill, plus
one for a start that is not aligned.  A load of one element for all threads is coalesced.  A bank
conflict is an additional access to the banks of shared memory.

The main loops are all loops that access memory; in a launch without loops, all of its code counts
as a main loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from math import prod

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.device import Device
from tilesmith.ir.expr import Const, Expr, Load, Ramp, Var
from tilesmith.ir.lane_offsets import rows_of
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.tensor_intrinsics import called, tensor_intrinsic
from tilesmith.loop import nodes
from tilesmith.loop.launches import INDICES, Launch
from tilesmith.loop.nodes import Buffer, Stmt
from tilesmith.loop.visit import children, own_exprs, walk

from .warps import WARP, bank_conflicts, fewest_sectors, sectors

_SAMPLES = 3
"""Number of blocks, warps and iterations that are evaluated."""

Values = np.ndarray | None
"""Values of an expression in the threads of a warp; None: they are known at run time only."""


@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """Counts of one launch; accesses to memory are counted in the main loops.

    threads: threads per block.
    coalesced, uncoalesced, unknown: accesses to global memory.
    vector_bytes: the most bytes that a thread moves at once.
    shared: accesses to shared memory.
    bank_conflicts: additional bank accesses, if each access runs once.
    matrix: instructions on tiles that warps run.
    barriers: barriers in the whole launch.
    shared_bytes: shared memory of a block.
    occupancy: threads that a multiprocessor holds at a time, relative to its maximum.  Shared
        memory and the registers of arrays limit the number.
    """

    threads: int
    coalesced: int
    uncoalesced: int
    unknown: int
    vector_bytes: int
    shared: int
    bank_conflicts: int
    matrix: int
    barriers: int
    shared_bytes: int
    occupancy: float

    def to_json(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(slots=True)
class _Site:
    """An access in one statement, with its number of executions and the conditions under which it
    runs.
    """

    access: Load | nodes.Store
    call: str
    operand: int
    weight: int
    conditions: tuple[Expr, ...]


def launch_counts(launch: Launch, device: Device, registers: int | None = None) -> LaunchCounts:
    """The counts of a launch (stage "final").

    registers: registers per thread, if known.  None: the registers of its arrays plus an estimate.
    """
    sites = list(_sites(launch.body, (), 1))
    most = max((s.weight for s in sites), default=1)
    inside = [s for s in sites if s.weight > 1] if most > 1 else sites
    around = _Around(launch)
    kinds = "coalesced", "uncoalesced", "unknown", "shared", "conflicts"
    tally: dict[str, int] = dict.fromkeys(kinds, 0)
    widest = 0
    for s in inside:
        buffer = s.access.buffer
        assert isinstance(buffer, Buffer)
        owner = SCOPES[buffer.scope].owner
        if owner == "block":
            tally["shared"] += 1
            tally["conflicts"] += _conflicts(s, around)
        elif not owner:
            width = _width(s.access)
            widest = max(widest, width)
            tally[_global(s, width, around)] += 1
    calls = [s for s in inside if s.call and not s.operand]
    return LaunchCounts(
        prod(launch.threads),
        tally["coalesced"],
        tally["uncoalesced"],
        tally["unknown"],
        widest,
        tally["shared"],
        tally["conflicts"],
        len(calls),
        sum(isinstance(s, nodes.Barrier) for s in walk(launch.body)),
        launch.shared_bytes,
        occupancy(launch, device, registers),
    )


_REGISTERS = 32
"""Estimated number of registers per thread, without those of arrays.  It is used if the assembler
reports no number.
"""


def occupancy(launch: Launch, device: Device, registers: int | None = None) -> float:
    """Occupancy: the fraction of a multiprocessor's threads that blocks of a launch fill."""
    threads = -(-prod(launch.threads) // device.wave) * device.wave
    each = registers or launch.registers + _REGISTERS
    blocks = min(device.unit_threads // threads, device.unit_registers // (threads * each))
    if launch.shared_bytes:
        blocks = min(blocks, device.unit_shared_bytes // launch.shared_bytes)
    return blocks * threads / device.unit_threads


def _sites(s: Stmt, conditions: tuple[Expr, ...], weight: int) -> Iterator[_Site]:
    """The accesses in `s` to global and shared memory."""
    if isinstance(s, nodes.For) and not LOOP_KINDS[s.kind].level:
        count = int(s.extent.value) if isinstance(s.extent, Const) else 2
        yield from _sites(s.body, conditions, weight * max(count, 1))
        return
    for e in own_exprs(s):
        yield from _loads(e, conditions, weight)
    if isinstance(s, nodes.Store) and SCOPES[s.buffer.scope].owner in ("", "block"):
        yield _Site(s, "", 0, weight, conditions)
    if isinstance(s, nodes.If):
        yield from _sites(s.then, (*conditions, s.cond), weight)
        if s.otherwise is not None:
            yield from _sites(s.otherwise, (*conditions, ~s.cond), weight)
    else:
        for part in children(s):
            yield from _sites(part, conditions, weight)


def _loads(e: Expr, conditions: tuple[Expr, ...], weight: int) -> Iterator[_Site]:
    if isinstance(e, ir.Select):
        yield from _loads(e.cond, conditions, weight)
        yield from _loads(e.if_true, (*conditions, e.cond), weight)
        yield from _loads(e.if_false, (*conditions, ~e.cond), weight)
        return
    intrinsic = called(e)
    if intrinsic is not None and intrinsic.threads > 1:
        first = len(e.children) - len(intrinsic.operands)
        for n, operand in enumerate(e.children[first:]):
            assert isinstance(operand, Load)
            yield _Site(operand, intrinsic.name, n, weight, conditions)
        return
    if isinstance(e, Load):
        assert isinstance(e.buffer, Buffer)
        if SCOPES[e.buffer.scope].owner in ("", "block"):
            yield _Site(e, "", 0, weight, conditions)
    for child in e.children:
        yield from _loads(child, conditions, weight)


class _Around:
    """The values that variables have in a sample of a launch's warps."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        threads = np.arange(prod(launch.threads))
        self.warps = [threads[n : n + WARP] for n in range(0, len(threads), WARP)]
        self.loops = {s.var: s for s in walk(launch.body) if isinstance(s, nodes.For)}
        self.named = {s.var: s.value for s in walk(launch.body) if isinstance(s, nodes.LetStmt)}

    def samples(self) -> Iterator[Callable[[Expr], Values]]:
        """For each sampled warp, block and iteration, a function from an expression to its values
        in the threads.
        """
        for n in range(_SAMPLES):
            warp = self.warps[n * (len(self.warps) - 1) // max(_SAMPLES - 1, 1)]
            yield _Evaluation(self, warp, n).value


class _Evaluation:
    def __init__(self, around: _Around, warp: np.ndarray, number: int) -> None:
        self.around, self.number = around, number
        x, y, _ = around.launch.threads
        self.threads = warp % x, warp // x % y, warp // (x * y)
        self.found: dict[Expr, Values] = {}

    def value(self, e: Expr) -> Values:
        for node in ir.post_order(e, self.found):
            self.found[node] = self._value(node)
        return self.found[e]

    def _value(self, e: Expr) -> Values:
        if isinstance(e, Const):
            return np.full(len(self.threads[0]), int(e.value))
        if isinstance(e, Var):
            return self._variable(e)
        if isinstance(e, Ramp):
            return self.found[e.base]
        if isinstance(e, ir.Cast):
            return self.found[e.a]
        parts = [self.found[c] for c in e.children]
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            return None
        operation = _OPERATIONS.get(getattr(e, "op", ""))
        if isinstance(e, ir.Select):
            return np.where(*known)
        if isinstance(e, (ir.Binary, ir.Compare, ir.Unary)) and operation is not None:
            return operation(*known)
        return None

    def _variable(self, v: Var) -> Values:
        loop = self.around.loops.get(v)
        if loop is None:
            named = self.around.named.get(v)
            return None if named is None else self.value(named)
        start = self.value(loop.start)
        if start is None:
            return None
        if LOOP_KINDS[loop.kind].level == "thread":
            return start + self.threads[INDICES.index(loop.kind[-1])]
        extent = self.value(loop.extent)
        most = 1 if extent is None else int(extent[0])
        return start + self.number * (most - 1) // max(_SAMPLES - 1, 1)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a // np.where(b == 0, 1, b)


def _rest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a % np.where(b == 0, 1, b)


_OPERATIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": _divided, "floormod": _rest,
    "min": np.minimum, "max": np.maximum, "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "neg": np.negative, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _width(access: Load | nodes.Store) -> int:
    lanes = access.lanes if isinstance(access, Load) else access.value.lanes
    return access.buffer.dtype.bytes * lanes


def _addresses(s: _Site, value: Callable[[Expr], Values]) -> list[int | None] | None:
    """For each thread, the byte offset in the buffer; None for an inactive thread.  The whole
    result is None if the offsets are unknown.
    """
    elements = value(s.access.indices[0]) if s.access.indices else np.zeros(1, int)
    if elements is None:
        return None
    active = np.ones(len(elements), bool)
    size = s.access.buffer.dtype.bytes
    for c in s.conditions:
        holds = value(c)
        if holds is not None:
            active &= holds.astype(bool)
    return [int(n) * size if takes else None for n, takes in zip(elements, active, strict=True)]


def _global(s: _Site, width: int, around: _Around) -> str:
    for value in around.samples():
        addresses = _addresses(s, value)
        if addresses is None:
            return "unknown"
        taking = [n for n in addresses if n is not None]
        if sectors(taking, width) > 2 * fewest_sectors(taking, width) + 1:
            return "uncoalesced"
    return "coalesced"


def _conflicts(s: _Site, around: _Around) -> int:
    """Bank conflicts of one execution of an access, in the worst sample.

    An instruction on tiles loads an operand in several steps.  The conflicts of all steps are
    added.
    """
    worst = 0
    for value in around.samples():
        if s.call:
            assert isinstance(s.access, Load)
            worst = max(worst, _of_call(s, s.access))
            continue
        addresses = _addresses(s, value)
        worst = max(worst, bank_conflicts(addresses or [], _width(s.access)))
    return worst


def _of_call(s: _Site, access: Load) -> int:
    intrinsic = tensor_intrinsic(s.call)
    operand, rows = intrinsic.operands[s.operand], rows_of(access.indices[0])
    if intrinsic.reads is None or rows is None:
        return 0
    distance = rows.distance if rows.count > 1 else access.lanes // operand.shape[0]
    reads = intrinsic.reads(operand, distance * operand.dtype.bytes)
    return sum(bank_conflicts(addresses, width) for width, addresses in reads)
