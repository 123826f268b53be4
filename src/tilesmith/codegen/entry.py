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
    """What a kernel receives: input or output number `index`, the byte offset `index` into the
    constants or the arena, or the number `index` itself.
    """

    kind: ArgKind
    index: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel run by a program.

    `args`: buffers in the kernel's order, then scalars.  `label`: what people see (the source
    model's node). `workspace`: byte offset of the kernel's shared workspace in the arena.
    `messages`: its assertions.
    """

    symbol: str
    args: tuple[Arg, ...]
    label: str = ""
    workspace: int = 0
    messages: tuple[str, ...] = ()


def emit_entry(calls: Sequence[KernelCall], symbol: str = ENTRY) -> str:
    """LLVM text of the main function for `calls`."""
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
    base = 0
    for n, call in enumerate(calls):
        operands = [_operand(lines, n, i, a) for i, a in enumerate(call.args)]
        lines.append(f"  %w{n} = getelementptr i8, ptr %arena, i64 {call.workspace}")
        run = f"call i32 @{call.symbol}({', '.join([*operands, f'ptr %w{n}', 'ptr %rt'])})"
        if not call.messages:  # it can't fail
            lines.append(f"  {run}")
            continue
        lines += [
            f"  %s{n} = {run}",
            f"  %f{n} = icmp ne i32 %s{n}, 0",
            f"  br i1 %f{n}, label %fail{n}, label %ok{n}",
            f"fail{n}:",
            f"  %c{n} = add i32 %s{n}, {base}",
            f"  ret i32 %c{n}",
            f"ok{n}:",
        ]
        base += len(call.messages)
    lines += ["  ret i32 0", "}", "", *_declarations(calls)]
    return "\n".join(lines) + "\n"


def _operand(lines: list[str], call: int, position: int, arg: Arg) -> str:
    if arg.kind in ("input", "output"):
        return f"ptr %{arg.kind}{arg.index}"
    if arg.kind == "scalar":
        return f"i64 {arg.index}"
    base = "%constants" if arg.kind == "constant" else "%arena"
    lines.append(f"  %a{call}.{position} = getelementptr i8, ptr {base}, i64 {arg.index}")
    return f"ptr %a{call}.{position}"


def _declarations(calls: Iterable[KernelCall]) -> list[str]:
    signatures: dict[str, str] = {}
    for c in calls:
        types = ["i64" if a.kind == "scalar" else "ptr" for a in c.args]
        signatures[c.symbol] = ", ".join([*types, "ptr", "ptr"])
    return [f"declare i32 @{name}({types})" for name, types in signatures.items()]
