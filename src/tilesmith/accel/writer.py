"""The writer of instruction streams: a loop nest of tensor intrinsics becomes a program.

    for vt in vthread(2):         load inp ...   load wgt ... push_next    # virtual thread 0
        for k in range(8):        load inp ...   load wgt ... push_next    # virtual thread 1
            load inputs     ->    gemm ... pop_prev push_prev              # 0
            load weights          gemm ... pop_prev push_prev              # 1
            multiply              load inp ... pop_next   load wgt ...     # 0, next iteration
        store results             ...

Loops around several nests run while the stream is written.  A nest of one intrinsic (`nest.Nest`)
becomes few instructions: copies have two dimensions and padding, steps of the matrix unit and of
the ALU have two loops around micro-operations.  Virtual threads take turns: each writes its nests
up to the first one for another unit.  Each has its own part of the buffers, so the load unit works
for one while the matrix unit works for the other one.  `tokens.Ordered` finds the tokens.

Sums begin with zeros.  The first product of each sum is written as one that begins with zero, so
zeros cost no instruction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, Var, const, substitute
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.simplify import simplify
from tilesmith.loop.nodes import Allocate, Buffer, For, Func, If, Seq, Stmt
from tilesmith.loop.visit import children
from tilesmith.support.errors import ScheduleError

from .alu import AluOp
from .instructions import Alu, Gemm, Instruction, Load, Slot, Store, layout
from .intrinsics import MEMORIES
from .machine import Machine, Memory, Unit
from .micro_kernels import MicroKernels
from .nest import ALL_PADDING, Loop, Nest, Place, extent_of, loops_of
from .program import Program
from .tokens import Ordered, Tiles

_COMMUTATIVE = (AluOp.ADD, AluOp.MUL, AluOp.MIN, AluOp.MAX)
_LANES = (Memory.ACC, Memory.OUT)
"""Buffers with common addresses: results of the ALU have the address of the accumulators."""


def write(func: Func, machine: Machine, dram: Mapping[Buffer, int]) -> Program:
    """The program of a function in stage "flat", with tensor calls.

    dram: for each parameter, the byte at which it begins in DRAM.

    Raises ScheduleError for what the machine can't run: other statements than tensor intrinsics of
    the machine, addresses that aren't affine, buffers that are too small.
    """
    writer = _Writer(func, machine, dram)
    writer.statement(func.body, [_Thread()])
    writer.take_turns()
    writer.ordered.finish()
    return Program(tuple(writer.ordered.instructions), tuple(writer.kernels.micro_ops))


@dataclass(slots=True)
class _Thread:
    """A virtual thread: values of the loops around, and the first tile of each buffer."""

    values: dict[Var, int] = field(default_factory=dict[Var, int])
    bases: dict[Buffer, int] = field(default_factory=dict[Buffer, int])

    def now(self) -> _Thread:
        """A copy that stays as this one is now."""
        return _Thread(dict(self.values), dict(self.bases))


class _Writer:
    def __init__(self, func: Func, machine: Machine, dram: Mapping[Buffer, int]) -> None:
        self.machine = machine
        self.dram = dram
        self.ordered = Ordered(machine)
        self.kernels = MicroKernels(machine, self.ordered)
        self._elements = {
            scope: math.prod(machine.tile_shape(memory)) for scope, memory in MEMORIES.items()
        }
        self._nests: dict[Stmt, Nest | None] = {}
        self._top = dict.fromkeys(Memory, 0)
        """The first free tile of each buffer; accumulators and results have one in common."""
        self._zero = np.zeros(machine.depth(Memory.ACC), bool)
        """Accumulators that stand for zeros, which no instruction has written yet."""
        self._turn: list[list[tuple[Nest, _Thread]]] = []
        """For each virtual thread, the nests of its turn, all for one unit."""
        self._unit = Unit.LOAD
        self._shared = _shared_places(list(self._inside(func.body)))

    def _nest(self, stmt: Stmt) -> Nest | None:
        if stmt not in self._nests:
            self._nests[stmt] = Nest.of(stmt, self._elements)
        return self._nests[stmt]

    def _inside(self, stmt: Stmt) -> Iterator[Nest]:
        """The nests in a statement."""
        nest = self._nest(stmt)
        if nest is not None:
            yield nest
        else:
            for s in children(stmt):
                yield from self._inside(s)

    def statement(self, s: Stmt, threads: list[_Thread]) -> None:
        """Write a statement for each of the virtual threads that take turns."""
        if not threads:
            return
        nest = self._nest(s)
        if nest is not None:
            if self._unit is not unit_of(nest) or len(self._turn) != len(threads):
                self.take_turns()
                self._unit, self._turn = unit_of(nest), [[] for _ in threads]
            for turn, thread in zip(self._turn, threads, strict=True):
                turn.append((nest, thread.now()))
        elif isinstance(s, For):
            count = range(extent_of(s))
            if LOOP_KINDS[s.kind].is_virtual:
                split = [
                    _Thread({**t.values, s.var: n}, dict(t.bases)) for t in threads for n in count
                ]
                self.statement(s.body, split)
            else:
                for n in count:
                    for thread in threads:
                        thread.values[s.var] = n
                    self.statement(s.body, threads)
        elif isinstance(s, Seq):
            for part in s.stmts:
                self.statement(part, threads)
        elif isinstance(s, Allocate):
            self._allocate(s, threads)
        elif isinstance(s, If) and s.otherwise is None:
            self.statement(s.then, [t for t in threads if _holds(s.cond, t)])
        else:
            raise ScheduleError(f"the accelerator runs no {type(s).__name__} statement")

    def take_turns(self) -> None:
        """Write the nests of all virtual threads, one thread after the other."""
        for turn in self._turn:
            for nest, thread in turn:
                self._run(nest, thread)
        self._turn = []

    def _allocate(self, s: Allocate, threads: Sequence[_Thread]) -> None:
        """Give each virtual thread tiles for a buffer while the body runs."""
        buffer = self._shared.get(s.buffer, s.buffer)
        memory = MEMORIES.get(s.buffer.scope)
        if memory is None:
            scopes = ", ".join(MEMORIES)
            raise ScheduleError(
                f"{s.buffer.name} is in scope {s.buffer.scope}; the accelerator has {scopes}"
            )
        stack = Memory.ACC if memory in _LANES else memory
        size = math.prod(int(n) for n in s.buffer.shape if isinstance(n, int))
        tiles = -(-size // self._elements[s.buffer.scope])
        begin = self._top[stack]
        fresh = [t for t in threads if buffer not in t.bases]
        for thread in fresh:
            thread.bases[buffer] = self._top[stack]
            self._top[stack] += tiles
        depth = self.machine.depth(memory)
        end = max(t.bases[buffer] for t in threads) + tiles
        if end > depth:
            raise ScheduleError(
                f"{s.buffer.name} needs tiles up to {end} of {memory.value}, which has {depth}: "
                "compute in smaller tiles"
            )
        self.statement(s.body, list(threads))
        self.take_turns()  # afterwards, other buffers may have the tiles
        for thread in fresh:
            del thread.bases[buffer]
        self._top[stack] = begin

    def _base(self, buffer: Buffer, thread: _Thread) -> int:
        return thread.bases[self._shared.get(buffer, buffer)]

    def _run(self, nest: Nest, thread: _Thread) -> None:
        """Write a nest for a virtual thread."""
        if nest.step is None:
            first = nest.result.at(thread.values) + self._base(nest.result.buffer, thread)
            loops = loops_of(nest, thread.values, self.machine.depth(Memory.ACC))
            self._zero[_addresses(first, loops, 0)] = True
        elif nest.step.is_copy:
            self._copy(nest, thread)
        elif nest.step.op is None:
            self._gemm(nest, thread)
        else:
            self._alu(nest, thread)

    def _first(self, nest: Nest, thread: _Thread) -> list[int]:
        """The addresses of the first tiles: those of the result and of the operands."""
        return [
            p.at(thread.values) + self._base(p.buffer, thread)
            for p in (nest.result, *nest.operands)
        ]

    def _copy(self, nest: Nest, thread: _Thread) -> None:
        """Copies between DRAM and a buffer."""
        to, (source,) = nest.result, nest.operands
        is_load = to.buffer.scope in MEMORIES
        here, there = (to, source) if is_load else (source, to)
        memory = MEMORIES.get(here.buffer.scope)
        if memory is None or there.buffer not in self.dram:
            raise ScheduleError(
                f"a copy from {source.buffer.name} to {to.buffer.name}: expected one between an "
                "argument and a buffer of the accelerator"
            )
        sram = here.at(thread.values) + self._base(here.buffer, thread)
        element = there.buffer.dtype.bytes
        dram = self.dram[there.buffer] // (self._elements[here.buffer.scope] * element)
        dram += there.at(thread.values)
        own, other = (0, 1) if is_load else (1, 0)
        most = self._most(Load if is_load else Store)
        loops = loops_of(nest, thread.values, most["columns"])
        loops.sort(key=lambda x: -abs(x.steps[own]))
        rows, columns, outer = _two_dimensions(loops, own, other, most)
        if not is_load:
            self._settle(_addresses(sram, loops, own))
        if rows.end <= rows.first or columns.end <= columns.first:
            raise ScheduleError(ALL_PADDING)
        if not (is_load or (rows.is_whole and columns.is_whole)):
            raise ScheduleError("padding: expected it in a buffer, found it in DRAM")
        widen = memory is Memory.ACC and is_load and element < self.machine.element(memory).bytes
        for at in product(*(range(x.extent) for x in outer)):
            begin = sram + sum(n * x.steps[own] for n, x in zip(at, outer, strict=True))
            tiles = np.arange(begin, begin + rows.extent * columns.extent)
            place = dram + sum(n * x.steps[other] for n, x in zip(at, outer, strict=True))
            if not is_load:
                moved = Store(
                    memory=memory, sram=begin, dram=place, rows=rows.extent,
                    columns=columns.extent, stride=rows.steps[other],
                )  # fmt: skip
                self.ordered.add(moved, {memory: tiles}, {})
                continue
            place += rows.first * rows.steps[other] + columns.first * columns.steps[other]
            read = Load(
                memory=memory, sram=begin, dram=place,
                rows=rows.end - rows.first, columns=columns.end - columns.first,
                stride=rows.steps[other],
                top=self._field(Load, "top", rows.first),
                bottom=self._field(Load, "bottom", rows.extent - rows.end),
                left=self._field(Load, "left", columns.first),
                right=self._field(Load, "right", columns.extent - columns.end),
                widen=widen,
            )  # fmt: skip
            if memory is Memory.ACC:
                self._zero[tiles] = False
            self.ordered.add(read, {}, {memory: tiles})

    def _gemm(self, nest: Nest, thread: _Thread) -> None:
        """Products.  Where the sums begin with zeros, the first product of each comes first."""
        most = self._most(Gemm)
        loops = loops_of(nest, thread.values, most["inner"])
        first = self._first(nest, thread)
        dst, src, wgt = (_addresses(first[n], loops, n) for n in range(3))
        starts = bool(self._zero[dst].all())
        if not starts:
            self._settle(dst)
        operands = {"dst": 0, "src": 1, "wgt": 2}
        outer, inner = around = _around([x for x in loops if x.steps[0]], operands, most)
        inside = [x for x in loops if not any(x is y for y in around)]
        steps = _steps(first, inside)
        at = np.indices([x.extent for x in inside]).reshape(len(inside), len(steps))
        is_first = (at[[n for n, x in enumerate(inside) if x.steps[0] == 0]] == 0).all(axis=0)
        # The first products of the sums come first, so one instruction begins all of them.
        steps = steps[np.argsort(~is_first, kind="stable")]
        firsts = int(is_first.sum()) if starts else 0
        for part in self.kernels.parts(steps):
            begin, end = self.kernels.loaded(part)
            middle = begin + min(firsts, len(part))
            firsts -= middle - begin
            for low, high, reset in ((begin, middle, True), (middle, end, False)):
                if low == high:
                    continue
                x = Gemm(
                    begin=low, end=high, outer=outer.extent, inner=inner.extent,
                    dst_outer=outer.steps[0], dst_inner=inner.steps[0],
                    src_outer=outer.steps[1], src_inner=inner.steps[1],
                    wgt_outer=outer.steps[2], wgt_inner=inner.steps[2], reset=reset,
                )  # fmt: skip
                reads: Tiles = {Memory.INP: src, Memory.WGT: wgt, Memory.ACC: dst}
                self.ordered.add(x, reads, {Memory.ACC: dst})
        self._zero[dst] = False

    def _alu(self, nest: Nest, thread: _Thread) -> None:
        """Steps of the ALU, of which the result has the address of the first operand."""
        step = nest.step
        assert step is not None and step.op is not None
        nest = _in_place(nest)
        most = self._most(Alu)
        loops = loops_of(nest, thread.values, most["inner"])
        first = self._first(nest, thread)
        every = range(len(first))
        read = [_addresses(first[n], loops, n) for n in every[1:]]
        for tiles in read:
            self._settle(tiles)
        dst = _addresses(first[0], loops, 0)
        sources = read[1:] if step.op.reads_dst else read
        if step.op.reads_dst and not _follows(first, loops, 0, 1, by=0):
            raise ScheduleError(
                f"{nest.result.buffer.name}: the first operand of the ALU must be in its place"
            )
        has_source = bool(sources)
        source = len(first) - len(sources)
        if step.op.reads_pair and not _follows(first, loops, source, source + 1, by=1):
            raise ScheduleError(
                f"{nest.result.buffer.name}: the last operand must be the tile after the one before"
            )
        around = _around(loops, {"dst": 0, "src": source} if has_source else {"dst": 0}, most)
        inside = [x for x in loops if not any(x is y for y in around)]
        columns = [0, source if has_source else 0]
        steps = np.zeros((math.prod(x.extent for x in inside), 3), int)
        steps[:, :2] = _steps(first, inside)[:, columns]
        steps[:, 1] *= has_source
        outer, inner = around
        to = Memory.OUT if step.to_out else Memory.ACC
        for part in self.kernels.parts(steps):
            begin, end = self.kernels.loaded(part)
            x = Alu(
                op=step.op, begin=begin, end=end, outer=outer.extent, inner=inner.extent,
                dst_outer=outer.steps[0], dst_inner=inner.steps[0],
                src_outer=outer.steps[source] if has_source else 0,
                src_inner=inner.steps[source] if has_source else 0,
                use_imm=step.imm is not None and not step.op.reads_pair,
                imm=self._field(Alu, "imm", step.imm or 0), to_out=step.to_out,
            )  # fmt: skip
            self.ordered.add(x, {Memory.ACC: np.concatenate([dst, *read])}, {to: dst})
        if not step.to_out:
            self._zero[dst] = False

    def _settle(self, tiles: np.ndarray) -> None:
        """Write the zeros for which some accumulators stand."""
        zeros = np.unique(tiles[self._zero[tiles]])
        most = self._most(Alu)["inner"]
        for run in np.split(zeros, np.flatnonzero(np.diff(zeros) != 1) + 1):
            for n in range(0, run.size, most):
                part = run[n : n + most]
                begin, end = self.kernels.loaded(np.array([[part[0], 0, 0]]))
                x = Alu(begin=begin, end=end, inner=part.size, dst_inner=1, use_imm=True)
                self.ordered.add(x, {}, {Memory.ACC: part})
        self._zero[zeros] = False

    def _most(self, kind: type[Instruction]) -> dict[str, int]:
        """The greatest number that each field of an instruction holds."""
        return {s.name: s.range[1] for s in layout(kind, self.machine)}

    def _field(self, kind: type[Load | Store | Alu], name: str, value: int) -> int:
        """A value of a field.  Raises ScheduleError if the field is too small."""
        slot: Slot = next(s for s in layout(kind, self.machine) if s.name == name)
        low, high = slot.range
        if not low <= value <= high:
            raise ScheduleError(
                f"{kind.name}: {name} would be {value}, and its field holds {low} to {high}: "
                "compute in other tiles"
            )
        return value


def _around(
    loops: Sequence[Loop], operands: Mapping[str, int], most: Mapping[str, int]
) -> tuple[Loop, Loop]:
    """The two loops of an instruction: those of most iterations whose fields hold them.

    operands: for each address of a micro-operation, the operand whose it is.
    most: the greatest number that each field holds.
    """

    def fits(x: Loop) -> bool:
        held = (0 <= x.steps[n] <= most[f"{name}_inner"] for name, n in operands.items())
        return x.extent <= most["inner"] and all(held)

    found = sorted((x for x in loops if fits(x)), key=lambda x: -x.extent)[:2]
    once = Loop(1, (0,) * (max(operands.values()) + 1), 0, 1)
    found += [once] * (2 - len(found))
    return found[0], found[1]


def unit_of(nest: Nest) -> Unit:
    """The unit that runs a nest."""
    if nest.step is None or not nest.step.is_copy:
        return Unit.COMPUTE
    memory = MEMORIES.get(nest.result.buffer.scope)
    return Unit.STORE if memory is None else Load(memory=memory).unit


def _holds(cond: Expr, thread: _Thread) -> bool:
    known: dict[Expr, Expr] = {v: const(n, v.dtype) for v, n in thread.values.items()}
    value = simplify(substitute(cond, known))
    if not isinstance(value, ir.Const):
        raise ScheduleError(f"the condition {cond} isn't known when the program is written")
    return bool(value.value)


def _follows(first: Sequence[int], loops: Sequence[Loop], a: int, b: int, *, by: int) -> bool:
    """Whether the tile of operand `b` is `by` tiles after that of `a` in all iterations."""
    return first[b] - first[a] == by and all(x.steps[a] == x.steps[b] for x in loops)


def _addresses(first: int, loops: Sequence[Loop], which: int) -> np.ndarray:
    """The distinct addresses of an operand in all iterations."""
    found = np.array([first])
    for x in loops:
        if x.steps[which]:
            found = (found[:, None] + x.steps[which] * np.arange(x.extent)).reshape(-1)
    return np.unique(found)


def _steps(first: Sequence[int], loops: Sequence[Loop]) -> np.ndarray:
    """The addresses of each step in the loops, int[steps, operands], in the order of the loops."""
    found = np.array([first])
    for x in loops:
        moved = np.arange(x.extent)[:, None] * np.array(x.steps)
        found = (found[:, None, :] + moved).reshape(-1, len(first))
    return found


def _two_dimensions(
    loops: Sequence[Loop], own: int, other: int, most: Mapping[str, int]
) -> tuple[Loop, Loop, Sequence[Loop]]:
    """Rows and columns of a copy, and the loops around it.

    loops: those with the longest steps in the buffer first.
    most: the greatest number that each field of the copy holds.
    """
    unit = Loop(1, (0, 0), 0, 1)
    rest = list(loops)
    columns, rows = unit, unit

    def is_next(field: str, step: int) -> bool:
        """Whether the innermost loop that is left fits a field, with this step in the buffer."""
        return bool(rest) and rest[-1].extent <= most[field] and rest[-1].steps[own] == step

    if is_next("columns", 1) and rest[-1].steps[other] == 1:
        columns = rest.pop()
    if is_next("rows", columns.extent) and 0 <= rest[-1].steps[other] <= most["stride"]:
        rows = rest.pop()
    if any(not x.is_whole for x in rest):
        raise ScheduleError("padding: expected it along the two inner dimensions of a copy")
    return rows, columns, rest


def _in_place(nest: Nest) -> Nest:
    """The nest with that operand first whose place is like the result's, if they may be swapped."""
    step = nest.step
    assert step is not None
    if step.op in _COMMUTATIVE and len(nest.operands) == 2:
        a, b = nest.operands
        if not _is_alike(a, nest) and _is_alike(b, nest):
            return Nest(nest.loops, step, nest.result, (b, a), nest.ranges)
    return nest


def _is_alike(place: Place, nest: Nest) -> bool:
    return (place.terms, place.first) == (nest.result.terms, nest.result.first)


def _shared_places(nests: Sequence[Nest]) -> dict[Buffer, Buffer]:
    """For each buffer that must have the addresses of another one, that one: results of the ALU
    replace their first operand.

    Raises ScheduleError if the operand is needed afterwards.
    """
    root: dict[Buffer, Buffer] = {}

    def find(b: Buffer) -> Buffer:
        while b in root:
            b = root[b]
        return b

    for nest in nests:
        step = nest.step
        if step is None or step.op is None or not step.op.reads_dst:
            continue
        source = _in_place(nest).operands[0].buffer
        readers = [n for n in nests if any(p.buffer is source for p in n.operands)]
        if not step.to_out and len(readers) > 1:
            raise ScheduleError(
                f"{nest.result.buffer.name} replaces {source.name}, which is read again: compute "
                "it twice, or copy it"
            )
        a, b = find(nest.result.buffer), find(source)
        if a is not b:
            root[a] = b
    return {b: find(b) for b in root}
