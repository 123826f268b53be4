"""Common parts of libraries: checks of programs, places of weights, and objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tilesmith.program.nodes import Arg, HostCall, KernelCall, Measurement
from tilesmith.program.visit import args_of, steps_in
from tilesmith.runtime.native import ALIGNMENT, round_up
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.support.errors import UsageError

from .elf import private
from .tables import Weights, embedded, function_name
from .toolchain import SOURCES, SYSTEMS, Toolchain

WeightsPlace: TypeAlias = Literal["file", "inside"]

MOST_VALUES = 512
"""Upper bound on the number of sizes that a run computes: `model.c` holds them on its stack."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of a library.

    library: the library or object.
    header: its C header; for a Python module, the type stub.
    weights: the file of weights; None if they are inside the library.
    files: all files.
    code_bytes: size of the library without weights inside it.
    ram_bytes: for C source, bytes of the static intermediate values; the stack is not counted.
    constant_bytes: for C source, bytes of the weights, for flash memory.
    """

    library: Path
    header: Path
    weights: Path | None
    files: tuple[Path, ...]
    code_bytes: int
    ram_bytes: int = 0
    constant_bytes: int = 0


def check_name(name: str) -> None:
    """Raises UsageError for an invalid library name."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise UsageError(
            f"name of a library: expected a C identifier (letters, digits, _), found {name!r}"
        )


def check_programs(programs: Sequence[Program]) -> None:
    """Raises UsageError for programs that can't be in a library, or not in the same library."""
    kinds = sorted({p.target.triple for p in programs})
    if len(kinds) > 1:
        raise UsageError(f"one library is for one kind of processor, not {', '.join(kinds)}")
    for p in programs:
        if p.needs_callbacks or p.uses_objects:
            calls = sorted({c.label for c in p.host_calls})
            raise UsageError(
                "the model calls functions of Python, which a library does not have"
                + (f": {', '.join(calls)}" if calls else "")
                + "; compile it with fallback='error' to see what has no native code"
            )
        known = dict(p.bounds)
        open_ = [str(p.outputs[i]) for i in p.grown if i not in known]
        if open_ or p.slots > len(p.outputs):
            of = f"the sizes of {', '.join(open_)}" if open_ else "sizes inside the model"
            grown = [p.outputs[i] for i in p.grown if i not in known]
            raise UsageError(
                f"{of} depend on data{_deciding(p, grown)}, without a bound that is known before, "
                "and a library's runs allocate nothing.  Fix inputs that sizes depend on with "
                "values="
            )
        if p.size_values > MOST_VALUES:
            raise UsageError(
                f"a run computes {p.size_values} sizes, a library's at most {MOST_VALUES}; fix "
                "some dimensions with shapes="
            )


def check_shapes_known(program: Program, what: str) -> None:
    """Raises UsageError for outputs whose shapes depend on data.

    what: the kind of library that does not support such outputs.
    """
    if program.grown:
        unknown = [program.outputs[i] for i in program.grown]
        raise UsageError(
            f"{what} gives results whose shapes are known before a run, found "
            f"{', '.join(map(str, unknown))}{_deciding(program, unknown)}; a C library or a "
            "WebAssembly module takes such a model, or fix inputs that sizes depend on with values="
        )


def _deciding(program: Program, outputs: Sequence[TensorSpec]) -> str:
    """Text for a message: the nodes whose kernels compute extents of the outputs.  Empty if the
    extents are formulas, or if no kernel's name is known.
    """
    dims = {d for o in outputs for d in o.shape}
    named: dict[str, None] = {}
    writer: dict[Arg, str] = {}
    for step in steps_in(program.steps):
        if isinstance(step, (KernelCall, HostCall)):
            writer |= dict.fromkeys(args_of([step]), step.label)
        elif isinstance(step, Measurement):
            # A run only checks an extent with one possible value; it does not compute it.
            free = [e.name for e in step.extents if e.low != e.high]
            label = step.label or writer.get(step.source, "")
            if label and dims.intersection(free):
                named[label] = None
    return f", as found by {', '.join(map(repr, named))}" if named else ""


def check_system(programs: Sequence[Program]) -> None:
    """Raises UsageError for targets without C libraries."""
    for t in (p.target for p in programs):
        if t.device is not None or t.system not in SYSTEMS:
            raise UsageError(
                f"a C library is for a CPU under {', '.join(SYSTEMS)}: expected such a target, "
                f"found {t.name!r} ({t.triple})"
            )
    system = programs[0].target.system
    if len(programs) > 1 and not SYSTEMS[system].is_elf:
        raise UsageError(f"a library for {system} is for one target, found {len(programs)}")


def check_extents(program: Program) -> None:
    """Raises UsageError for inputs with an extent that other extents determine, because callers
    compare shapes only with numbers and symbols.
    """
    symbols = {s.name for s in program.symbols}
    for spec in program.inputs:
        for extent in spec.shape:
            if not isinstance(extent, int) and str(extent) not in symbols:
                raise UsageError(
                    f"input {spec.name} has extent {extent}; expected a number or a symbol.  Fix "
                    "dimensions with shapes=, or name this one in the model"
                )


def program_objects(
    programs: Sequence[Program], name: str, places: Sequence[Weights], scratch: Path,
    tools: Toolchain,
) -> list[Path]:  # fmt: skip
    """The object files of the programs' code, and of the weights if they are inside the library."""
    objects: dict[str, Path] = {}
    for level, program in enumerate(programs):
        rename = partial(function_name, name, level)
        for symbol, code in program.objects.items():
            path = scratch / f"{rename(symbol)}.o"
            if rename(symbol) not in objects:
                path.write_bytes(private(code, rename) if tools.system.is_elf else code)
                objects[rename(symbol)] = path
    inside = [
        _embedded(program, place, scratch, tools)
        for program, place in zip(programs, places, strict=True)
        if place.symbol
    ]
    return [*objects.values(), *inside]


def runtime_objects(parts: Sequence[str], scratch: Path, tools: Toolchain) -> list[Path]:
    """The object files of the runtime.  Their functions are visible only inside the library."""
    objects = []
    for part in parts:
        compiled = scratch / f"tilesmith_{Path(part).stem}.o"
        tools.compile(SOURCES / part, compiled)
        if tools.system.is_elf:
            compiled.write_bytes(private(compiled.read_bytes(), str))
        objects.append(compiled)
    return objects


def _embedded(program: Program, place: Weights, scratch: Path, tools: Toolchain) -> Path:
    """An object file with the constants of a program."""
    end = ".S" if tools.system.is_elf else ".c"
    raw, text, made = (scratch / f"{place.symbol}{end}" for end in (".bin", end, ".o"))
    program.constants.tofile(raw)
    if tools.system.is_elf:
        text.write_text(
            f".section .rodata\n.balign {ALIGNMENT}\n.globl {place.symbol}\n"
            f'.hidden {place.symbol}\n{place.symbol}:\n.incbin "{raw}"\n'
            '.section .note.GNU-stack,"",%progbits\n'
        )
    else:
        text.write_text(embedded(place.symbol, raw))
    tools.compile(text, made)
    return made


def places_of(
    programs: Sequence[Program], name: str, weights: WeightsPlace
) -> tuple[list[Weights], int]:
    """The place of each program's constants, and the size of the weights file (0 without a file).
    The file contains equal constants once.
    """
    begin, seen, places = ALIGNMENT, dict[int, int](), []
    for level, program in enumerate(programs):
        total = weights_sum(program.constants)
        if weights == "inside":
            places.append(Weights(f"{name}_{level}_weights", 0, total))
            continue
        if total not in seen:
            seen[total] = begin
            begin += round_up(program.constants.nbytes)
        places.append(Weights("", seen[total], total))
    return places, begin if weights == "file" else 0


def weights_sum(data: np.ndarray) -> int:
    """The checksum of `data`, as `tilesmith_sum` computes it."""
    raw = np.zeros(-(-data.nbytes // 8) * 8, np.uint8)
    raw[: data.nbytes] = data
    words = raw.view("<u8")
    factors = 2 * np.arange(len(words), dtype=np.uint64) + np.uint64(1)
    return (int((words * factors).sum(dtype=np.uint64)) + data.nbytes) % (1 << 64)
