"""Writes the table of instructions for the simulators in C: `runtime/csrc/accel_table.h`.

`python -m tilesmith.accel.header FILE` writes it; a test says whether it is current.  The widths
of fields depend on a machine: they are passed with each call (`encoding`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from textwrap import wrap

import numpy as np

from tilesmith.codegen.c import prelude
from tilesmith.codegen.c.builder import Builder, Names
from tilesmith.codegen.c.dialect import PORTABLE
from tilesmith.codegen.c.expressions import Expressions

from .alu import LOW, A, AluOp, B, C
from .errors import Cause
from .instructions import CODES, INSTRUCTIONS, MicroOp, layout
from .machine import Machine, Memory, Unit

_KINDS = (*INSTRUCTIONS, MicroOp)
_FIELDS = tuple(dict.fromkeys(f.name for kind in _KINDS for f in fields(kind)))
"""The names of all fields; in C a decoded instruction has a place for each."""
_PARAMETERS = (
    *(f.name for f in fields(Machine) if f.name != "operand"),
    "operand_bytes",
    *(f"{what}_{memory.value}" for what in ("depth", "tile") for memory in Memory),
)
"""The names of the numbers by which the simulators know a machine."""


def text() -> str:
    """The header."""
    enums = (
        _enum("OPCODE", (kind.name for kind in INSTRUCTIONS)),
        *(_enum(kind.__name__, (m.value for m in kind)) for kind in (*CODES, Unit, Cause)),
        _enum("FIELD", _FIELDS),
        _enum("MACHINE", _PARAMETERS),
    )
    cases: list[str] = []
    helpers: set[str] = set()
    for op in AluOp:
        names = Names()
        for var in (A, B, C):
            names.alias(var, f"{var.name}[i]")
        names.alias(LOW, LOW.name)
        builder = Builder(names)
        builder.depth = 3
        writer = Expressions(builder, PORTABLE)
        writer.wrapping |= {A, B, C, LOW}
        writer.begin([op.meaning])
        builder.line(f"y[i] = {writer.text(op.meaning)};")
        helpers |= builder.helpers
        head = f"    case ALUOP_{op.name}: /* {op.doc} */\n        for (int i = 0; i < n; i++) {{\n"
        body = "".join(f"{line}\n" for line in builder.lines)
        cases.append(f"{head}{body}        }}\n        break;\n")
    reads_dst = sum(1 << i for i, op in enumerate(AluOp) if op.reads_dst)
    reads_pair = sum(1 << i for i, op in enumerate(AluOp) if op.reads_pair)
    return f"""\
/* The instructions of the accelerator.  Made by `python -m tilesmith.accel.header`. */
#ifndef TILESMITH_ACCEL_TABLE_H
#define TILESMITH_ACCEL_TABLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

{"".join(enums)}#define ALU_READS_DST {reads_dst:#x}  /* a bit for each operation */
#define ALU_READS_PAIR {reads_pair:#x}

{prelude.definitions(helpers)}/* n elements of a step of the ALU */
static inline void alu_step(int op, int n, const int32_t *a, const int32_t *b, const int32_t *c,
                            int32_t low, int32_t *y) {{
    switch (op) {{
{"".join(cases)}    }}
}}

#endif
"""


def _enum(prefix: str, names: Iterable[str]) -> str:
    """An enumeration with a member for each name, and their number at its end."""
    members = ", ".join(f"{prefix.upper()}_{name.upper()}" for name in (*names, "count"))
    return "".join(
        f"{line}\n" for line in wrap(f"enum {{ {members} }};", 118, subsequent_indent="       ")
    )


def machine_numbers(machine: Machine) -> np.ndarray:
    """A machine as the simulators read it: int64[MACHINE_COUNT]."""
    numbers = {
        "operand_bytes": machine.operand.bytes,
        **{f"depth_{memory.value}": machine.depth(memory) for memory in Memory},
        **{f"tile_{memory.value}": machine.tile_bytes(memory) for memory in Memory},
    }
    return np.array([numbers.get(n) or getattr(machine, n) for n in _PARAMETERS], np.int64)


def encoding(machine: Machine) -> np.ndarray:
    """Where the fields lie: int32[OPCODE_COUNT + 1, FIELD_COUNT, 3], the last one of the first axis
    for micro-operations, with first bit, width and whether the field is signed.  Fields that an
    instruction lacks have the width 0.
    """
    table = np.zeros((len(_KINDS), len(_FIELDS), 3), np.int32)
    for number, kind in enumerate(_KINDS):
        for slot in layout(kind, machine):
            table[number, _FIELDS.index(slot.name)] = slot.first, slot.bits, slot.info.is_signed
    return table


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
