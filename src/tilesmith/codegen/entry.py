"""The native main function of a program: its kernels in order, in one call.

    i32 @tilesmith_main(ptr context)

It checks that the context fits, runs the kernels, and returns the code of the first failure, which
is recorded in the context (see `runtime/csrc/tilesmith.h`).  If some sizes are known to a run only,
it first computes them (see `codegen.sizes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .context import ABI, BY_NAME, SIZE, Code, address
from .sizes import ARENA, SCRATCH, SIZES

ENTRY = "tilesmith_main"

ArgKind = Literal["input", "output", "constant", "arena", "scalar", "place", "extent"]


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of a kernel.

    kind: what `index` means.
    index: number of an input or output; byte offset into the constants or the arena; the scalar
        itself; or, of a "place" in the arena and an "extent", the number of the value that
        `codegen.sizes` computes.
    offset: bytes from the start of an input or output.
    """

    kind: ArgKind
    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel run by a program.

    symbol: the kernel's name.
    args: buffers in the kernel's order, then scalars.
    label: for people: the source model's node.
    workspace: the kernel's shared workspace, an "arena" or a "place".
    messages: of its assertions.
    sources: all nodes of the source model that it computes.
    """

    symbol: str
    args: tuple[Arg, ...]
    label: str = ""
    workspace: Arg = Arg("arena", 0)
    messages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def emit_entry(
    calls: Sequence[KernelCall],
    symbol: str = ENTRY,
    times: int | None = None,
    clock: int = 0,
    *,
    arena_bytes: int = 0,
    scratch_bytes: int = 0,
    sizes: int = 0,
) -> str:
    """LLVM text of the main function for `calls`.

    times: number of the output that receives the time of the C library's clock number `clock`
        before the first call and after each, as an array of `timespec`s; None for no times.
    arena_bytes: bytes of the arena that the calls need.
    scratch_bytes: bytes of scratch memory that each thread needs.
    sizes: how many values `codegen.sizes` computes first, which then say how many bytes are needed;
        0 if all sizes are numbers.
    """
    used = {(a.kind, a.index) for c in calls for a in (*c.args, c.workspace)}
    lines = [f"define i32 @{symbol}(ptr %context) nounwind {{", "entry:", *_checks()]
    needed = {"arena_bytes": str(arena_bytes), "scratch_bytes": str(scratch_bytes)}
    if sizes:
        lines += _compute_sizes(sizes)
        needed = {
            "arena_bytes": _size_value(lines, ARENA),
            "scratch_bytes": _size_value(lines, SCRATCH),
        }
    for name, least in needed.items():
        lines += _check_memory(name, least) if least != "0" else []
    for name in ("inputs", "outputs", "constants", "arena"):
        lines += _load(name)
    for kind in ("input", "output"):
        for i in sorted(i for k, i in used if k == kind):
            lines.append(f"  %{kind}.p{i} = getelementptr ptr, ptr %{kind}s, i64 {i}")
            lines.append(f"  %{kind}{i} = load ptr, ptr %{kind}.p{i}, align 8")
    if times is not None:
        lines.append(f"  %times.p = getelementptr ptr, ptr %outputs, i64 {times}")
        lines.append("  %times = load ptr, ptr %times.p, align 8")
        lines += _stamp(0, clock)
    for k, i in sorted((k, i) for k, i in used if k in ("place", "extent")):
        _size_value(lines, i, k)
    for n, call in enumerate(calls):
        operands = [_operand(lines, n, i, a) for i, a in enumerate((*call.args, call.workspace))]
        run = f"call i32 @{call.symbol}({', '.join([*operands, 'ptr %context'])})"
        if not call.messages:  # it can't fail
            lines.append(f"  {run}")
            lines += _stamp(n + 1, clock) if times is not None else []
            continue
        lines.append(f"  %s{n} = {run}")
        lines += _stamp(n + 1, clock) if times is not None else []
        lines += [
            f"  %f{n} = icmp ne i32 %s{n}, 0",
            f"  br i1 %f{n}, label %fail{n}, label %ok{n}",
            f"fail{n}:",
            f"  %c{n} = {address('failure_call')}",
            f"  store i32 {n}, ptr %c{n}",
            f"  ret i32 %s{n}",
            f"ok{n}:",
        ]
    lines += ["  ret i32 0", "}", "", *_declarations(calls)]
    if times is not None:
        lines.append("declare i32 @clock_gettime(i32, ptr)")
    if sizes:
        lines.append(f"declare i32 @{SIZES}(ptr, ptr)")
    return "\n".join(lines) + "\n"


def _load(name: str) -> list[str]:
    """A field of the context as a value of the same name."""
    type_ = {"u32": "i32"}.get(BY_NAME[name].type, BY_NAME[name].type)
    return [
        f"  %{name}.p = {address(name)}",
        f"  %{name} = load {type_}, ptr %{name}.p",
    ]


def _checks() -> list[str]:
    """Return unless the context is of this version; clear the failure."""
    return [
        *_load("abi"),
        *_load("size"),
        f"  %abi.ok = icmp eq i32 %abi, {ABI}",
        f"  %size.ok = icmp uge i32 %size, {SIZE}",
        "  %version.ok = and i1 %abi.ok, %size.ok",
        "  br i1 %version.ok, label %known, label %unknown",
        "unknown:",
        f"  ret i32 {Code.VERSION:d}",
        "known:",
        f"  %code.p = {address('failure_code')}",
        f"  store i32 {Code.OK:d}, ptr %code.p",
        f"  %call.p = {address('failure_call')}",
        "  store i32 0, ptr %call.p",
    ]


def _compute_sizes(count: int) -> list[str]:
    """Compute the `count` values of the sizes; return if they are refused."""
    return [
        *_load("extents"),
        f"  %values = alloca [{count} x i64], align 8",
        f"  %refused = call i32 @{SIZES}(ptr %extents, ptr %values)",
        "  %sizes.ok = icmp eq i32 %refused, 0",
        "  br i1 %sizes.ok, label %sized, label %unsized",
        "unsized:",
        "  store i32 %refused, ptr %code.p",
        "  ret i32 %refused",
        "sized:",
    ]


def _size_value(lines: list[str], number: int, name: str = "value") -> str:
    """A value of the sizes, as `%name<number>`."""
    lines.append(f"  %{name}.p{number} = getelementptr i64, ptr %values, i64 {number}")
    lines.append(f"  %{name}{number} = load i64, ptr %{name}.p{number}, align 8")
    return f"%{name}{number}"


def _check_memory(name: str, needed: str) -> list[str]:
    """Return unless a field of the context is at least `needed` bytes."""
    lines = [
        *_load(name),
        f"  %{name}.ok = icmp sge i64 %{name}, {needed}",
        f"  br i1 %{name}.ok, label %{name}.fits, label %{name}.small",
        f"{name}.small:",
        f"  store i32 {Code.MEMORY:d}, ptr %code.p",
        f"  %{name}.count = {address('failure_count')}",
        f"  store i32 2, ptr %{name}.count",
    ]
    for i, value in enumerate((needed, f"%{name}")):
        lines.append(f"  %{name}.v{i} = {address('failure_values', i)}")
        lines.append(f"  store i64 {value}, ptr %{name}.v{i}")
    return [*lines, f"  ret i32 {Code.MEMORY:d}", f"{name}.fits:"]


def _stamp(n: int, clock: int) -> list[str]:
    """Store the time as number `n`."""
    return [
        f"  %t{n} = getelementptr i8, ptr %times, i64 {16 * n}",
        f"  call i32 @clock_gettime(i32 {clock}, ptr %t{n})",
    ]


def _operand(lines: list[str], call: int, position: int, arg: Arg) -> str:
    if arg.kind in ("input", "output") and not arg.offset:
        return f"ptr %{arg.kind}{arg.index}"
    if arg.kind == "scalar":
        return f"i64 {arg.index}"
    if arg.kind == "extent":
        return f"i64 %extent{arg.index}"
    base, offset = "%constants" if arg.kind == "constant" else "%arena", str(arg.index)
    if arg.kind == "place":
        offset = f"%place{arg.index}"
    if arg.kind in ("input", "output"):
        base, offset = f"%{arg.kind}{arg.index}", str(arg.offset)
    lines.append(f"  %a{call}.{position} = getelementptr i8, ptr {base}, i64 {offset}")
    return f"ptr %a{call}.{position}"


def _declarations(calls: Iterable[KernelCall]) -> list[str]:
    signatures: dict[str, str] = {}
    for c in calls:
        types = ["i64" if a.kind in ("scalar", "extent") else "ptr" for a in c.args]
        signatures[c.symbol] = ", ".join([*types, "ptr", "ptr"])
    return [f"declare i32 @{name}({types})" for name, types in signatures.items()]
