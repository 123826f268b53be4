"""Loop IR to OpenCL C 1.2.

Each launch of a function (see `loop.launches`) becomes one kernel

    __kernel void symbol_number(__global buffers..., long scalars..., __global char *workspace,
                                __global struct tilesmith_context *context)

Each memory argument is an object of the driver and an offset in bytes.

The variables of loops that are bound to blocks and threads become indices of work-groups and
work-items.  Shared memory is `__local`, and barriers order accesses to it.  Barriers also order
accesses to global memory, if a thread of a launch reads results of another thread there.
Everything else is C (see `codegen.c.emit`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from tilesmith.codegen.c.builder import Builder
from tilesmith.codegen.c.dialect import Dialect
from tilesmith.codegen.c.emit import Statements, comment, shown_parameter
from tilesmith.codegen.c.prelude import MEMORY_TYPES, VALUE_TYPES
from tilesmith.codegen.kernel import DeviceKernel, Kernel, LaunchCall
from tilesmith.ir.device import Device
from tilesmith.ir.dtypes import f64
from tilesmith.ir.expr import Binary, Const, Var, post_order
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim
from tilesmith.loop.facts import in_loop
from tilesmith.loop.launches import (
    INDICES,
    Launch,
    changes_what_it_reads,
    check_assertions,
    check_limits,
    launches,
)  # fmt: skip
from tilesmith.loop.nodes import (
    Allocate,
    Assert,
    AsyncGroup,
    Barrier,
    Buffer,
    For,
    Func,
    Wait,
    WaveReduce,
)  # fmt: skip
from tilesmith.loop.passes.workspace import element_count
from tilesmith.loop.visit import exprs, walk
from tilesmith.strategy.group import STEP
from tilesmith.support.errors import ScheduleError

from .prelude import DOUBLES, FIRST, HEADERS, RESERVED, ROUNDED, SHUFFLE, definitions


class _Launch:
    """The writers for the statements of one launch."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._bound: set[Var] = set()
        fences = "CLK_LOCAL_MEM_FENCE"
        if changes_what_it_reads(launch):
            fences += " | CLK_GLOBAL_MEM_FENCE"
        self.dialect = Dialect(
            "OpenCL C",
            RESERVED,
            float_suffix="",
            memory="__global ",
            is_first=FIRST,
            failed="return;",
            pointer=_pointer,
            own_parameters=_own_parameters,
            statements={
                For: self._for,
                Allocate: self._allocate,
                Barrier: lambda f, s: f.b.line(f"barrier({fences});"),
                AsyncGroup: lambda f, s: f.statement(s.body),  # copies are synchronous
                Wait: lambda f, s: None,
                WaveReduce: _wave_reduce,
            },
        )

    def memory(self, f: Statements, func: Func) -> None:
        """The declarations at the top of a kernel: shared memory, and the workspace."""
        for b in self._launch.shared:
            size = max(element_count(b), 1)
            f.b.line(f"__local {MEMORY_TYPES[b.dtype.name]} {f.names(b)}[{size}];")
        for s in walk(func.body):
            if isinstance(s, Allocate) and s.buffer.scope == "heap":
                f.declare(s.buffer)

    def _for(self, f: Statements, s: For) -> None:
        level = LOOP_KINDS[s.kind].level
        if not level:
            f.plain(s)
            return
        index, values = INDICES.index(s.kind[-1]), f.values
        values.begin((s.start, s.extent))
        number = f"get_{'group' if level == 'block' else 'local'}_id({index})"
        there = self._launch.blocks[index] if level == "block" else self._launch.threads[index]
        is_all = s.extent is there or (isinstance(s.extent, Const) and s.extent.value == there)
        outer, start = values.context, s.start
        values.context = in_loop(outer, s)
        first = "" if isinstance(start, Const) and not start.value else f"{f.text(start)} + "
        if s.var in self._bound:  # an earlier copy of this loop has bound the variable
            f.names.renew(s.var)
        self._bound.add(s.var)
        type_ = VALUE_TYPES[s.var.dtype.name]
        f.b.line(f"const {type_} {f.names(s.var)} = {first}({type_}){number};")
        if is_all:
            f.statement(s.body)
        else:
            f.b.line(f"if (({type_}){number} < {f.text(s.extent)}) {{")
            f.inside(s.body)
            f.b.line("}")
        values.context = outer

    def _allocate(self, f: Statements, s: Allocate) -> None:
        owner = SCOPES[s.buffer.scope].owner
        if owner == "warp":
            raise ScheduleError(
                f"{s.buffer.name} is in scope {s.buffer.scope!r}, which the target lacks: a warp "
                "holds it in registers; use 'shared' or 'register'"
            )
        if owner == "thread":
            f.plain(s)
        else:  # declared at the top of the kernel
            f.statement(s.body)


def _pointer(b: Builder, buffer: Buffer, type_: str, restrict: str) -> list[str]:
    name, base = b.names(buffer), b.names.fresh(f"{buffer.name}_memory")
    start = b.names.fresh(f"{buffer.name}_start")
    place = f"(__global {type_} *)((__global const char *){base} + {start})"
    b.line(f"__global {type_} *{restrict}const {name} = {place};")
    return [f"__global {type_} *{base}", f"const long {start}"]


def _own_parameters(b: Builder) -> list[str]:
    b.line("__global char *const workspace = workspace_memory + workspace_start;")
    return ["__global char *workspace_memory", "const long workspace_start",
            "__global struct tilesmith_context *context"]  # fmt: skip


def _wave_reduce(f: Statements, s: WaveReduce) -> None:
    """Combine the values of the threads of a group in rounds.  In each round, a thread combines its
    value with that of the thread whose number differs in one bit.
    """
    f.values.begin((s.value,))
    dtype, own = s.value.dtype, Var(s.var.name, s.value.dtype)
    f.values.local(own, s.value)
    f.b.helpers.add(SHUFFLE)
    distance = s.lanes // 2
    while distance:
        other, made = Var("other", dtype), Var(s.var.name, dtype)
        both = Binary(s.op, own, other)
        read = f"{SHUFFLE}({f.names(own)}, {distance})"
        f.b.line(f"const {VALUE_TYPES[dtype.name]} {f.names(other)} = {read};")
        f.values.wrapping.add(other)
        f.values.begin((both,))
        f.values.local(made, both)
        own, distance = made, distance // 2
    f.names.alias(s.var, f.names(own))
    f.values.wrapping.add(s.var)
    f.statement(s.body)


def write(
    func: Func, device: Device, symbol: str | None = None, *, shared: Collection[int] = ()
) -> DeviceKernel:
    """The launches of `func`, which must be of stage "final", without vectors, with serial or bound
    loops.

    symbol: defaults to the function's name, made an identifier.
    shared: numbers of the buffer parameters that may share memory with one another.

    Raises ScheduleError for features that the device lacks.
    """
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", symbol or func.name)
    ordered = launches(func)
    check_limits(func, ordered, device)
    about = [f"{func.name}({', '.join(shown_parameter(p) for p in func.params)})"]
    about += [f"{key}: {value}" for key, value in func.attrs if key != STEP]
    texts, calls = [comment("\n * ".join(about))], []
    messages: list[str] = []
    helpers: set[str] = set()
    size: Dim = 0
    for n, launch in enumerate(ordered):
        check_assertions(launch)
        how = _Launch(launch)
        writer = Statements(func, shared, how.dialect)
        writer.b.messages = messages
        size = writer.workspace.shared_bytes
        params = writer.parameters(func)
        how.memory(writer, func)
        writer.statement(launch.body)
        block = ", ".join(map(str, launch.threads))
        texts += [
            f"__kernel __attribute__((reqd_work_group_size({block})))",
            f"void {symbol}_{n}(",
            ",\n".join(f"    {p}" for p in params) + ") {",
            *writer.b.lines,
            "}\n",
        ]
        helpers |= writer.b.helpers
        stops = any(isinstance(s, Assert) for s in walk(launch.body))
        calls.append(LaunchCall(f"{symbol}_{n}", launch.blocks, launch.threads, stops))
    doubles = _has_doubles(func)
    if doubles and not device.has_f64:
        raise ScheduleError(f"'{func.name}' computes with f64, which the device has not; use f32")
    text = "\n".join(texts)
    return DeviceKernel(
        symbol, text, frozenset(helpers), size, tuple(messages), tuple(calls), doubles
    )


def translation_unit(kernels: Iterable[DeviceKernel]) -> str:
    """One text with the kernels and their helpers.  If one kernel is strict, all are compiled as
    strict.
    """
    kernels = tuple(kernels)
    called: set[str] = set().union(*(k.helpers for k in kernels))
    head = ROUNDED if any(k.is_strict for k in kernels) else ""
    head += DOUBLES if any(k.has_doubles for k in kernels) else ""
    return f"{head}{HEADERS}\n{definitions(called)}" + "\n".join(k.text for k in kernels)


def kernel_of(p: DeviceKernel, text: str) -> Kernel:
    """The `Kernel` for one device kernel of a text."""
    return Kernel(p.symbol, text, p.workspace_bytes, 0, p.messages, p)


def emit(
    func: Func, target: Target, *, shared: Collection[int] = (), strict: bool = False
) -> Kernel:
    """A text that contains only the launches of `func` (see `write`).

    strict: whether products are rounded before they are added.

    Raises ScheduleError for features that the device lacks.
    """
    assert target.device is not None
    parts = replace(write(func, target.device, shared=shared), is_strict=strict)
    return kernel_of(parts, translation_unit([parts]))


def _has_doubles(func: Func) -> bool:
    return any(n.dtype is f64 for e in exprs(func.body) for n in post_order(e)) or any(
        b.dtype is f64 for b in func.buffers
    )
