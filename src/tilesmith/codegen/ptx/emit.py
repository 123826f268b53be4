"""Loop IR to LLVM text for NVIDIA's GPUs.

Each launch of a function (see `loop.launches`) becomes one kernel

    ptx_kernel void @symbol_number(ptr buffers..., i64 scalars..., ptr workspace, ptr report)

Loops that are bound to blocks and threads become special registers, shared memory becomes variables
in address space 3.  Everything else is written as for a CPU: LLVM finds out which pointers are to
which memory.  `report` is the end of the context that a failure is noted in.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from math import prod

from tilesmith.codegen.assertions import fail_function
from tilesmith.codegen.context import BY_NAME
from tilesmith.codegen.emit import bind_scalar, declarations, parameters
from tilesmith.codegen.kernel import DeviceKernel, Kernel, LaunchCall
from tilesmith.codegen.llvm_text import memory_type
from tilesmith.codegen.module import Module
from tilesmith.codegen.survey import Survey
from tilesmith.ir.dtypes import f64
from tilesmith.ir.expr import Binary, Const, Var, post_order
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.target import Target
from tilesmith.loop.launches import INDICES, Launch, check_assertions, check_limits, launches
from tilesmith.loop.nodes import Allocate, Assert, Barrier, Buffer, For, Func, If, WaveReduce
from tilesmith.loop.passes.workspace import constant_extent, plan_workspace
from tilesmith.loop.visit import exprs, walk

from .copies import CopyEmitter
from .shuffles import reduce_wave

_REGISTERS = {"block": "ctaid", "thread": "tid"}
_BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
_FILE = 1 << 16
"""Registers of a multiprocessor."""

_MOST_RESIDENT = 16
"""Blocks that a multiprocessor of any architecture can hold."""

_WARP = 32
"""Registers are given to so many threads at once."""

_SCALARS = 72
"""Registers of a thread for addresses, indices and operands, beside its arrays."""

_GRID = (1 << 31) - 1, 65535, 65535
"""Most blocks along x, y and z."""


class _LaunchEmitter(CopyEmitter):
    """The statements of one launch."""

    def __init__(self, module: Module, launch: Launch, symbol: str) -> None:
        super().__init__(module, launch)
        self._symbol = symbol
        self.globals: list[str] = []
        self.rules_of_statements[Barrier] = lambda s: self._barrier()
        self.rules_of_statements[WaveReduce] = self._wave_reduce
        for n, buffer in enumerate(launch.shared):
            self.pointers[buffer] = self._shared(buffer, n)

    def _shared(self, buffer: Buffer, n: int) -> str:
        """A pointer to shared memory."""
        size = 1
        for extent in buffer.shape:
            size *= constant_extent(extent, buffer)
        variable, name = f"@{self._symbol}.shared{n}", self.name("shared")
        type_ = f"[{max(size, 1)} x {memory_type(buffer.dtype)}]"
        self.globals.append(f"{variable} = internal addrspace(3) global {type_} poison, align 16")
        self.allocas.append(f"  {name} = addrspacecast ptr addrspace(3) {variable} to ptr")
        return name

    def _barrier(self) -> None:
        self.do(_BARRIER)
        self.tiles.clear()

    def _wave_reduce(self, s: WaveReduce) -> None:
        with self.nested():
            value = reduce_wave(self, s)
            self.scope.fleeting.clear()
            self.bind(s.var, value)
            self.statement(s.body)

    def stop(self) -> None:
        self.do("ret void")

    def _for(self, s: For) -> None:
        level = LOOP_KINDS[s.kind].level
        if not level:
            if not self.fills(s):
                super()._for(s)
            return
        if self.of_warp(s):
            return
        index = INDICES.index(s.kind[-1])
        there = self.launch.blocks[index] if level == "block" else self.launch.threads[index]
        number = self._index(level, index)
        is_all = s.extent is there or (isinstance(s.extent, Const) and s.extent.value == there)
        with self.nested():
            variable = Var(s.var.name, s.var.type)
            self.bind(variable, number)
            self.nonnegative.add(variable)
            self.binds_number(s.var, s)
            self._bind_loop(s, self.value(Binary("add", s.start, variable)))
            self.statement(s.body if is_all else If(variable < s.extent, s.body))

    def _index(self, level: str, index: int) -> str:
        """The number of this block, or of this thread in its block."""
        launch = self.launch
        most = launch.threads[index] if level == "thread" else _GRID[index]
        if level == "block":
            blocks = launch.blocks[index]
            most = int(blocks.value) if isinstance(blocks, Const) and blocks.value > 0 else most
        key = level, index
        scope = self.scope
        while scope.parent is not None:
            scope = scope.parent
        if key not in scope.values:
            register = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[level]}.{INDICES[index]}"
            short, wide = self.name("n"), self.name("n")
            self.allocas.append(f"  {short} = call range(i32 0, {most}) i32 @{register}()")
            self.allocas.append(f"  {wide} = zext nneg i32 {short} to i64")
            scope.values[key] = wide
        return scope.values[key]

    def vector_align(self, size: int, lanes: int) -> int:
        """As `loop.passes.vector_copies` makes vectors."""
        return size * lanes

    def number_in_warp(self) -> str:
        return self._index("thread", 0)

    def _parallel(self, s: For) -> None:
        """A thread runs all iterations."""
        start, end = self.value(s.start), self.value(Binary("add", s.start, s.extent))
        nonempty = "" if isinstance(s.extent, Const) else self.emit(f"icmp slt i64 {start}, {end}")
        self._loop(s, start, end, nonempty)

    def _allocate(self, s: Allocate) -> None:
        if SCOPES[s.buffer.scope].owner == "block":
            self.statement(s.body)
        else:
            super()._allocate(s)


def emit(
    func: Func,
    target: Target,
    symbol: str | None = None,
    *,
    shared: Collection[int] = (),
    strict: bool = False,
) -> Kernel:
    """LLVM text of the launches of `func` (stage "final", scalar and serial or bound loops).

    symbol: defaults to the function's name, made an identifier.
    shared: by number, the buffer parameters of which two may be the same memory.
    strict: products are rounded before they are added.

    Raises ScheduleError for what the device has not.
    """
    assert target.device is not None
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", symbol or func.name)
    found = launches(func)
    check_limits(func, found, target.device)
    survey = Survey()
    survey.statement(func.body)
    workspace = plan_workspace(func)
    overlapping = workspace.overlapping() | {func.buffers[i] for i in shared}
    module = Module(symbol, target, survey, workspace, overlapping, strict)
    definitions: list[str] = []
    calls: list[LaunchCall] = []
    for n, launch in enumerate(found):
        check_assertions(launch)
        name = f"{symbol}_{n}"
        definitions += _definition(func, launch, module, name)
        stops = any(isinstance(s, Assert) for s in walk(launch.body))
        calls.append(LaunchCall(name, launch.blocks, launch.threads, stops))
    assert not module.libm  # `expand_math` leaves none
    parts = [
        f"; {func.name}",
        *([fail_function(symbol)] if module.messages else []),
        *module.functions,
        *definitions,
        *declarations(module),
        "attributes #0 = { nounwind }",
    ]
    text = "\n\n".join(parts) + "\n"
    doubles = any(n.dtype is f64 for e in exprs(func.body) for n in post_order(e))
    launched = DeviceKernel(
        symbol,
        text,
        frozenset(),
        workspace.shared_bytes,
        tuple(module.messages),
        tuple(calls),
        doubles,
        strict,
    )
    return Kernel(symbol, text, workspace.shared_bytes, 0, launched.messages, launched)


def _definition(func: Func, launch: Launch, module: Module, symbol: str) -> list[str]:
    """The variables in shared memory, and the function, of a launch."""
    top = _LaunchEmitter(module, launch, symbol)
    params = parameters(func, top)
    for buffer, (_, name) in zip(func.buffers, params, strict=False):
        top.pointers[buffer] = name
    for v, (_, name) in zip(
        (p for p in func.params if isinstance(p, Var)), params[len(func.buffers) :], strict=False
    ):
        bind_scalar(top, v, name)
    for s in walk(func.body):  # memory around launches is the kernel's
        if isinstance(s, Allocate) and s.buffer.scope == "heap":
            top.pointers[s.buffer] = top.heap(s.buffer)
    top.statement(launch.body)
    top.do("ret void")
    first = BY_NAME["failure_code"].offset
    top.allocas.insert(0, f"  %context = getelementptr i8, ptr %report, i64 {-first}")
    *given, (type_, _) = params
    text = ", ".join(f"{t} {n}" for t, n in [*given, (type_, "%report")])
    threads = ",".join(map(str, launch.threads))
    words = f'"nvvm.reqntid"="{threads}" "nvvm.minctasm"="{_resident(launch)}"'
    return [*top.globals, top.function(f"ptx_kernel void @{symbol}({text}) {words}")]


def _resident(launch: Launch) -> int:
    """Blocks that shall fit on a multiprocessor at once: the assembler may use the registers that
    these leave, neither more, nor fewer with spills.
    """
    threads = -(-prod(launch.threads) // _WARP) * _WARP
    fitting = _FILE // (threads * (launch.registers + _SCALARS))
    return min(max(fitting, 1), _MOST_RESIDENT)


def with_text(kernel: Kernel, text: str) -> Kernel:
    """A kernel with the text that its device takes."""
    assert kernel.parts is not None
    return replace(kernel, parts=replace(kernel.parts, text=text))
