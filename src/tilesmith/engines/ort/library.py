"""`export_custom_ops`: models and tensor expressions as custom operators of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tilesmith.driver.request import Request
from tilesmith.engines.plugin import check_names, check_types, programs_of_operators
from tilesmith.frontend.onnx.writer import CODES
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.runtime.standalone.objects import runtime_objects
from tilesmith.runtime.standalone.operators import check_operator, operator_objects
from tilesmith.runtime.standalone.tables import text
from tilesmith.runtime.standalone.toolchain import toolchain
from tilesmith.runtime.threads import thread_count
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import copied, scratch_folder, writing
from tilesmith.support.options import Options

Pool: TypeAlias = Literal["session", "own"]

RUNTIME = ("library/model.c", "library/ort.c", "pool.c")
"""Files of the runtime that a library of operators needs."""


@checked(UsageError)
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

    `SessionOptions.register_custom_ops_library(path)` registers them.  A node of this `domain`
    calls an operator; the node's inputs and outputs have the operator's order and types.

    ops: for each operator's name a model as for `compile`, an executable, or a pair (schedule,
        arguments) as for `build`, in which "auto" may replace the schedule.
    path: path of the shared library, such as "ops.so"; a file of this name is replaced, its folder
        is created.
    targets: levels of one kind of processor, the best first, as for `export`.  Executables keep the
        target of their compilation.
    threads: threads of an operator (default: as `compile`).
    pool: the owner of these threads: the "session", or the library ("own").  "own" is faster if the
        session's threads do not spin (`session.intra_op.allow_spinning` is "0"), else slower.

    Returns the path.  Weights are inside the library.  Raises the errors of `compile`, and
    UsageError for models that can't be operators, or if there is no C compiler.
    """
    request = Request.of(None, options, threads=threads)
    check_names(domain.split("."))
    if pool not in get_args(Pool):
        raise UsageError(f"pool: expected one of {get_args(Pool)}, found {pool!r}")
    programs = programs_of_operators(ops, targets, request)
    for name, of_levels in programs.items():
        _check(name, of_levels)
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _write(programs, path, domain, thread_count(request.options.threads), pool)
    return path


def _check(name: str, programs: Sequence[Program]) -> None:
    check_operator(name, programs)
    check_types(f"operator {name}", programs[0], [str(t) for t in CODES])


def _write(
    programs: Mapping[str, Sequence[Program]], path: Path, domain: str, threads: int, pool: Pool
) -> None:
    tools = toolchain(next(iter(programs.values()))[0].target)

    def operator(number: int, name: str, description: str) -> str:
        return _operator(number, name, description, programs[name], threads, pool)

    with scratch_folder() as scratch:
        main = scratch / "register.c"
        main.write_text(_registration(len(programs), domain))
        tools.compile(main, main.with_suffix(".o"))
        objects = [
            *runtime_objects(RUNTIME, scratch, tools),
            *operator_objects(programs, scratch, tools, operator),
            main.with_suffix(".o"),
        ]
        made = scratch / path.name
        tools.shared(objects, made)
        copied(made, path)


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
