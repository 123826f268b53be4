"""One operator as C source, which the operator generator writes into a folder.

NAME.c has the kernel, NAME.h its declaration.  NAME_test.c compares the kernel with plain loops,
NAME_bench.c measures it.  Test and benchmark make the same random inputs from a seed.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from tilesmith.codegen.c.emit import CFunction, comment
from tilesmith.codegen.c.prelude import MEMORY_TYPES, definitions, is_narrow
from tilesmith.codegen.c.vector_functions import VectorFunction, type_definitions
from tilesmith.codegen.levels import LEVELS
from tilesmith.ir.dtypes import DType
from tilesmith.ir.target import Target
from tilesmith.support.errors import UsageError
from tilesmith.support.version import VERSION

from .toolchain import SOURCES, SYSTEMS, Toolchain, toolchain

TEMPLATES = SOURCES / "operator"
"""The folder of the files' templates."""
FLAGS = ("-O3", "-fno-math-errno", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror")
"""Compiler flags for gcc, clang and zig.  Warnings in generated text are errors."""

ZIG_FLAGS = ("-fno-sanitize=undefined", "-Wno-unused-command-line-argument")
"""Additional flags for zig, which by default traps on undefined behaviour and adds -c to
every -S.
"""

CPU_FLAGS: dict[str, tuple[str, str]] = {
    "x86-64-v4": ("-march=x86-64-v4", "-mcpu=x86_64_v4"),
    "x86-64-v3": ("-march=x86-64-v3", "-mcpu=x86_64_v3"),
    "x86-64-v2": ("-march=x86-64-v2", "-mcpu=x86_64_v2"),
    "armv7": ("-mfpu=neon-vfpv4", "-mcpu=cortex_a7"),
    "riscv64-v": ("-march=rv64gcv", "-mcpu=baseline_rv64+v"),
}
"""For each level, the best first: the flag that selects the level's instructions in gcc and clang,
and the flag that selects them in zig.
"""


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of the operator.

    name: its name in C.
    dtype: element type.
    shape: extents.
    is_output: whether the operator writes it.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_output: bool

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def element(self) -> str:
        return MEMORY_TYPES[self.dtype.name]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """An operator to be written.

    name: name of the function and the files: a C identifier.
    about: a one-line description of its computation.
    kernel: the scheduled loops, with the workspace that they need.
    reference: the same computation as loops without a schedule.
    arguments: the function's parameters in order.
    flops: floating-point operations of the plain loops.
    bounds: for each output, the allowed error relative to its largest element; 0: exact.
    target: the machine.
    """

    name: str
    about: str
    kernel: VectorFunction
    reference: CFunction
    arguments: tuple[Argument, ...]
    flops: float
    bounds: tuple[float, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class ExportedOperator:
    """The files of an operator.

    source, header: C text.
    assembly, object: the compiler's output.
    test, bench: programs in C.
    files: all paths.
    """

    source: Path
    header: Path
    assembly: Path
    object: Path
    test: Path
    bench: Path
    files: tuple[Path, ...]


def write_operator(code: OperatorCode, folder: Path) -> ExportedOperator:
    """Write the files to an empty folder.

    Raises UsageError where no compiler makes code for the target.
    """
    tools, flags = operator_tools(code.target)
    name = code.name
    words = _words(code, tools, flags)
    texts = {
        f"{name}.h": _filled("operator.h", words),
        f"{name}.c": _source(code),
        f"{name}_test.c": _filled("test.c", words),
        f"{name}_bench.c": _filled("bench.c", words),
        "Makefile": _filled("Makefile", words),
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    shutil.copyfile(SOURCES / "tilesmith.h", folder / "tilesmith.h")
    source, object_, assembly = (folder / f"{name}.{end}" for end in ("c", "o", "s"))
    tools.compile(source, object_)
    tools.assembly(source, assembly)
    files = (*(folder / f for f in texts), folder / "tilesmith.h", object_, assembly)
    return ExportedOperator(
        source, folder / f"{name}.h", assembly, object_, folder / f"{name}_test.c",
        folder / f"{name}_bench.c", files,
    )  # fmt: skip


def operator_tools(target: Target) -> tuple[Toolchain, tuple[str, ...]]:
    """The toolchain that compiles operators for a target, and the compiler's flags.

    Raises UsageError for targets other than CPUs on Linux, macOS or Windows.
    """
    if target.backend != "cpu" or target.system not in SYSTEMS:
        raise UsageError(
            f"target {target.name}: expected a processor on Linux, macOS or Windows, such as "
            "x86-64-v3 or aarch64; microcontrollers and WebAssembly take whole models "
            "(tilesmith export)"
        )
    tools = toolchain(target)
    is_zig = tools.compiler[0] == sys.executable
    level = next(
        (
            n for n in CPU_FLAGS
            if LEVELS[n].triple.split("-")[0] == target.architecture
            and LEVELS[n].features <= target.features
        ),
        None,
    )  # fmt: skip
    flags = FLAGS if level is None else (*FLAGS, CPU_FLAGS[level][is_zig])
    if is_zig:
        flags = (*flags, *ZIG_FLAGS)
    return replace(tools, flags=flags), flags


def _source(code: OperatorCode) -> str:
    """NAME.c: the kernel, and the function that calls it."""
    own, name = code.kernel.function, code.name
    kernel = own.text.replace(f"int32_t {own.symbol}(", f"static int32_t {own.symbol}(", 1)
    called = ", ".join([*(a.name for a in code.arguments), "workspace", "&context"])
    types = type_definitions(code.kernel.types)
    wrapper = (
        f"int32_t {name}({_parameters(code)}) {{\n"
        "    struct tilesmith_context context;\n"
        "    memset(&context, 0, sizeof context);\n"
        f"    return {own.symbol}({called});\n"
        "}\n"
    )
    about = comment(f"{code.about}.  Made by Tilesmith {VERSION} for {code.target.name}.")
    includes = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"
    return "\n".join(
        [
            about,
            f'#include "{name}.h"\n',
            includes,
            types,
            definitions(own.helpers) + kernel,
            wrapper,
        ]
    )


def _parameters(code: OperatorCode) -> str:
    shown = [f"{'' if a.is_output else 'const '}{a.element} *{a.name}" for a in code.arguments]
    return ", ".join([*shown, "void *workspace"])


def _words(code: OperatorCode, tools: Toolchain, flags: Sequence[str]) -> dict[str, str]:
    """The values of the placeholders in the templates."""
    workspace = code.kernel.function.workspace_bytes
    needed = code.reference.workspace_bytes
    if not (isinstance(workspace, int) and isinstance(needed, int)):
        raise UsageError(f"{code.name}: expected fixed shapes, found open dimensions")
    outputs = [a for a in code.arguments if a.is_output]
    own = code.reference
    reference = own.text.replace(f"int32_t {own.symbol}(", f"static int32_t {own.symbol}(", 1)
    names = ", ".join(a.name for a in code.arguments)
    expected = ", ".join(f"want_{a.name}" if a.is_output else a.name for a in code.arguments)
    narrow = {f"ts_{way}_{a.dtype}" for a in code.arguments if is_narrow(a.dtype)
              for way in ("load", "store")}  # fmt: skip
    written = {f"ts_store_{a.dtype}" for a in code.arguments if is_narrow(a.dtype)}
    moved = sum(a.count * a.dtype.bytes for a in code.arguments)
    return {
        "name": code.name,
        "upper": code.name.upper(),
        "version": VERSION,
        "target": code.target.name,
        "about": code.about.replace("*/", "* /"),
        "arguments": "\n".join(f" * {a}" for a in code.arguments),
        "parameters": _parameters(code),
        "workspace": str(workspace),
        "counts": "\n".join(
            f"#define {code.name.upper()}_{a.name.upper()}_COUNT {a.count}" for a in code.arguments
        ),
        "names": names,
        "expected": expected,
        "declared": "\n".join(f"    {_allocation(code, a, a.name)}" for a in code.arguments),
        "declared_expected": "\n".join(
            f"    {_allocation(code, a, f'want_{a.name}')}" for a in outputs
        ),
        "filled": "\n".join(f"    {_fill(code, a)}" for a in code.arguments if not a.is_output),
        "compared": "\n".join(
            _comparison(code, a, bound) for a, bound in zip(outputs, code.bounds, strict=True)
        ),
        "reference": reference,
        "reference_name": own.symbol,
        "reference_workspace": str(needed),
        "helpers": definitions(own.helpers | narrow),
        "bench_helpers": definitions(written),
        "flops": f"{code.flops:.0f}",
        "bytes": f"{moved}",
        "compiler": " ".join("python" if w == sys.executable else w for w in tools.compiler),
        "flags": " ".join(f for f in flags if f != "-Werror"),
    }


def _filled(file: str, words: dict[str, str]) -> str:
    text = (TEMPLATES / f"{file}.in").read_text(encoding="utf-8")
    return re.sub(r"\n{3,}", "\n\n", Template(text).substitute(words))


def _allocation(code: OperatorCode, a: Argument, name: str) -> str:
    count = f"{code.name.upper()}_{a.name.upper()}_COUNT"
    return f"{a.element} *{name} = memory({count} * sizeof *{name});"


def _fill(code: OperatorCode, a: Argument) -> str:
    count = f"{code.name.upper()}_{a.name.upper()}_COUNT"
    return f"for (size_t i = 0; i < {count}; i++) {a.name}[i] = {_drawn(a)};"


def _drawn(a: Argument) -> str:
    """A C expression for a random element of an input.  Elements of `variance` are positive."""
    if a.dtype.is_bool:
        return "(uint8_t)(draw() % 2)"
    if a.dtype.is_int:
        middle = 8 if a.dtype.kind == "int" else 0
        return f"({a.element})((int)(draw() % 17) - {middle})"
    number = "unit()" if a.name != "variance" else "(1.5 + unit())"
    if is_narrow(a.dtype):
        return f"ts_store_{a.dtype}((float){number})"
    return number if a.dtype.bits == 64 else f"(float){number}"


def _comparison(code: OperatorCode, a: Argument, bound: float) -> str:
    def value(name: str) -> str:
        return f"ts_load_{a.dtype}({name}[i])" if is_narrow(a.dtype) else f"(double){name}[i]"

    upper = code.name.upper()
    return "\n".join([
        "    start();",
        f"    for (size_t i = 0; i < {upper}_{a.name.upper()}_COUNT; i++)",
        f"        compare({value(a.name)}, {value(f'want_{a.name}')});",
        f'    failed |= judged("{a.name}", {bound!r});',
    ])  # fmt: skip
