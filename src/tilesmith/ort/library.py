"""`export_custom_ops`: models and tensor expressions as custom operators of ONNX Runtime."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tilesmith.driver.entry import program_of, source_of
from tilesmith.driver.request import Request
from tilesmith.frontend.common.expressions import Definition, Parameter, define
from tilesmith.frontend.onnx.writer import CODES
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.types import TensorType
from tilesmith.runtime.arrays import stored_shape
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.runtime.standalone.export import (
    check_extents,
    check_programs,
    check_system,
    places_of,
    program_objects,
    runtime_objects,
)
from tilesmith.runtime.standalone.tables import tables, text
from tilesmith.runtime.standalone.toolchain import toolchain
from tilesmith.runtime.threads import thread_count
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Placeholder, Tensor
from tilesmith.tuning.template import auto_schedule

Pool: TypeAlias = Literal["session", "own"]

RUNTIME = ("library/model.c", "library/ort.c", "pool.c")
"""The files of the runtime that a library of operators needs."""


def export_custom_ops(
    ops: Mapping[str, Any],
    path: str | Path,
    *,
    domain: str = "tilesmith",
    targets: Sequence[str] = (),
    threads: int | None = None,
    pool: Pool = "session",
    options: Options | None = None,
) -> Path:
    """Write a library of operators for ONNX Runtime 1.17 or later.

    `SessionOptions.register_custom_ops_library(path)` makes them known; a model calls one by a node
    of this `domain` whose inputs and outputs are those of the operator, in order and in type.

    ops: by name of the operator, what `compile` takes, an executable that it made, or a schedule
        and its arguments (`(s, [x, y])`, as for `build`; "auto" in place of the schedule).
    path: of the shared library, such as "ops.so"; a file of this name is replaced, its folder is
        made.
    targets: levels of one kind of processor, the best first, as for `export`; executables have
        their own.
    threads: that an operator uses (default: as `compile`).
    pool: whose threads they are: the "session"'s, or the library's "own", which is faster where a
        session's threads do not spin (`session.intra_op.allow_spinning` is "0"), and slower where
        they do.

    Returns the path.  Weights are inside the library.  Raises what `compile` does, and UsageError
    for what can't be an operator and where there is no C compiler.
    """
    options = (options or Options.from_environment()).with_(threads=threads)
    if not isinstance(ops, Mapping) or not ops:
        raise UsageError(
            "expected operators by name, such as {'Gelu': model}, found " + (repr(ops) or "none")
        )
    for name in (*ops, *domain.split(".")):
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(
                f"name of an operator, or part of a domain: expected letters, digits and _, "
                f"found {name!r}"
            )
    if pool not in get_args(Pool):
        raise UsageError(f"pool: expected one of {get_args(Pool)}, found {pool!r}")
    levels = targets or (options.target,)
    programs = {
        name: (model.program,) if isinstance(model, Executable) else _programs(
            name, model, [options.with_(target=t) for t in levels]
        )
        for name, model in ops.items()
    }  # fmt: skip
    for name, found in programs.items():
        _check(name, found)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from e
    _write(programs, path, domain, thread_count(options.threads), pool)
    return path


def _programs(name: str, model: Any, levels: Sequence[Options]) -> tuple[Program, ...]:
    """A model's program for each level."""
    if isinstance(model, tuple):
        if len(model) != 2 or not (isinstance(model[0], Schedule) or model[0] == "auto"):
            raise UsageError(
                f"operator {name}: expected a schedule (or 'auto') and its arguments, found {model}"
            )
        graphs = [_graph_of(name, *model, o.target) for o in levels]
        return tuple(program_of(Request(g, o)) for g, o in zip(graphs, levels, strict=True))
    model, _, dynamic = source_of(model, None, None)
    return tuple(program_of(Request(model, o, dynamic=dynamic)) for o in levels)


def _graph_of(
    name: str, schedule: Schedule | Literal["auto"], arguments: Sequence[Tensor], target: str
) -> Graph:
    """A graph of one operator, which a schedule computes."""
    found = auto_schedule(arguments, target) if schedule == "auto" else schedule
    inputs = [a for a in arguments if isinstance(a.op, Placeholder)]
    parameters = tuple(Parameter(a.name) for a in inputs)
    results = len(arguments) - len(inputs)
    op = define(
        Definition(f"ort::{name}", parameters, lambda *_: (found, arguments), results, __name__)
    )
    b = Builder(name)
    made = b.add(op(), *(b.input(a.name, TensorType(a.dtype, a.shape)) for a in inputs), loc=name)
    return b.finish(made if isinstance(made, tuple) else (made,))


def _check(name: str, programs: Sequence[Program]) -> None:
    check_programs(programs)
    check_system(programs)
    first = programs[0]
    check_extents(first)
    if first.in_place:
        raise UsageError(
            f"operator {name}: its outputs can't live in inputs, which belong to the session; "
            "compile it without in_place="
        )
    for spec in (*first.inputs, *first.outputs):
        if spec.dtype not in CODES or stored_shape(spec) != spec.shape:
            raise UsageError(
                f"operator {name}: {spec.name} has elements of {spec.dtype}; expected a type of "
                "ONNX of whole bytes"
            )


def _write(
    programs: Mapping[str, Sequence[Program]], path: Path, domain: str, threads: int, pool: Pool
) -> None:
    tools = toolchain(next(iter(programs.values()))[0].target)
    with tempfile.TemporaryDirectory(prefix="tilesmith-") as folder:
        scratch = Path(folder)
        objects = runtime_objects(RUNTIME, scratch, tools)
        for i, found in enumerate(programs.values()):
            places, _ = places_of(found, f"op{i}", "inside")
            objects += program_objects(found, f"op{i}", places, scratch, tools)
        for i, (name, found) in enumerate(programs.items()):
            places, _ = places_of(found, f"op{i}", "inside")
            own = scratch / f"op{i}.c"
            own.write_text(
                _operator(i, name, tables(f"op{i}", found, places, 0), found, threads, pool)
            )
            tools.compile(own, own.with_suffix(".o"))
            objects.append(own.with_suffix(".o"))
        main = scratch / "register.c"
        main.write_text(_registration(len(programs), domain))
        tools.compile(main, main.with_suffix(".o"))
        unique = list(dict.fromkeys((*objects, main.with_suffix(".o"))))
        try:
            tools.shared(unique, path)
        except OSError as e:
            raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from e


def _operator(
    number: int, name: str, description: str, programs: Sequence[Program], threads: int, pool: Pool
) -> str:
    """The C file of one operator."""
    first = programs[0]
    types = [
        f"static const int32_t {kind}_types[] = {{{_codes(specs)}}};"
        for kind, specs in (("input", first.inputs), ("output", first.outputs))
    ]
    op = (
        f"struct tilesmith_ort_op tilesmith_ort_op_{number} = {{.name = {text(name)}, "
        f".description = &description,\n    .input_types = input_types, "
        f".output_types = output_types, .threads = {threads},\n"
        f"    .has_own_pool = {int(pool == 'own')}}};"
    )
    return "\n\n".join(('#include "tilesmith_ort.h"', description, *types, op, ""))


def _codes(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(str(CODES[s.dtype]) for s in specs) or "0"


def _registration(count: int, domain: str) -> str:
    """The C file of the function that ONNX Runtime calls."""
    names = [f"tilesmith_ort_op_{i}" for i in range(count)]
    return "\n".join((
        '#include "tilesmith_ort.h"',
        f"extern struct tilesmith_ort_op {', '.join(names)};",
        f"static struct tilesmith_ort_op *const ops[] = {{{', '.join(f'&{n}' for n in names)}}};",
        '__attribute__((visibility("default"))) struct ort_status *RegisterCustomOps('
        "struct ort_options *options, const struct ort_api_base *base) {",
        f"    return tilesmith_ort_register(options, base, {text(domain)}, ops, {count});",
        "}",
        "",
    ))  # fmt: skip
