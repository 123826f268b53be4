"""Writes the reference of the accelerator's instructions, `docs/accelerator-instructions.md`.

    python -m tilesmith.accel.doc docs/accelerator-instructions.md

A test compares the file with the table, so the file is always current.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from .alu import AluOp
from .instructions import INSTRUCTIONS, Instruction, MicroOp, layout
from .machine import Machine

_HEADER = """# Instructions of the accelerator

Generated from the table in `src/tilesmith/accel/instructions.py` by `python -m tilesmith.accel.doc
docs/accelerator-instructions.md`; do not edit.  [The chapter](accelerator.md) explains the machine.

An instruction has 128 bits, the least significant byte first.  Its opcode is in bits 0 to 2.  The
widths of fields follow from the machine; these are those of the default one.  In the text of a
program, a flag is written as its name, a number as `field=number`.
"""


def page() -> str:
    """The page, for the default machine."""
    machine = Machine()
    return "\n".join((_HEADER, *_instructions(machine), *_micro_operations(machine), *_alu()))


def _instructions(machine: Machine) -> Iterator[str]:
    shared = {slot.name for slot in layout(Instruction, machine)}
    yield "## Tokens\n"
    yield from _table(Instruction, machine, set())
    for opcode, kind in enumerate(INSTRUCTIONS):
        used = layout(kind, machine)[-1]
        yield f"## `{kind.name}`\n"
        yield f"Opcode {opcode}, {used.first + used.bits} bits.\n"
        yield _text(kind)
        if inherited := [c for c in kind.__mro__[1:-1] if c is not Instruction]:
            yield from map(_text, inherited)
        yield from _table(kind, machine, shared)


def _micro_operations(machine: Machine) -> Iterator[str]:
    yield "## Micro-operations\n"
    yield f"A micro-operation has {8 * machine.micro_op_bytes} bits.\n"
    yield _text(MicroOp)
    yield from _table(MicroOp, machine, set())


def _alu() -> Iterator[str]:
    yield "## Operations of the ALU\n"
    yield (
        "`a` is an element of the tile `dst`; `b` one of the tile `src`, or the immediate number;\n"
        "`c` one of the tile after `src`; `low` the immediate number.  `bitcast` takes the same\n"
        "bits as another type, and `round` rounds ties to even.\n"
    )
    yield "| code | operation | `a` becomes | meaning |\n|---|---|---|---|"
    for code, op in enumerate(AluOp):
        yield f"| {code} | `{op.value}` | `{op.meaning}` | {op.doc} |"
    yield ""


def _table(kind: type[Instruction | MicroOp], machine: Machine, without: set[str]) -> Iterator[str]:
    slots = [slot for slot in layout(kind, machine) if slot.name not in without]
    if not slots:
        return
    yield "| field | bits | default | meaning |\n|---|---|---|---|"
    for slot in slots:
        default = getattr(slot.default, "value", slot.default)
        shown = "" if default is False else f"`{default}`"
        last = slot.first + slot.bits - 1
        place = str(last) if slot.bits == 1 else f"{slot.first}–{last}"
        signed = ", signed" if slot.info.is_signed else ""
        yield f"| `{slot.name}` | {place}{signed} | {shown} | {slot.info.doc} |"
    yield ""


def _text(kind: type) -> str:
    """The docstring of a class, whose indented lines are a block of text."""
    paragraphs = (inspect.getdoc(kind) or "").split("\n\n")
    return "\n\n".join(f"```text\n{p}\n```" if p.startswith(" ") else p for p in paragraphs) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
