"""The LLVM module of one kernel under construction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.loop.passes.workspace import Workspace, element_count, is_constant, plan_workspace

from .keep_alive import Breaks, breaks
from .survey import Survey


@dataclass(slots=True)
class Module:
    """State that the functions of one kernel share.

    symbol: the kernel's name.
    target: the machine.
    survey: the kernel's uses of its buffers.
    workspace: offsets of heap buffers.
    overlapping: buffers that share memory with another one.
    breaks: loops that must run keep-alive code (see `keep_alive`).
    strict: whether results must equal the interpreter's bit for bit.
    streamed: buffers to be written by streaming stores.
    functions: definitions of the functions written so far.
    messages: texts of the assertions, in order.
    libm: functions of the C library that are called.
    called: argument types of other called functions, by symbol.
    outlined: symbols of the mathematical functions that this module defines, by name and lanes.
    streams: whether a streaming store was written.
    """

    symbol: str
    target: Target
    survey: Survey
    workspace: Workspace
    overlapping: frozenset[Buffer]
    breaks: Breaks = field(default_factory=dict)
    strict: bool = False
    streamed: frozenset[Buffer] = frozenset()
    functions: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    libm: set[tuple[str, str, int]] = field(default_factory=set)
    called: dict[str, str] = field(default_factory=dict)
    outlined: dict[tuple[str, int], str] = field(default_factory=dict)
    streams: bool = False

    def pointer_type(self, buffer: Buffer) -> str:
        """`ptr` with the known attributes of the buffer."""
        words = ["ptr"]
        if buffer not in self.overlapping:
            words.append("noalias")
        if buffer not in self.survey.written:
            words.append("readonly")
        if is_constant(buffer):
            size = buffer.dtype.bytes * element_count(buffer)
            if size:
                words.append(f"dereferenceable({size})")
        return " ".join(words)


def module_of(
    func: Func, target: Target, symbol: str, shared: Collection[int] = (), strict: bool = False
) -> Module:
    """The module for `func`, still without functions.  `shared` and `strict` are as for `emit`."""
    survey = Survey()
    survey.statement(func.body)
    workspace = plan_workspace(func)
    overlapping = workspace.overlapping() | {func.buffers[i] for i in shared}
    kept = breaks(func.body, target.model)
    return Module(symbol, target, survey, workspace, overlapping, kept, strict)
