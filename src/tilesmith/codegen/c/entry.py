"""The main function of a program in C: its kernels in order, each under the names of the source
model's nodes that it computes (see `codegen.entry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilesmith.codegen.lower_steps import CONTEXT, FAILURE, MEASURED, VALUES, Unlowered, lower_step
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func, Seq
from tilesmith.program.functions import ARENA, ENTRY, SCRATCH, SIZES
from tilesmith.program.nodes import (
    Arg,
    Copy,
    Grow,
    HostCall,
    KernelCall,
    Measurement,
    Repeat,
    Step,
)
from tilesmith.program.visit import host_calls_of, measurements_of, slots_of

from .dialect import PORTABLE
from .emit import Statements, comment
from .prelude import definitions


def emit_entry(
    steps: Sequence[Step],
    target: Target,
    symbol: str = ENTRY,
    *,
    arena_bytes: int,
    scratch_bytes: int,
    sizes: int = 0,
    declared: bool = True,
) -> str:
    """C text of the main function for `steps`, which need `arena_bytes` of the arena, and
    `scratch_bytes` of each thread's scratch memory.  It is the same for all targets.

    sizes: number of values that `tilesmith_sizes` and its like compute, of which the first are
        those bytes instead; 0 if all sizes are numbers.  `declared`: whether the text declares the
        kernels, which another translation unit defines; otherwise it must follow their definitions
        in the same one.
    """
    lines = [
        f"int32_t {symbol}(struct tilesmith_context *context) {{",
        "    if (context->abi != TILESMITH_ABI || context->size < sizeof *context)",
        "        return TILESMITH_VERSION;",
        "    int32_t *const failure = &context->failure.code;",
        "    failure[0] = TILESMITH_OK;",
        "    failure[1] = 0;",
    ]
    needed = {"arena_bytes": str(arena_bytes), "scratch_bytes": str(scratch_bytes)}
    measured = list(measurements_of(steps))
    known = min((m.first for m in measured), default=-1)  # extents of the inputs
    if sizes:
        lines.append(f"    int64_t values[{sizes}];")
    if sizes and known != 0:
        lines += [
            f"    context->failure.code = {SIZES}(context->extents, values);",
            "    if (context->failure.code != TILESMITH_OK)",
            "        return context->failure.code;",
        ]
        needed = {"arena_bytes": f"values[{ARENA}]", "scratch_bytes": f"values[{SCRATCH}]"}
    if any(host_calls_of(steps)):
        lines += [
            "    if (context->host == NULL)",
            "        return context->failure.code = TILESMITH_HOST;",
        ]
    for name, least in needed.items():
        lines += _check_memory(name, least) if least != "0" else []
    if measured:
        count = max(m.first + len(m.extents) for m in measured)
        lines += [f"    int64_t measured[{count}];"]
        if known:
            lines.append(f"    memcpy(measured, context->extents, {known} * sizeof *measured);")
    if slots_of(steps):
        lines.append(f"    char *slots[{slots_of(steps)}];")
        lines += _leave("!context->grow", "TILESMITH_GROWTH", 0, ("0", "0"))
    lines += [
        "    void *const *inputs = context->inputs, *const *outputs = context->outputs;",
        "    const uint8_t *constants = context->constants;",
        "    uint8_t *arena = context->arena, *bytes = (uint8_t *)context;",
        "    (void)inputs, (void)outputs, (void)constants, (void)arena, (void)bytes;",
    ]
    writer = _Writer(symbol)
    writer.steps(steps)
    head: list[str] = []
    if declared:
        head += ["#include <string.h>", '#include "tilesmith.h"', ""]
        head += [definitions(writer.b.helpers)] if writer.b.helpers else []
        head += [*writer.b.called.values(), ""]
    lines += [*writer.b.lines, "    return TILESMITH_OK;", "}"]
    return "\n".join([*head, *lines]) + "\n"


_NAMES = (
    "inputs",
    "outputs",
    "constants",
    "arena",
    "bytes",
    "failure",
    "slots",
    "values",
    "measured",
)
"""Names of the main function's own variables."""


class _Writer:
    """Appends steps; calls and loops are numbered in order."""

    def __init__(self, symbol: str) -> None:
        rules = {Unlowered: lambda statements, s: self.step(s.step)}
        dialect = replace(PORTABLE, reserved=_NAMES, statements=rules)
        self.statements = Statements(Func(symbol, (), (), Seq(())), (), dialect)
        self.b = self.statements.b
        self.calls = 0
        self.host_calls = 0
        self.measurements = 0
        self.loops = 0
        for buffer, text in {
            VALUES: "values", MEASURED: "measured", CONTEXT: "bytes",
            FAILURE: "failure",
        }.items():  # fmt: skip
            self.b.names.alias(buffer, text)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case KernelCall():
                n, self.calls = self.calls, self.calls + 1
                self.lowered(step, n)
            case HostCall():
                self.lines(self.host(step))
            case Repeat():
                self.repeat(step)
            case Measurement():
                n, self.measurements = self.measurements, self.measurements + 1
                self.lowered(step, n)
            case Grow():
                self.lines(_grow(step))
            case _:
                self.lowered(step)

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.b.line(line)

    def lowered(self, step: Step, number: int = 0) -> None:
        """Write a step as statements of loop IR."""
        lowered = lower_step(step, number)
        for buffer, arg in lowered.memory.items():
            self.b.names.alias(buffer, _base(arg))
        self.statements.block(lowered.stmt)

    def host(self, call: HostCall) -> list[str]:
        n, self.host_calls = self.host_calls, self.host_calls + 1
        args = [
            _operand(a) if a.kind != "extent" else f"(void *)(intptr_t){_operand(a)}"
            for a in call.arguments
        ]
        return [
            comment(call.label or call.operator or call.function),
            f"if (context->host(context->host_data, {n}, "
            f"(void *const[]){{{', '.join(args) or '0'}}}, {len(args)}) != 0) {{",
            "    context->failure.code = TILESMITH_HOST;",
            f"    context->failure.call = {n};",
            "    return TILESMITH_HOST;",
            "}",
        ]

    def repeat(self, step: Repeat) -> None:
        n, self.loops = self.loops, self.loops + 1
        i = f"i{n}"
        if isinstance(step.count, int) or step.count.kind == "extent":
            count = _number(step.count)
        else:
            count = f"*(int64_t *){_operand(step.count)}"
        condition = f"{i} < count{n}"
        around = [f"char *pointer{c.pointer};" for c in step.carried if c.bytes is None]
        head = [f"int64_t {i} = 0, count{n} = {count};"]
        if step.first is not None:
            head.append(f"int go{n} = {_truth(step.first)};")
            condition += f" && go{n}"
        for c in step.carried:
            declared = "" if c.bytes is None else "char *"
            head.append(f"{declared}pointer{c.pointer} = {_operand(c.first)};")
            if c.slot is not None:
                head.append(f"char *pointer{c.target} = NULL;")
                head.append(f"int64_t turn{c.target} = {c.slot};")
            elif c.end is not None and c.other is not None:
                turns = [_operand(c.end), _operand(c.other)]
                if step.is_even:
                    turns.reverse()  # the last iteration writes to its end
                head.append(f"char *pointer{c.target} = {turns[0]}, *next{c.target} = {turns[1]};")
        inside: list[str] = []
        for s in step.slices:
            turn = f"(count{n} - 1 - {i})" if s.backward else i
            stride = _number(s.stride)
            if s.slot is not None:
                size, keep = f"({i} + 1) * {stride}", f"{i} * {stride}"
                inside += _taken(f"slots[{s.slot}]", f"{s.slot}", size, keep)
            first = _operand(s.first)
            inside.append(f"char *pointer{s.pointer} = (char *){first} + {turn} * {stride};")
        if step.number is not None:
            inside.append(f"*(int64_t *){_operand(step.number)} = {i};")
        self.lines((*around, "{"))
        self.b.depth += 1
        self.lines((*head, f"for (; {condition}; {i}++) {{"))
        self.b.depth += 1
        self.lines(inside)
        self.steps(step.body)
        moved = [f"char *after{c.pointer} = {_operand(c.following)};" for c in step.carried]
        moved += [f"pointer{c.pointer} = after{c.pointer};" for c in step.carried]
        for c in step.carried:
            if c.slot is not None:
                moved.append(f"turn{c.target} = {2 * c.slot + 1} - turn{c.target};")
            elif c.other is not None:
                moved += [
                    f"char *turn{c.target} = pointer{c.target};",
                    f"pointer{c.target} = next{c.target};",
                    f"next{c.target} = turn{c.target};",
                ]
        if step.again is not None:
            moved.append(f"go{n} = {_truth(step.again)};")
        self.lines(moved)
        self.b.depth -= 1
        self.b.line("}")
        if step.ran is not None:
            self.b.line(f"*(int64_t *){_operand(step.ran)} = {i};")
        for c in step.carried:
            if c.end is not None and c.bytes is not None:
                self.lowered(Copy(Arg("pointer", c.pointer), c.end, c.bytes))
        self.b.depth -= 1
        self.b.line("}")


def _grow(step: Grow) -> list[str]:
    size, slot = _number(step.bytes), f"slots[{step.slot}]"
    if step.target is not None:
        return _taken(f"pointer{step.target}", f"turn{step.target}", size)
    if step.for_threads:
        whole = f"{size} > INT64_C(1) << 46 ? INT64_MAX : {size} * context->threads"
        inside = [
            *_taken(slot, str(step.slot), whole),
            f"    context->scratch = {slot};",
            f"    context->scratch_bytes = {size};",
        ]
        return [f"if ({size} > context->scratch_bytes) {{", *inside, "}"]
    return _taken(slot, str(step.slot), size, _number(step.keep))


def _taken(at: str, slot: str, size: str, keep: str = "0") -> list[str]:
    """The memory that the context has for a slot."""
    line = f"{at} = context->grow(context->memory, {slot}, {size}, {keep});"
    return [line, *_leave(f"!{at}", "TILESMITH_GROWTH", 0, (size, slot), "")]


def _leave(
    wrong: str, code: str, call: int, values: Sequence[str], indent: str = "    "
) -> list[str]:
    """Return with a failure if a condition is wrong."""
    lines = [
        f"if ({wrong}) {{",
        f"    context->failure.code = {code};",
        f"    context->failure.call = {call};",
        f"    context->failure.count = {len(values)};",
        *(f"    context->failure.values[{i}] = {v};" for i, v in enumerate(values)),
        f"    return {code};",
        "}",
    ]
    return [indent + line for line in lines]


def _truth(condition: Arg) -> str:
    return f"*(char *){_operand(condition)} != 0"


def _number(size: int | Arg) -> str:
    return _operand(size) if isinstance(size, Arg) else f"INT64_C({size})"


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


def _base(arg: Arg) -> str:
    """The first byte of the memory that holds an argument."""
    if arg.kind in ("arena", "constant") and arg.slot is None:
        return "arena" if arg.kind == "arena" else "constants"
    return f"((uint8_t *){_operand(arg)})"


def _operand(arg: Arg) -> str:
    if arg.kind == "scalar":
        return f"INT64_C({arg.index})"
    if arg.kind == "extent":
        return f"values[{arg.index}]"
    arena = "arena" if arg.slot is None else f"slots[{arg.slot}]"
    if arg.kind == "place":
        further = f" + {arg.offset}" if arg.offset else ""
        return f"(void *)({arena} + values[{arg.index}]{further})"
    if arg.kind in ("constant", "arena"):
        base = "constants" if arg.kind == "constant" else arena
        return f"(void *)({base} + {arg.index})"
    base = f"pointer{arg.index}" if arg.kind == "pointer" else f"{arg.kind}s[{arg.index}]"
    return f"(void *)((char *){base} + {arg.offset})" if arg.offset else base
