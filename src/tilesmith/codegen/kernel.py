"""Kernels as data: the compiler's job, the generated text, and the object code.

Jobs and object code convert to bytes, for other processes and the cache on disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.parse import parse_expr
from tilesmith.ir.target import Target
from tilesmith.ir.text import print_expr
from tilesmith.ir.types import Dim
from tilesmith.loop.nodes import For
from tilesmith.perf.info import KernelInfo
from tilesmith.support.errors import ScheduleError
from tilesmith.support.options import Options
from tilesmith.te.knobs import Value, values_from_json


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """One launch of a kernel for a device.

    symbol: name of the launch's function.
    blocks: numbers of blocks along x, y and z, as expressions of the kernel's scalar parameters.
    threads: numbers of threads of a block along x, y and z.
    stops: whether an assertion that fails in this launch must prevent later launches.
    """

    symbol: str
    blocks: tuple[Expr, Expr, Expr]
    threads: tuple[int, int, int]
    stops: bool


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel for a device, without the headers and helpers that all kernels in one text share.

    symbol: the kernel's name.
    text: the definitions of the launches.
    helpers: names of the helpers that the launches call.
    workspace_bytes: bytes of memory at the workspace argument.
    messages: texts of the assertions, in order.
    launches: the launches, in order.
    has_doubles: whether the kernel computes with doubles.
    is_strict: whether products are rounded before they are added.
    """

    symbol: str
    text: str
    helpers: frozenset[str]
    workspace_bytes: Dim
    messages: tuple[str, ...]
    launches: tuple[LaunchCall, ...]
    has_doubles: bool
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a kernel's function, with the facts that its caller needs.

    symbol: the kernel's name.
    text: the module for a compiler: LLVM's language, C or OpenCL C.
    workspace_bytes_shared: bytes of memory at the workspace argument, a multiple of 64.  The number
        may depend on the kernel's scalar parameters.
    workspace_bytes_per_thread: bytes of scratch memory of each thread.  The number may depend on
        the kernel's scalar parameters.
    messages: texts of the assertions, in order.
    parts: the launches of a kernel for a device; None for a CPU.
    """

    symbol: str
    text: str
    workspace_bytes_shared: Dim
    workspace_bytes_per_thread: Dim
    messages: tuple[str, ...]
    parts: DeviceKernel | None = None


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Object code of one kernel, with the facts that its caller needs.

    symbol: the kernel's name.
    code: object code.
    workspace: bytes of shared workspace.
    workspace_per_thread: bytes of scratch memory per thread.
    messages: texts of its assertions.
    info: descriptions for users.
    symbols: the size symbols of the fused body, in its order.  The workspaces may depend on them.
    scalars: for each scalar parameter of the kernel, the index of its symbol.
    """

    symbol: str
    code: bytes
    workspace: Dim
    workspace_per_thread: Dim
    messages: tuple[str, ...]
    info: KernelInfo
    symbols: tuple[Var, ...] = ()
    scalars: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        name = {v: f"s{i}" for i, v in enumerate(self.symbols)}
        sizes = [
            n if isinstance(n, int) else print_expr(n, lambda v: name[v])  # type: ignore[index]  # sizes read no buffer
            for n in (self.workspace, self.workspace_per_thread)
        ]
        about = [self.messages, self.info.to_json(), len(self.symbols), self.scalars]
        return with_head([self.symbol, *sizes, *about], self.code)

    @staticmethod
    def from_bytes(blob: bytes) -> KernelCode:
        (symbol, *sizes, messages, info, count, scalars), code = without_head(blob)
        symbols = {f"s{i}": Var(f"s{i}") for i in range(count)}
        shared, own = (n if isinstance(n, int) else parse_expr(n, symbols) for n in sizes)
        return KernelCode(
            symbol,
            code,
            shared,
            own,
            tuple(messages),
            KernelInfo.from_json(info),
            tuple(symbols.values()),
            tuple(scalars),
        )


@dataclass(frozen=True, slots=True)
class KernelJob:
    """A kernel to compile.

    text: text of the fused group, or of the loop nest.
    options: options of the compilation.
    target: the machine.
    decisions: the schedule's decisions, if they are not those of the analytic rules.
    nest: whether `text` is a loop nest, not a fused group.
    cache_dir: folder of the kernel cache, which is searched first and then keeps the result.
    """

    text: str
    options: Options
    target: Target
    decisions: Mapping[str, Value] = field(default_factory=dict)
    nest: bool = False
    cache_dir: Path | None = None

    def to_bytes(self) -> bytes:
        options = {
            f.name: getattr(self.options, f.name)
            for f in fields(Options)
            if f.metadata["affects_code"] or f.name == "cache_bytes"
        }
        rest = [dict(self.decisions), self.nest, self.cache_dir and str(self.cache_dir)]
        return json.dumps([self.text, options, self.target.to_json(), *rest]).encode()

    @staticmethod
    def from_bytes(blob: bytes) -> KernelJob:
        text, options, target, decisions, nest, cache = json.loads(blob)
        options, chosen = Options(**options, use_cache=False), values_from_json(decisions)
        folder = Path(cache) if cache else None
        return KernelJob(text, options, Target.from_json(target), chosen, nest, folder)


def with_head(head: Any, body: bytes) -> bytes:
    """Prepend JSON values to bytes."""
    encoded = json.dumps(head).encode()
    return len(encoded).to_bytes(4, "little") + encoded + body


def without_head(blob: bytes) -> tuple[Any, bytes]:
    """The two arguments of `with_head`, from its result."""
    end = 4 + int.from_bytes(blob[:4], "little")
    return json.loads(blob[4:end]), blob[end:]


def check_unbound(loop: For) -> None:
    """Raises ScheduleError for a loop over a device's blocks or threads, which no CPU has."""
    if LOOP_KINDS[loop.kind].level:
        raise ScheduleError(
            f"loop {loop.var.name} is bound to {loop.kind}, and the target is a CPU: use "
            "parallel(axis) for loops that threads of a CPU share"
        )
