"""`export`: a folder with a model's library, headers, weights and an example; or its C source."""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from tilesmith.codegen.functions import OUTPUTS
from tilesmith.codegen.levels import CONTROLLERS
from tilesmith.runtime.native import ALIGNMENT, round_up
from tilesmith.runtime.program import Program
from tilesmith.runtime.signing import secret_key, sign_files
from tilesmith.support.errors import UsageError
from tilesmith.support.version import VERSION

from .elf import private
from .tables import (
    Weights,
    embedded,
    function_name,
    header,
    own_names,
    source,
    template,
)
from .toolchain import SOURCES, SYSTEMS, Toolchain, toolchain
from .wasm import is_module, write_module

Format: TypeAlias = Literal["shared", "static", "object", "c"]
WeightsPlace: TypeAlias = Literal["file", "inside"]

MOST_PROGRAMS = 6
"""Programs in one library: the head of the file of weights has room for so many sums."""
MOST_VALUES = 512
"""Sizes that a run may compute: the room that `model.c` has on its stack."""
_MAGIC = b"TSWEIGHT"
_CMAKE: dict[str, dict[str, str]] = {
    "shared": {"KIND": "SHARED", "PLACE": "IMPORTED_LOCATION"},
    "static": {"KIND": "STATIC", "PLACE": "IMPORTED_LOCATION"},
    "object": {"KIND": "OBJECT", "PLACE": "IMPORTED_OBJECTS"},
}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    library: the library or object.
    header: its C header.
    weights: the file of weights; None where they are inside.
    files: all files.
    code_bytes: size of the library without weights inside it.
    ram_bytes: of C source, the intermediate values, which are static; the stack is not counted.
    constant_bytes: of C source, the weights, for flash memory.
    """

    library: Path
    header: Path
    weights: Path | None
    files: tuple[Path, ...]
    code_bytes: int
    ram_bytes: int = 0
    constant_bytes: int = 0


def export(
    programs: Sequence[Program],
    folder: str | Path,
    name: str,
    format: Format = "shared",
    weights: WeightsPlace = "file",
    threads: int = 1,
    sign: str | Path | None = None,
) -> Exported:
    """Write a C library of a model: `include/NAME.h`, `lib/libNAME.so`, `NAME.weights`, and an
    example, a C++ header and files for CMake and pkg-config.

    programs: one model compiled for several levels of one kind of processor, the best first.  The
        library takes the first that its processor can run.
    folder: is made; files of the same names are replaced.
    name: of the library and its functions: a C identifier.
    threads: that the programs were scheduled for.
    sign: a secret key, with which the digests of all files are signed.

    Raises UsageError for what can't be exported, and where no compiler is found.
    """
    _check_names(programs, name, format, weights)
    check_programs(programs)
    folder = Path(folder)
    try:
        if sign is not None:
            secret_key(sign)  # before anything is written
        if format == "c" or programs[0].target.backend == "source":
            made = _write_source(programs, folder, name, format, weights)
        elif is_module(programs[0].target):
            made = _write_module(programs, folder, name, format, weights)
        else:
            check_system(programs)
            tools = toolchain(programs[0].target)
            for part in ("include", "lib/pkgconfig"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            made = _write(programs, folder, name, format, weights, threads, tools)
        if sign is None:
            return made
        return replace(made, files=(*made.files, *sign_files(folder, name, made.files, sign)))
    except OSError as e:
        raise UsageError(f"{str(folder)!r} can't be written: {e.strerror or e}") from e


def _check_names(programs: Sequence[Program], name: str, format: str, weights: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise UsageError(
            f"name of a library: expected a C identifier (letters, digits, _), found {name!r}"
        )
    if format not in get_args(Format):
        raise UsageError(f"format: expected one of {get_args(Format)}, found {format!r}")
    if weights not in get_args(WeightsPlace):
        raise UsageError(f"weights: expected one of {get_args(WeightsPlace)}, found {weights!r}")
    if len(programs) > MOST_PROGRAMS:
        raise UsageError(
            f"one library is for at most {MOST_PROGRAMS} targets, {len(programs)} given"
        )


def check_programs(programs: Sequence[Program]) -> None:
    """Raises UsageError for programs that can't stand in a library, or not in one library."""
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
        if p.needs_growth:
            raise UsageError(
                "sizes in the model depend on its data, without a bound that is known before, and "
                "a library's runs allocate nothing.  Fix inputs that sizes depend on with values="
            )
        if p.size_values > MOST_VALUES:
            raise UsageError(
                f"a run computes {p.size_values} sizes, a library's at most {MOST_VALUES}; fix "
                "some dimensions with shapes="
            )


def check_system(programs: Sequence[Program]) -> None:
    """Raises UsageError for targets that have no C libraries."""
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
    """Raises UsageError for inputs that have an extent which others determine: whoever calls the
    program compares shapes with numbers and symbols.
    """
    symbols = {s.name for s in program.symbols}
    for spec in program.inputs:
        for extent in spec.shape:
            if not isinstance(extent, int) and str(extent) not in symbols:
                raise UsageError(
                    f"input {spec.name} has extent {extent}; expected a number or a symbol.  Fix "
                    "dimensions with shapes=, or name this one in the model"
                )


def _write_source(
    programs: Sequence[Program], folder: Path, name: str, format: Format, weights: WeightsPlace
) -> Exported:
    """C source for a microcontroller."""
    from .c_source import ram_bytes, write_source  # and with it the writer of C

    program = programs[0]
    if format != "c" or len(programs) > 1 or program.target.backend != "source":
        raise UsageError(
            "C source is for one microcontroller: expected format 'c' and one target of "
            f"{', '.join(CONTROLLERS)}; found {format!r} and "
            f"{', '.join(p.target.name for p in programs)}"
        )
    files, constant_bytes = write_source(program, folder, name)
    size = files[0].stat().st_size
    return Exported(
        files[0], files[1], None, tuple(files), size, ram_bytes(program), constant_bytes
    )


def _write_module(
    programs: Sequence[Program], folder: Path, name: str, format: Format, weights: WeightsPlace
) -> Exported:
    """A WebAssembly module and its scripts."""
    if format != "shared" or len(programs) > 1:
        raise UsageError(
            "a WebAssembly module has one program and one format: expected one target and "
            f"'shared', found {len(programs)} and {format!r}"
        )
    program = programs[0]
    check_extents(program)
    folder.mkdir(parents=True, exist_ok=True)
    (place,), file_bytes = places_of(programs, name, weights)
    files = write_module(program, folder, name, place, file_bytes)
    written = folder / f"{name}.weights" if file_bytes else None
    if written is not None:
        _write_weights(written, programs, [place], file_bytes)
        files.append(written)
    inside = 0 if written else program.constants.nbytes
    return Exported(files[0], files[2], written, tuple(files), files[0].stat().st_size - inside)


def _write(
    programs: Sequence[Program], folder: Path, name: str, format: Format, weights: WeightsPlace,
    threads: int, tools: Toolchain,
) -> Exported:  # fmt: skip
    places, file_bytes = places_of(programs, name, weights)
    include = folder / "include"
    texts = {
        include / f"{name}.h": header(name, programs, threads, file_bytes),
        include / f"{name}.hpp": template("model.hpp", name),
        folder / "main.c": template("main.c", name),
        folder / "lib" / "pkgconfig" / f"{name}.pc": template("package.pc", name, VERSION=VERSION),
    }
    library = (
        folder
        / "lib"
        / {
            "shared": tools.system.shared.format(name),
            "static": tools.system.static.format(name),
        }.get(format, f"{name}.o")
    )
    texts[folder / f"{name}Config.cmake"] = template(
        "config.cmake", name, FILE=library.name, LIBRARIES=tools.system.libraries, **_CMAKE[format]
    )
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    copied = [SOURCES / "tilesmith.h", SOURCES / "library" / "tilesmith_model.h"]
    for path in copied:
        shutil.copyfile(path, include / path.name)
    written = folder / f"{name}.weights" if weights == "file" else None
    if written is not None:
        _write_weights(written, programs, places, file_bytes)
    with tempfile.TemporaryDirectory(prefix="tilesmith-") as scratch:
        objects = _objects(programs, name, places, file_bytes, include, Path(scratch), tools)
        make = {"shared": tools.shared, "static": tools.static, "object": tools.merged}[format]
        make(objects, library)
    inside = sum(p.constants.nbytes for p in programs) if weights == "inside" else 0
    files = (library, *texts, *(include / p.name for p in copied))
    return Exported(
        library,
        include / f"{name}.h",
        written,
        (*files, written) if written else files,
        library.stat().st_size - inside,
    )


def _objects(
    programs: Sequence[Program], name: str, places: Sequence[Weights], file_bytes: int,
    include: Path, scratch: Path, tools: Toolchain,
) -> list[Path]:  # fmt: skip
    """The objects of a library: the program's code, its tables, the runtime, weights inside."""
    tables = scratch / f"{name}.c"
    names = [] if tools.system.is_elf else own_names(name)
    text = source(name, programs, places, file_bytes)
    tables.write_text("\n".join((*names, text)), encoding="utf-8")
    own = scratch / f"{name}_tables.o"
    tools.compile(tables, own, f"-I{include}")
    parts = ("library/model.c", "library/instance.c", "pool.c")
    return [
        own,
        *program_objects(programs, name, places, scratch, tools),
        *runtime_objects(parts, scratch, tools),
    ]


def program_objects(
    programs: Sequence[Program], name: str, places: Sequence[Weights], scratch: Path,
    tools: Toolchain,
) -> list[Path]:  # fmt: skip
    """The objects of the code of programs, and of weights inside the library."""
    found: dict[str, Path] = {}
    for level, program in enumerate(programs):
        rename = partial(function_name, name, level)
        for symbol, code in program.objects.items():
            path = scratch / f"{rename(symbol)}.o"
            if rename(symbol) not in found:
                path.write_bytes(private(code, rename) if tools.system.is_elf else code)
                found[rename(symbol)] = path
    inside = [
        _embedded(program, place, scratch, tools)
        for program, place in zip(programs, places, strict=True)
        if place.symbol
    ]
    return [*found.values(), *inside]


def runtime_objects(parts: Sequence[str], scratch: Path, tools: Toolchain) -> list[Path]:
    """The objects of files of the runtime; their functions are visible in the library only."""
    objects = []
    for part in parts:
        compiled = scratch / f"tilesmith_{Path(part).stem}.o"
        tools.compile(SOURCES / part, compiled)
        if tools.system.is_elf:
            compiled.write_bytes(private(compiled.read_bytes(), str))
        objects.append(compiled)
    return objects


def _embedded(program: Program, place: Weights, scratch: Path, tools: Toolchain) -> Path:
    """An object with the constants of a program."""
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
    """Where each program's constants lie, and the size of their file, which has equal ones once."""
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


def _write_weights(
    path: Path, programs: Sequence[Program], places: Sequence[Weights], file_bytes: int
) -> None:
    """The file of weights: `struct weights_head` of `model.c`, then the programs' constants."""
    sums = [w.sum for w in places] + [0] * (MOST_PROGRAMS - len(places))
    with path.open("wb") as f:
        f.write(struct.pack(f"<8sq{MOST_PROGRAMS}Q", _MAGIC, file_bytes, *sums))
        for program, place in zip(programs, places, strict=True):
            f.seek(place.begin)
            f.write(program.constants.data)
        f.truncate(file_bytes)


def weights_sum(data: np.ndarray) -> int:
    """`tilesmith_sum` of bytes."""
    raw = np.zeros(-(-data.nbytes // 8) * 8, np.uint8)
    raw[: data.nbytes] = data
    words = raw.view("<u8")
    factors = 2 * np.arange(len(words), dtype=np.uint64) + np.uint64(1)
    return (int((words * factors).sum(dtype=np.uint64)) + data.nbytes) % (1 << 64)


assert OUTPUTS == 2  # `model.c` finds the extents of outputs behind the two sizes of memory
