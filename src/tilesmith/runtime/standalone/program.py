"""A model as one static program for Linux, without files: agents without Python run it."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace

from tilesmith.codegen.c.compiler import ZIG
from tilesmith.ir.target import Target
from tilesmith.runtime.program import Program
from tilesmith.support.errors import ModelError
from tilesmith.support.folders import scratch_folder

from .export import library_objects
from .objects import check_programs, check_system, places_of
from .tables import header, template
from .toolchain import SOURCES, Toolchain, toolchain, zig_name

_NAME = "model"
STATIC_FLAGS = ("-static", "-s", "-lm", "-pthread")
"""Flags to link a static program."""


def static_tools(target: Target, small: bool = False) -> Toolchain:
    """The tools for static programs: this machine's, or zig's with musl.

    small: whether to take zig's, if they are there: programs with musl are much smaller.

    Raises UsageError if there are no tools for the target.
    """
    tools = toolchain(target)
    if tools.compiler[: len(ZIG)] != ZIG and not (small and importlib.util.find_spec("ziglang")):
        return tools
    zig = zig_name(target.architecture, "linux-musl")
    return replace(tools, compiler=(*ZIG, "cc", "-target", zig))


def static_program(program: Program, threads: int) -> bytes:
    """A program for the program's target that reads inputs from descriptor 0 and writes outputs to
    descriptor 1 (`csrc/library/templates/device.c`).

    Raises UsageError for a program that can't be exported or without a compiler, ModelError for
    open dimensions.
    """
    check_programs([program])
    check_system([program])
    if program.symbols or program.needs_growth:
        raise ModelError(
            "an agent without Python runs models with fixed shapes: expected shapes=, found open "
            "dimensions"
        )
    tools = static_tools(program.target)
    places, file_bytes = places_of([program], _NAME, "inside")
    with scratch_folder() as scratch:
        include = scratch / "include"
        include.mkdir()
        text = header(_NAME, [program], threads, file_bytes)
        (include / f"{_NAME}.h").write_text(text, encoding="utf-8")
        for path in (SOURCES / "tilesmith.h", SOURCES / "library" / "tilesmith_model.h"):
            shutil.copyfile(path, include / path.name)
        main, made = scratch / "device.c", scratch / "device.o"
        main.write_text(template("device.c", _NAME), encoding="utf-8")
        tools.compile(main, made, f"-I{include}")
        objects = library_objects([program], _NAME, places, file_bytes, include, scratch, tools)
        whole = scratch / _NAME
        tools.link([made, *objects], whole, *STATIC_FLAGS)
        return whole.read_bytes()
