"""The native main function of a program: its kernels in order, in one call.

    i32 @tilesmith_main(ptr inputs, ptr outputs, ptr constants, ptr arena, ptr rt)

`inputs` and `outputs` are arrays of pointers.  Returns 0, or 1 + the number of the assertion that
failed, counting the assertions of all calls one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

ENTRY = "tilesmith_main"

ArgKind = Literal["input", "output", "constant", "arena", "scalar"]


@dataclass(frozen=True, slots=True)
class Arg:
    """What a kernel receives: input or output number `index` (from byte `offset` on), the byte
    offset `index` into the constants or the arena, or the number `index` itself.
    """

    kind: ArgKind
    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel run by a program.

    `args`: buffers in the kernel's order, then scalars.  `label`: what people see (the source
    model's node). `workspace`: byte offset of the kernel's shared workspace in the arena.
    `messages`: its assertions.  `sources`: all nodes of the source model that it computes.
    """

    symbol: str
    args: tuple[Arg, ...]
    label: str = ""
    workspace: int = 0
    messages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def emit_entry(
    calls: Sequence[KernelCall], symbol: str = ENTRY, times: int | None = None, clock: int = 0
) -> str:
    """LLVM text of the main function for `calls`.

    With `times`, output number `times` receives the time of the C library's clock number `clock`
    before the first call and after each: an array of `timespec`s.
    """
    used = {(a.kind, a.index) for c in calls for a in c.args}
    lines = [
        f"define i32 @{symbol}(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena, ptr %rt) "
        f"nounwind {{",
        "entry:",
    ]
    for kind in ("input", "output"):
        for i in sorted(i for k, i in used if k == kind):
            lines.append(f"  %{kind}.p{i} = getelementptr ptr, ptr %{kind}s, i64 {i}")
            lines.append(f"  %{kind}{i} = load ptr, ptr %{kind}.p{i}, align 8")
    if times is not None:
        lines.append(f"  %times.p = getelementptr ptr, ptr %outputs, i64 {times}")
        lines.append("  %times = load ptr, ptr %times.p, align 8")
        lines += _stamp(0, clock)
    base = 0
    for n, call in enumerate(calls):
        operands = [_operand(lines, n, i, a) for i, a in enumerate(call.args)]
        lines.append(f"  %w{n} = getelementptr i8, ptr %arena, i64 {call.workspace}")
        run = f"call i32 @{call.symbol}({', '.join([*operands, f'ptr %w{n}', 'ptr %rt'])})"
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
            f"  %c{n} = add i32 %s{n}, {base}",
            f"  ret i32 %c{n}",
            f"ok{n}:",
        ]
        base += len(call.messages)
    lines += ["  ret i32 0", "}", "", *_declarations(calls)]
    if times is not None:
        lines.append("declare i32 @clock_gettime(i32, ptr)")
    return "\n".join(lines) + "\n"


def _stamp(n: int, clock: int) -> list[str]:
    """Note the time as number `n`."""
    return [
        f"  %t{n} = getelementptr i8, ptr %times, i64 {16 * n}",
        f"  call i32 @clock_gettime(i32 {clock}, ptr %t{n})",
    ]


def _operand(lines: list[str], call: int, position: int, arg: Arg) -> str:
    if arg.kind in ("input", "output") and not arg.offset:
        return f"ptr %{arg.kind}{arg.index}"
    if arg.kind == "scalar":
        return f"i64 {arg.index}"
    base, offset = "%constants" if arg.kind == "constant" else "%arena", arg.index
    if arg.kind in ("input", "output"):
        base, offset = f"%{arg.kind}{arg.index}", arg.offset
    lines.append(f"  %a{call}.{position} = getelementptr i8, ptr {base}, i64 {offset}")
    return f"ptr %a{call}.{position}"


def _declarations(calls: Iterable[KernelCall]) -> list[str]:
    signatures: dict[str, str] = {}
    for c in calls:
        types = ["i64" if a.kind == "scalar" else "ptr" for a in c.args]
        signatures[c.symbol] = ", ".join([*types, "ptr", "ptr"])
    return [f"declare i32 @{name}({types})" for name, types in signatures.items()]
