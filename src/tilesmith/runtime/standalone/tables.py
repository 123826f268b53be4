"""The C texts of a library: its tables, and the header that its users include."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesmith.codegen.c.emit import comment_line
from tilesmith.program.functions import ENTRY, SIZES
from tilesmith.runtime.arrays import stored_dtype, stored_shape
from tilesmith.runtime.native import ALIGNMENT, round_up
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.support.version import VERSION

TEMPLATES = Path(__file__).parents[1] / "csrc" / "library" / "templates"
"""The folder of texts in which NAME and UPPER stand for a library's name."""

EXPORTED = """#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif"""
"""The C text that defines the macro EXPORTED, which marks a library's public functions."""

HEAD_BYTES = 128
"""Bytes at the beginning of an arena that `model.c` reserves for itself."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The place of a program's constants.

    symbol: symbol of the array that holds them in the library; "" where they are in a file.
    begin: offset of the constants in the file, in bytes.
    sum: checksum of the constants (see `tilesmith_sum`).
    """

    symbol: str
    begin: int
    sum: int


def template(file: str, name: str, **others: str) -> str:
    """A template's text for the library `name`.  `others`: further placeholders with their
    replacements.

    A placeholder is also replaced inside a longer name, but not inside a longer word in capitals.
    """
    words = {"NAME": name, "UPPER": name.upper(), **others}
    pattern = rf"(?<![A-Z_])({'|'.join(words)})(?![A-Z])"
    text = (TEMPLATES / file).read_text(encoding="utf-8")
    return re.sub(pattern, lambda m: words[m[0]], text)


def function_name(name: str, level: int, symbol: str) -> str:
    """The name of a program's function in a library.  Kernels keep their names, which are hashes of
    their contents.
    """
    if symbol.startswith(ENTRY.removesuffix("main")):
        return f"{name}_{level}_{symbol.removeprefix('tilesmith_')}"
    return symbol


def own_names(name: str) -> list[str]:
    """C macros for a library of one program whose functions keep the names of its object code.

    The tables use the names of `function_name`.  The macros replace them by the functions' names.
    """
    return [f"#define {function_name(name, 0, s)} {s}" for s in (ENTRY, SIZES)]


def embedded(symbol: str, path: Path) -> str:
    """The C text of an array with a file's contents, for compilers of C23 (`#embed`)."""
    return (
        f"__attribute__((aligned({ALIGNMENT}))) const unsigned char {symbol}[] = {{\n"
        f'#embed "{path}"\n}};\n'
    )


def source(
    name: str, programs: Sequence[Program], weights: Sequence[Weights], file_bytes: int
) -> str:
    """The C file that defines a library's functions: tables for `model.c`, and calls of `model.c`.

    file_bytes: size of the file of weights; 0 if there is none.
    """
    parts = (f'#include "{name}.h"', EXPORTED, tables(name, programs, weights, file_bytes))
    return "\n\n".join((*parts, template("functions.c", name)))


def tables(
    name: str, programs: Sequence[Program], weights: Sequence[Weights], file_bytes: int
) -> str:
    """The C text of a `struct tilesmith_description description`, for a file that includes
    `tilesmith_model.h`.
    """
    first = programs[0]
    names = [s.name for s in first.symbols]
    parts = ["#include <stddef.h>", "#define NONE NULL"]
    parts += _tensors("inputs", first.inputs, {}, names, states={i for _, i in first.states})
    parts += _tensors("outputs", first.outputs, dict(first.in_place), names, dict(first.bounds))
    symbols = [
        f"{{{text(s.name)}, {s.sizes.low}, {s.sizes.high}}}" for s in first.symbols
    ]  # fmt: skip
    parts.append(_array("struct tilesmith_symbol", "symbols", symbols))
    for level, (program, place) in enumerate(zip(programs, weights, strict=True)):
        parts += _functions(name, level, program, place)
    rows = [_program(name, i, p, w) for i, (p, w) in enumerate(zip(programs, weights, strict=True))]
    parts.append(_array("struct tilesmith_program", "programs", rows))
    counts = f"{len(first.inputs)}, {len(first.outputs)}, {len(first.symbols)}"
    version = text(f"Tilesmith {VERSION}")
    parts.append(
        f"static const struct tilesmith_description description = {{{text(name)}, {version}, "
        f"inputs, outputs, symbols,\n    {counts}, {file_bytes}, programs, {len(programs)}}};"
    )
    return "\n\n".join(parts)


def header(name: str, programs: Sequence[Program], threads: int, file_bytes: int) -> str:
    """The header of a library: its functions, and sizes as constants."""
    first, upper = programs[0], name.upper()
    lines = [
        f"/* {name}: a model compiled by Tilesmith {VERSION} "
        f"for {', '.join(p.target.name for p in programs)}.",
        " *",
        *described("Inputs", first.inputs, first.default_arrays, {i for _, i in first.states}),
        *described("Outputs", first.outputs),
        *(
            f" * Output {i}: a run finds its extents, which are at most "
            f"[{comment_line(', '.join(map(str, shape)))}]; see {name}_found"
            for i, shape in first.bounds
        ),
        *(
            f" * Extent {i}: {comment_line(s.name)}, from {s.sizes.low} to {s.sizes.high}"
            for i, s in enumerate(first.symbols)
        ),
        " *",
        " * Every function is described at its namesake in tilesmith_model.h. */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        '#include "tilesmith_model.h"',
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {upper}_INPUT_COUNT {len(first.inputs)}",
        f"#define {upper}_OUTPUT_COUNT {len(first.outputs)}",
        f"#define {upper}_EXTENT_COUNT {len(first.symbols)}",
        f"#define {upper}_OUTPUT_AXES {sum(len(stored_shape(s)) for s in first.outputs)} "
        f"/* extents of all outputs, see {name}_sizes */",
        f"#define {upper}_WEIGHTS_BYTES ((int64_t){file_bytes}) /* of the file; 0: none */",
    ]
    for kind, specs in (("INPUT", first.inputs), ("OUTPUT", first.outputs)):
        for i, s in enumerate(specs):
            if s.is_static:
                size = stored_dtype(s.dtype).itemsize * math.prod(stored_shape(s))
                lines.append(f"#define {upper}_{kind}_{i}_BYTES ((int64_t){size})")
    if not first.symbols:
        arena = max(round_up(p.arena_bytes) for p in programs) + _head_bytes(first)
        scratch = max(round_up(p.scratch_bytes) for p in programs)
        lines.append(
            f"#define {upper}_ARENA_BYTES(threads) ((int64_t){arena} + (threads) * "
            f"(int64_t){scratch})"
        )
    lines += [f"#define {upper}_THREADS {threads} /* that its schedules were made for */", ""]
    return "\n".join([*lines, template("prototypes.h", name)])


def _head_bytes(program: Program) -> int:
    """Bytes of an arena that `model.c` reserves for itself (`head_bytes` there)."""
    if not program.grown:
        return HEAD_BYTES
    axes = sum(len(program.outputs[i].shape) for i in program.grown)
    return HEAD_BYTES + round_up(8 * (axes + len(program.outputs) + 1))


def header_text(
    comment: Sequence[str], name: str, includes: Sequence[str], declarations: Sequence[str]
) -> str:
    """A header, for C and C++, of a library or source file `name`."""
    upper = name.upper()
    lines = [*comment, f"#ifndef {upper}_H", f"#define {upper}_H", ""]
    lines += [*(f'#include "{i}"' for i in includes), ""] if includes else []
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", *declarations, ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def described(
    title: str,
    specs: Sequence[TensorSpec],
    defaults: Collection[str] = (),
    states: Collection[int] = (),
) -> list[str]:
    """Lines of a C comment about inputs or outputs.

    defaults: names of inputs that have a default.
    states: numbers of inputs that are states.
    """
    lines = [f" * {title}:"]
    for i, s in enumerate(specs):
        also = f" (optional: number {i} of tilesmith_model_default)" if s.name in defaults else ""
        also = " (a state, which an instance keeps)" if i in states else also
        lines.append(f" *   {i}: {comment_line(str(s))}{also}")
    return lines


def text(value: str) -> str:
    """A C string literal, in ASCII."""
    escaped = "".join(
        c if " " <= c <= "~" and c not in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
        for c in value
    )
    return f'"{escaped}"'


def _array(type: str, name: str, rows: Iterable[str]) -> str:
    """A constant C array.  C has no empty arrays, so an empty one gets a single zero."""
    rows = list(rows)
    body = ",\n".join(f"    {r}" for r in rows) if rows else "    {0}"
    return f"static const {type} {name}[] = {{\n{body}\n}};"


def _tensors(
    name: str,
    specs: Sequence[TensorSpec],
    homes: dict[int, int],
    symbols: Sequence[str],
    bounds: Mapping[int, tuple[int | str, ...]] | None = None,
    states: Collection[int] = (),
) -> list[str]:
    shapes, rows = [], []
    numbers = {s: -1 - i for i, s in enumerate(symbols)}
    for i, s in enumerate(specs):
        extents = [
            str(d if isinstance(d, int) else numbers.get(d, "INT64_MIN"))
            for d in (bounds or {}).get(i, stored_shape(s))
        ]
        shapes.append(f"static const int64_t {name}_{i}[] = {{{', '.join(extents) or '0'}}};")
        rows.append(
            f"{{{text(s.name)}, {text(str(s.dtype))}, {stored_dtype(s.dtype).itemsize}, "
            f"{len(extents)}, {name}_{i}, {homes.get(i, -1)}, {int(i in (bounds or {}))}, "
            f"{int(i in states)}}}"
        )
    return ["\n".join(shapes), _array("struct tilesmith_tensor", name, rows)]


def _functions(name: str, level: int, program: Program, weights: Weights) -> list[str]:
    """Declarations of a program's functions and constants, and the tables of its calls."""
    entry = function_name(name, level, ENTRY)
    lines = [f"extern int32_t {entry}(struct tilesmith_context *context);"]
    if program.symbols:
        sizes = function_name(name, level, SIZES)
        lines.append(f"extern int32_t {sizes}(const int64_t *extents, int64_t *values);")
    if weights.symbol:
        lines.append(f"extern const unsigned char {weights.symbol}[];")
    features = [*(text(f) for f in sorted(program.target.features)), "NONE"]
    lines.append(f"static const char *const features_{level}[] = {{{', '.join(features)}}};")
    messages: dict[tuple[str, ...], str] = {}
    for call in program.calls:
        if call.messages and call.messages not in messages:
            variable = messages[call.messages] = f"messages_{level}_{len(messages)}"
            texts = ", ".join(map(text, call.messages))
            lines.append(f"static const char *const {variable}[] = {{{texts}}};")
    rows = [
        f"{{{text(c.label or c.symbol)}, {messages.get(c.messages, 'NONE')}}}"
        for c in program.calls
    ]
    parts = ["\n".join(lines), _array("struct tilesmith_call", f"calls_{level}", rows)]
    if program.defaults:
        places = dict(program.defaults)
        begins = [str(places.get(i, -1)) for i in range(len(program.inputs))]
        parts.append(_array("int64_t", f"defaults_{level}", begins))
    return parts


def _program(name: str, level: int, program: Program, weights: Weights) -> str:
    sizes = function_name(name, level, SIZES) if program.symbols else "NONE"
    values = (
        f"features_{level}", function_name(name, level, ENTRY), sizes, program.size_values,
        program.arena_bytes, program.scratch_bytes, weights.symbol or "NONE",
        program.constants.nbytes, weights.begin, f"UINT64_C({weights.sum})", f"calls_{level}",
        f"defaults_{level}" if program.defaults else "NONE",
    )  # fmt: skip
    return f"{{{', '.join(map(str, values))}}}"
