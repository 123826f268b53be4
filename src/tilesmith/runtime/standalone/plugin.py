"""Plugins: libraries of operators with the interface of `tilesmith_plugin.h`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilesmith.codegen.c.emit import comment_line
from tilesmith.runtime.program import Program
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import scratch_folder
from tilesmith.support.version import VERSION

from .objects import (
    Exported,
    check_name,
    check_programs,
    runtime_objects,
)
from .operators import check_operator, operator_objects
from .tables import EXPORTED, described, header_text, text
from .toolchain import SOURCES, toolchain

RUNTIME = ("library/model.c", "library/plugin.c", "pool.c")
"""The files of the runtime that a plugin needs."""

MOST_AXES, MOST_SYMBOLS = 8, 64
"""Upper bounds on axes and symbols of an operator.  The C code has the same bounds:
TILESMITH_MOST_AXES, and MOST_SYMBOLS in `plugin.c`.
"""


def write_plugin(ops: Mapping[str, Sequence[Program]], folder: Path, name: str) -> Exported:
    """Write `include/NAME.h` and the other headers, and `lib/libNAME.so` (or the library format of
    the target's system), to an empty folder.

    ops: by operator name, a program for each level of one kind of processor, the best first.
    name: name of the library: a C identifier.

    Raises UsageError for a program that can't be an operator or if no compiler is found, OSError if
    files can't be written.
    """
    check_name(name)
    for operator, programs in ops.items():
        _check(operator, programs)
    check_programs([p for programs in ops.values() for p in programs])
    tools = toolchain(next(iter(ops.values()))[0].target)
    include, library = folder / "include", folder / "lib" / tools.system.shared.format(name)
    copied = (
        SOURCES / "tilesmith.h",
        SOURCES / "library" / "tilesmith_model.h",
        SOURCES / "library" / "tilesmith_plugin.h",
    )
    for part in (include, library.parent):
        part.mkdir(parents=True, exist_ok=True)
    for path in copied:
        shutil.copyfile(path, include / path.name)
    header = include / f"{name}.h"
    header.write_text(_header(name, ops), encoding="utf-8")
    with scratch_folder() as scratch:
        main = scratch / "register.c"
        main.write_text(_registration(name, len(ops)), encoding="utf-8")
        tools.compile(main, main.with_suffix(".o"), f"-I{include}")
        objects = [
            *runtime_objects(RUNTIME, scratch, tools),
            *operator_objects(ops, scratch, tools, _operator),
            main.with_suffix(".o"),
        ]
        tools.shared(objects, library)
    inside = sum(p.constants.nbytes for programs in ops.values() for p in programs)
    files = (library, header, *(include / p.name for p in copied))
    return Exported(library, header, None, files, library.stat().st_size - inside)


def _check(name: str, programs: Sequence[Program]) -> None:
    check_operator(name, programs)
    first = programs[0]
    for spec in (*first.inputs, *first.outputs):
        if len(spec.shape) > MOST_AXES:
            raise UsageError(
                f"operator {name}: {spec.name} has {len(spec.shape)} axes; expected at most "
                f"{MOST_AXES}"
            )
    if len(first.symbols) > MOST_SYMBOLS:
        raise UsageError(
            f"operator {name} has {len(first.symbols)} open dimensions, a plugin's at most "
            f"{MOST_SYMBOLS}; fix some with shapes="
        )


def _operator(number: int, name: str, description: str) -> str:
    """The C file of one operator."""
    verbs = ("create", "shapes", "workspace_bytes", "run", "error")
    functions = ", ".join(f".{v} = tilesmith_plugin_{v}" for v in verbs)
    op = (
        f"const struct tilesmith_operator tilesmith_plugin_op_{number} = {{\n"
        "    .abi = TILESMITH_ABI, .size = sizeof(struct tilesmith_operator),\n"
        f"    .name = {text(name)}, .description = &description,\n"
        f"    .destroy = tilesmith_model_destroy, {functions}}};"
    )
    return "\n\n".join(('#include "plugin.h"', description, op, ""))


def _header(name: str, ops: Mapping[str, Sequence[Program]]) -> str:
    """The header of a plugin: the descriptions of its operators, and the function that registers
    them.
    """
    targets = next(iter(ops.values()))
    comment = [
        f"/* {name}: operators compiled by Tilesmith {VERSION} "
        f"for {', '.join(p.target.name for p in targets)}."
    ]
    for operator, (first, *_) in ops.items():
        comment += [" *", f" * {comment_line(operator)}"]
        comment += described("Inputs", first.inputs) + described("Outputs", first.outputs)
    declarations = [
        "/* Call add(engine, op) for each operator.  Returns the first result other than 0, or",
        " * TILESMITH_ARGUMENT if `add` is NULL. */",
        f"int32_t {name}_register(tilesmith_add_fn add, void *engine);",
    ]
    return header_text([*comment, " */"], name, ["tilesmith_plugin.h"], declarations)


def _registration(name: str, count: int) -> str:
    """The C file of the function that an engine calls."""
    ops = [f"tilesmith_plugin_op_{i}" for i in range(count)]
    return "\n".join((
        f'#include "{name}.h"',
        EXPORTED,
        f"extern const struct tilesmith_operator {', '.join(ops)};",
        "static const struct tilesmith_operator *const ops[] = "
        f"{{{', '.join(f'&{o}' for o in ops)}}};",
        f"EXPORTED int32_t {name}_register(tilesmith_add_fn add, void *engine) {{",
        "    int32_t code = add ? TILESMITH_OK : TILESMITH_ARGUMENT;",
        f"    for (int i = 0; !code && i < {count}; i++)",
        "        code = add(engine, ops[i]);",
        "    return code;",
        "}",
        "",
    ))  # fmt: skip
