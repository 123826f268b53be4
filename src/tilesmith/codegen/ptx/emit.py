"""Loop IR to LLVM text for NVIDIA's GPUs.

Each launch of a function (see `loop.launches`) becomes one kernel

    ptx_kernel void @symbol_number(ptr buffers..., i64 scalars..., ptr workspace, ptr report)

The variables of loops that are bound to blocks and threads are read from special registers.  Shared
memory becomes variables in address space 3.  Everything else is written as for a CPU, and LLVM
infers the address spaces of pointers.  `report` is the last part of the context, in which failures
are recorded.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from math import prod

from tilesmith.codegen.assertions import fail_function
from tilesmith.codegen.builder import Builder
from tilesmith.codegen.context import BY_NAME
from tilesmith.codegen.emit import bind_parameters, declarations
from tilesmith.codegen.hooks import Hooks
from tilesmith.codegen.kernel import DeviceKernel, Kernel, LaunchCall
from tilesmith.codegen.llvm_text import memory_type
from tilesmith.codegen.module import Module, module_of
from tilesmith.codegen.statements import Statements
from tilesmith.ir.dtypes import f64
from tilesmith.ir.expr import Binary, Const, Var, post_order
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.target import Target
from tilesmith.loop.launches import INDICES, Launch, check_assertions, check_limits, launches
from tilesmith.loop.nodes import (
    Allocate,
    Assert,
    AsyncGroup,
    Barrier,
    Buffer,
    For,
    Func,
    If,
    Store,
    Wait,
    WaveReduce,
)  # fmt: skip
from tilesmith.loop.passes.workspace import element_count
from tilesmith.loop.visit import exprs, walk
from tilesmith.perf.warps import WARP

from .copies import Copies
from .fragments import Fragments, check_operand
from .shuffles import reduce_wave

_REGISTERS = {"block": "ctaid", "thread": "tid"}
_BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
_FILE = 1 << 16
"""Number of 32-bit registers of a multiprocessor."""

_MOST_RESIDENT = 16
"""Number of blocks that a multiprocessor of every architecture can hold at once."""

_SCALARS = 72
"""Estimated registers of a thread for addresses, indices and operands, besides its register
buffers.
"""

_GRID = (1 << 31) - 1, 65535, 65535
"""Upper bounds on the blocks of a launch along x, y and z."""


class _Launch:
    """The writers for the statements of one launch."""

    def __init__(self, launch: Launch, module: Module) -> None:
        self._launch = launch
        self._fragments = Fragments(launch)
        self._copies = Copies(module.target)
        statements = {
            For: self._for, If: self._copies.branch, Store: self._store,
            Allocate: self._allocate, Barrier: _barrier, WaveReduce: _wave_reduce,
            AsyncGroup: self._copies.group, Wait: self._copies.wait,
        }  # fmt: skip
        self.hooks = Hooks(
            statements=statements,
            has_threads=False,  # each thread runs all iterations of a parallel loop
            stop="ret void",
            # vector accesses come from `vector_copies`, which aligns them to their size
            vector_align=lambda size, lanes: size * lanes,
            thread_number=lambda b: self._index(b, "thread", 0),
            element=self._fragments.element,
            part=self._fragments.part,
            check_operand=check_operand,
        )

    def _for(self, f: Statements, s: For) -> None:
        level = LOOP_KINDS[s.kind].level
        if not level:
            if not self._fragments.fills(f, s):
                f.plain(s)
            return
        if self._fragments.of_warp(f, s):
            return
        index = INDICES.index(s.kind[-1])
        there = self._launch.blocks[index] if level == "block" else self._launch.threads[index]
        number = self._index(f.b, level, index)
        is_all = s.extent is there or (isinstance(s.extent, Const) and s.extent.value == there)
        with f.b.nested():
            variable = Var(s.var.name, s.var.type)
            f.env.bind(variable, number)
            f.env.nonnegative.add(variable)
            self._fragments.binds_number(s.var, s)
            f.bind_loop(s, f.value(Binary("add", s.start, variable)))
            f.statement(s.body if is_all else If(variable < s.extent, s.body))

    def _index(self, b: Builder, level: str, index: int) -> str:
        """The number of this block, or of this thread in its block."""
        launch = self._launch
        most = launch.threads[index] if level == "thread" else _GRID[index]
        if level == "block":
            blocks = launch.blocks[index]
            most = int(blocks.value) if isinstance(blocks, Const) and blocks.value > 0 else most
        key = level, index
        values = b.top().values
        if key not in values:
            register = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[level]}.{INDICES[index]}"
            short, wide = b.name("n"), b.name("n")
            b.allocas.append(f"  {short} = call range(i32 0, {most}) i32 @{register}()")
            b.allocas.append(f"  {wide} = zext nneg i32 {short} to i64")
            values[key] = wide
        return values[key]

    def _store(self, f: Statements, s: Store) -> None:
        if not self._copies.store(f, s) and not self._fragments.store(f, s):
            f.plain(s)

    def _allocate(self, f: Statements, s: Allocate) -> None:
        owner = SCOPES[s.buffer.scope].owner
        if owner not in ("block", "warp"):
            f.plain(s)
            return
        if owner == "warp":
            self._fragments.allocate(f.b, s.buffer)
        f.statement(s.body)


def _barrier(f: Statements, s: Barrier) -> None:
    f.b.do(_BARRIER)
    f.tensors.tiles.clear()


def _wave_reduce(f: Statements, s: WaveReduce) -> None:
    with f.b.nested():
        value = reduce_wave(f, s)
        f.b.scope.fleeting.clear()
        f.env.bind(s.var, value)
        f.statement(s.body)


def _shared(f: Statements, buffer: Buffer, variable: str) -> str:
    """The definition of a variable in shared memory for `buffer`."""
    f.env.pointers[buffer] = name = f.b.name("shared")
    f.b.allocas.append(f"  {name} = addrspacecast ptr addrspace(3) {variable} to ptr")
    type_ = f"[{max(element_count(buffer), 1)} x {memory_type(buffer.dtype)}]"
    return f"{variable} = internal addrspace(3) global {type_} poison, align 16"


def emit(
    func: Func,
    target: Target,
    symbol: str | None = None,
    *,
    shared: Collection[int] = (),
    strict: bool = False,
) -> Kernel:
    """LLVM text of the launches of `func`, which must be of stage "final", with serial or bound
    loops.

    symbol: defaults to the function's name, made an identifier.
    shared: numbers of the buffer parameters that may share memory with one another.
    strict: whether products are rounded before they are added.

    Raises ScheduleError for features that the device lacks.
    """
    assert target.device is not None
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", symbol or func.name)
    ordered = launches(func)
    check_limits(func, ordered, target.device)
    module = module_of(func, target, symbol, shared, strict)
    definitions: list[str] = []
    calls: list[LaunchCall] = []
    for n, launch in enumerate(ordered):
        check_assertions(launch)
        name = f"{symbol}_{n}"
        definitions += _definition(func, launch, module, name)
        stops = any(isinstance(s, Assert) for s in walk(launch.body))
        calls.append(LaunchCall(name, launch.blocks, launch.threads, stops))
    assert not module.libm  # `expand_math` leaves no C library calls for a device
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
    size, messages = module.workspace.shared_bytes, tuple(module.messages)
    launched = DeviceKernel(
        symbol, text, frozenset(), size, messages, tuple(calls), doubles, strict
    )
    return Kernel(symbol, text, size, 0, messages, launched)


def _definition(func: Func, launch: Launch, module: Module, symbol: str) -> list[str]:
    """The definitions of a launch: its variables in shared memory, and its function."""
    top = Statements(module, _Launch(launch, module).hooks)
    variables = [
        _shared(top, buffer, f"@{symbol}.shared{n}") for n, buffer in enumerate(launch.shared)
    ]
    params = bind_parameters(func, top)
    for s in walk(func.body):  # heap buffers are allocated outside of the launches
        if isinstance(s, Allocate) and s.buffer.scope == "heap":
            top.env.pointers[s.buffer] = top.memory.heap(s.buffer)
    top.statement(launch.body)
    top.b.do("ret void")
    first = BY_NAME["failure_code"].offset
    top.b.allocas.insert(0, f"  %context = getelementptr i8, ptr %report, i64 {-first}")
    *leading, (type_, _) = params
    text = ", ".join(f"{t} {n}" for t, n in [*leading, (type_, "%report")])
    threads = ",".join(map(str, launch.threads))
    words = f'"nvvm.reqntid"="{threads}" "nvvm.minctasm"="{_resident(launch)}"'
    return [*variables, top.b.function(f"ptx_kernel void @{symbol}({text}) {words}")]


def _resident(launch: Launch) -> int:
    """The number of blocks that should run on a multiprocessor at once.  It limits the registers
    per thread that the assembler may use.
    """
    threads = -(-prod(launch.threads) // WARP) * WARP
    fitting = _FILE // (threads * (launch.registers + _SCALARS))
    return min(max(fitting, 1), _MOST_RESIDENT)


def with_text(kernel: Kernel, text: str) -> Kernel:
    """`kernel`, with `text` (such as PTX) as the complete text of its device part."""
    assert kernel.parts is not None
    return replace(kernel, parts=replace(kernel.parts, text=text))
