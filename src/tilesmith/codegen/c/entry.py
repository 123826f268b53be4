"""The main function of a program in C: its kernels in order, each under the names of the source
model's nodes that it computes (see `codegen.entry`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.codegen.entry import ENTRY, Arg, KernelCall
from tilesmith.codegen.sizes import ARENA, SCRATCH, SIZES

from .emit import comment


def emit_entry(
    calls: Sequence[KernelCall],
    symbol: str = ENTRY,
    *,
    arena_bytes: int,
    scratch_bytes: int,
    sizes: int = 0,
    declared: bool = True,
) -> str:
    """C text of the main function for `calls`, which need so many bytes of the arena, and of each
    thread's scratch memory.

    sizes: how many values `tilesmith_sizes` computes first, which then say how many bytes are
        needed; 0 if all sizes are numbers.
    `declared`: whether the text declares the kernels, which another translation unit defines;
    otherwise it must follow their definitions in the same one.
    """
    lines = ['#include "tilesmith.h"', "", *_declarations(calls)] if declared else []
    lines += [
        f"int32_t {symbol}(struct tilesmith_context *context) {{",
        "    if (context->abi != TILESMITH_ABI || context->size < sizeof *context)",
        "        return TILESMITH_VERSION;",
        "    context->failure.code = TILESMITH_OK;",
        "    context->failure.call = 0;",
    ]
    needed = {"arena_bytes": str(arena_bytes), "scratch_bytes": str(scratch_bytes)}
    if sizes:
        lines += [
            f"    int64_t values[{sizes}];",
            f"    context->failure.code = {SIZES}(context->extents, values);",
            "    if (context->failure.code != TILESMITH_OK)",
            "        return context->failure.code;",
        ]
        needed = {"arena_bytes": f"values[{ARENA}]", "scratch_bytes": f"values[{SCRATCH}]"}
    for name, least in needed.items():
        lines += _check_memory(name, least) if least != "0" else []
    lines += [
        "    void *const *inputs = context->inputs, *const *outputs = context->outputs;",
        "    const char *constants = context->constants;",
        "    char *arena = context->arena;",
        "    int32_t code;",
        "    (void)inputs, (void)outputs, (void)constants, (void)arena, (void)code;",
    ]
    for n, call in enumerate(calls):
        names = ", ".join(call.sources) or call.label
        lines += [f"    {comment(names)}"] if names else []
        args = ", ".join([*map(_operand, (*call.args, call.workspace)), "context"])
        if not call.messages:  # it can't fail
            lines.append(f"    {call.symbol}({args});")
            continue
        lines += [
            f"    code = {call.symbol}({args});",
            "    if (code != TILESMITH_OK) {",
            f"        context->failure.call = {n};",
            "        return code;",
            "    }",
        ]
    return "\n".join([*lines, "    return TILESMITH_OK;", "}"]) + "\n"


def _check_memory(name: str, needed: str) -> list[str]:
    """Leave unless a field of the context is at least `needed` bytes."""
    return [
        f"    if (context->{name} < {needed}) {{",
        "        context->failure.code = TILESMITH_MEMORY;",
        "        context->failure.count = 2;",
        f"        context->failure.values[0] = {needed};",
        f"        context->failure.values[1] = context->{name};",
        "        return TILESMITH_MEMORY;",
        "    }",
    ]


def _operand(arg: Arg) -> str:
    if arg.kind == "scalar":
        return f"INT64_C({arg.index})"
    if arg.kind == "extent":
        return f"values[{arg.index}]"
    if arg.kind == "place":
        return f"(void *)(arena + values[{arg.index}])"
    if arg.kind in ("constant", "arena"):
        base = "constants" if arg.kind == "constant" else "arena"
        return f"(void *)({base} + {arg.index})"
    base = f"{arg.kind}s[{arg.index}]"
    return f"(void *)((char *){base} + {arg.offset})" if arg.offset else base


def _declarations(calls: Sequence[KernelCall]) -> list[str]:
    signatures: dict[str, str] = {}
    for c in calls:
        types = ["int64_t" if a.kind in ("scalar", "extent") else "void *" for a in c.args]
        signatures[c.symbol] = ", ".join([*types, "void *", "struct tilesmith_context *"])
    return [*(f"int32_t {name}({types});" for name, types in signatures.items()), ""]
