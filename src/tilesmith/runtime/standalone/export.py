"""`export`: writes a folder with a model's library, headers, weights and an example, or its C
source.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from tilesmith.codegen.levels import CONTROLLERS
from tilesmith.program.functions import OUTPUTS
from tilesmith.runtime.program import Program
from tilesmith.runtime.signing import secret_key, sign_files
from tilesmith.runtime.stubs import write_stubs
from tilesmith.runtime.tsm import save_program
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import scratch_folder, written_in
from tilesmith.support.version import VERSION

from .objects import (
    Exported,
    WeightsPlace,
    check_extents,
    check_name,
    check_programs,
    check_shapes_known,
    check_system,
    places_of,
    program_objects,
    runtime_objects,
)
from .plugin import write_plugin
from .tables import (
    Weights,
    header,
    own_names,
    source,
    template,
)
from .toolchain import SOURCES, Toolchain, toolchain
from .wasm import is_module, write_module

Format: TypeAlias = Literal["shared", "static", "object", "plugin", "python", "c"]

MOST_PROGRAMS = 6
"""Upper bound on the programs in one library: the head of the weights file has space for 6
checksums.
"""
_MAGIC = b"TSWEIGHT"
_CMAKE: dict[str, dict[str, str]] = {
    "shared": {"KIND": "SHARED", "PLACE": "IMPORTED_LOCATION"},
    "static": {"KIND": "STATIC", "PLACE": "IMPORTED_LOCATION"},
    "object": {"KIND": "OBJECT", "PLACE": "IMPORTED_OBJECTS"},
}


@checked(UsageError)
def export(
    programs: Sequence[Program],
    folder: str | Path,
    name: str,
    format: Format = "shared",
    weights: WeightsPlace = "file",
    threads: int = 1,
    sign: str | Path | None = None,
    glibc: str | None = None,
) -> Exported:
    """Write a C library of a model: `include/NAME.h`, `lib/libNAME.so`, `NAME.weights`, and an
    example, a C++ header and files for CMake and pkg-config.

    programs: one model compiled for several levels of one kind of processor, the best first.  At
        run time the library picks the first program that the processor supports.
    folder: created if needed; files of the same names are replaced atomically.  If anything fails,
        the folder stays unchanged.
    name: name of the library, a C identifier.  Names of functions begin with it.
    threads: number of threads for which the programs were scheduled.
    sign: a secret key, with which the digests of all files are signed.
    glibc: the oldest version of glibc that the library must support (default: this machine's).

    Raises UsageError for a program that can't be exported, and if no compiler is found.
    """
    _check_names(programs, name, format, weights)
    if format != "python":
        check_programs(programs)
    if sign is not None:
        secret_key(sign)  # refuse a bad key before anything is written
    folder = Path(folder)

    def write(scratch: Path) -> Exported:
        made = _written(programs, scratch, name, format, weights, threads, glibc)
        if sign is None:
            return made
        signatures = sign_files(scratch, name, made.files, sign)
        return replace(made, files=(*made.files, *signatures))

    return written_in(folder, write)


def _written(
    programs: Sequence[Program], folder: Path, name: str, format: Format, weights: WeightsPlace,
    threads: int, glibc: str | None,
) -> Exported:  # fmt: skip
    """Write a library to an empty folder."""
    if glibc is not None and format not in _CMAKE:
        raise UsageError(f"glibc: expected with format {', '.join(_CMAKE)}, found {format!r}")
    if format == "python":
        return _write_python(programs, folder, name)
    if format == "plugin":
        return write_plugin({name: programs}, folder, name)
    if format == "c" or programs[0].target.backend == "source":
        return _write_source(programs, folder, name, format, weights)
    if is_module(programs[0].target):
        return _write_module(programs, folder, name, format, weights)
    check_system(programs)
    tools = toolchain(programs[0].target, glibc)
    for part in ("include", "lib/pkgconfig"):
        (folder / part).mkdir(parents=True)
    return _write(programs, folder, name, format, weights, threads, tools)


def _check_names(programs: Sequence[Program], name: str, format: str, weights: str) -> None:
    check_name(name)
    if format not in get_args(Format):
        raise UsageError(f"format: expected one of {get_args(Format)}, found {format!r}")
    if weights not in get_args(WeightsPlace):
        raise UsageError(f"weights: expected one of {get_args(WeightsPlace)}, found {weights!r}")
    if len(programs) > MOST_PROGRAMS:
        raise UsageError(
            f"one library is for at most {MOST_PROGRAMS} targets, {len(programs)} given"
        )


def _write_source(
    programs: Sequence[Program], folder: Path, name: str, format: Format, weights: WeightsPlace
) -> Exported:
    """Write C source for a microcontroller."""
    from .c_source import (
        ram_bytes,
        state_bytes,
        write_source,
    )  # imported late: this imports the writer of C

    program = programs[0]
    if format != "c" or len(programs) > 1 or program.target.backend != "source":
        raise UsageError(
            "C source is for one microcontroller: expected format 'c' and one target of "
            f"{', '.join(CONTROLLERS)}; found {format!r} and "
            f"{', '.join(p.target.name for p in programs)}"
        )
    check_shapes_known(program, "C source")
    files, constant_bytes = write_source(program, folder, name)
    size = files[0].stat().st_size
    return Exported(
        files[0],
        files[1],
        None,
        tuple(files),
        size,
        ram_bytes(program) + state_bytes(program),
        constant_bytes,
    )


def _write_python(programs: Sequence[Program], folder: Path, name: str) -> Exported:
    """Write a `.tsm` file, and a Python module that loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / f"{name}.tsm"
    files = write_stubs(programs[0], saved)
    save_program(programs[0], saved, lower=programs[1:])
    size = saved.stat().st_size - programs[0].constants.nbytes
    return Exported(saved, files[1], None, (saved, *files), max(size, 0))


def _write_module(
    programs: Sequence[Program], folder: Path, name: str, format: Format, weights: WeightsPlace
) -> Exported:
    """Write a WebAssembly module and its scripts."""
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
    include, lib = folder / "include", "${prefix}/lib"
    texts = {
        include / f"{name}.h": header(name, programs, threads, file_bytes),
        include / f"{name}.hpp": template("model.hpp", name),
        folder / "main.c": template("main.c", name),
        folder / "lib" / "pkgconfig" / f"{name}.pc": template(
            "package.pc",
            name,
            VERSION=VERSION,
            LIBRARY=f"{lib}/{name}.o" if format == "object" else f"-L{lib} -l{name}",
        ),
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
    shared = SOURCES / "library"
    copied = [SOURCES / "tilesmith.h", shared / "tilesmith_model.h", shared / "tilesmith.hpp"]
    for path in copied:
        shutil.copyfile(path, include / path.name)
    written = folder / f"{name}.weights" if weights == "file" else None
    if written is not None:
        _write_weights(written, programs, places, file_bytes)
    with scratch_folder() as scratch:
        objects = library_objects(programs, name, places, file_bytes, include, scratch, tools)
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


def library_objects(
    programs: Sequence[Program], name: str, places: Sequence[Weights], file_bytes: int,
    include: Path, scratch: Path, tools: Toolchain,
) -> list[Path]:  # fmt: skip
    """The object files of a library: the programs' code, the tables, the runtime, and the weights
    if they are inside the library.
    """
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


def _write_weights(
    path: Path, programs: Sequence[Program], places: Sequence[Weights], file_bytes: int
) -> None:
    """Write the file of weights: `struct weights_head` of `model.c`, then all constants."""
    sums = [w.sum for w in places] + [0] * (MOST_PROGRAMS - len(places))
    with path.open("wb") as f:
        f.write(struct.pack(f"<8sq{MOST_PROGRAMS}Q", _MAGIC, file_bytes, *sums))
        for program, place in zip(programs, places, strict=True):
            f.seek(place.begin)
            f.write(program.constants.data)
        f.truncate(file_bytes)


assert OUTPUTS == 2  # in `model.c` the outputs' extents follow the two memory sizes
