"""Compilation of named operators for other engines, and the plain C library of operators."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tilesmith.driver.entry import of_frontend, program_of
from tilesmith.driver.request import Request
from tilesmith.frontend.common.expressions import Definition, Parameter, define
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.types import TensorType
from tilesmith.runtime.arrays import stored_shape
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import Program
from tilesmith.runtime.standalone.objects import Exported
from tilesmith.runtime.standalone.plugin import write_plugin
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import written_in
from tilesmith.support.options import Options
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Placeholder, Tensor
from tilesmith.tuning.template import auto_schedule


def check_names(names: Iterable[object]) -> None:
    """Raises UsageError unless all names can be names of operators, or parts of a domain."""
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(
                f"name of an operator, or part of a domain: expected letters, digits and _, "
                f"found {name!r}"
            )


def check_types(what: str, program: Program, known: Collection[str]) -> None:
    """Raises UsageError for inputs and outputs of types that an engine does not have, or that are
    stored in parts of bytes.

    what: named in the message.
    known: the types that it has.
    """
    for spec in (*program.inputs, *program.outputs):
        if str(spec.dtype) not in known or stored_shape(spec) != spec.shape:
            raise UsageError(
                f"{what}: {spec.name} has elements of {spec.dtype}; expected one of "
                f"{', '.join(sorted(known))}, in whole bytes"
            )


def programs_of_operators(
    ops: Mapping[str, Any], targets: Sequence[str], request: Request
) -> dict[str, tuple[Program, ...]]:
    """By operator name, a program for each level.  An executable's only program is used as it is.

    ops: for each operator's name a model as for `compile`, an executable, or a pair (schedule,
        arguments) as for `build`, in which "auto" may replace the schedule.
    targets: levels of one kind of processor, the best first; empty: the target of `request`.
    request: the options of the compilation; its model is ignored.

    Raises the errors of `compile`, and UsageError for objects that are not operators.
    """
    if not isinstance(ops, Mapping) or not ops:
        raise UsageError(f"expected operators by name, such as {{'Gelu': model}}, found {ops!r}")
    check_names(ops)
    return {
        name: (model.program,)
        if isinstance(model, Executable)
        else _programs(name, replace(request, model=model), targets)
        for name, model in ops.items()
    }


def _programs(name: str, request: Request, targets: Sequence[str]) -> tuple[Program, ...]:
    """A model's program for each level."""
    model = request.model
    if isinstance(model, tuple):
        if len(model) != 2 or not (isinstance(model[0], Schedule) or model[0] == "auto"):
            raise UsageError(
                f"operator {name}: expected a schedule (or 'auto') and its arguments, found {model}"
            )
        levels = request.levels(targets)
        graphs = [_graph_of(name, *model, r.options.target) for r in levels]
        return tuple(program_of(replace(r, model=g)) for r, g in zip(levels, graphs, strict=True))
    request, _ = of_frontend(request)
    return tuple(map(program_of, request.levels(targets)))


def _graph_of(
    name: str, schedule: Schedule | Literal["auto"], arguments: Sequence[Tensor], target: str
) -> Graph:
    """A graph with one operator, which a schedule defines."""
    chosen = auto_schedule(arguments, target) if schedule == "auto" else schedule
    inputs = [a for a in arguments if isinstance(a.op, Placeholder)]
    parameters = tuple(Parameter(a.name) for a in inputs)
    results = len(arguments) - len(inputs)
    qualified = f"operator::{name}"
    op = define(
        Definition(qualified, parameters, lambda *_: (chosen, arguments), results, __name__)
    )
    b = Builder(name)
    made = b.add(op(), *(b.input(a.name, TensorType(a.dtype, a.shape)) for a in inputs), loc=name)
    return b.finish(made if isinstance(made, tuple) else (made,))


@checked(UsageError)
def export_plugin(
    ops: Mapping[str, Any],
    folder: str | Path,
    name: str = "operators",
    *,
    threads: int | None = None,
    targets: Sequence[str] = (),
    options: Options | None = None,
) -> Exported:
    """Write a library of operators with a plain C interface, for use in other engines.

    `NAME_register` passes a `struct tilesmith_operator` for each operator to the engine: the
    operator's name, and functions that compute output shapes and workspace size, and run the
    operator (docs/plugins.md).

    ops: for each operator's name a model as for `compile`, an executable, or a pair (schedule,
        arguments) as for `build`, in which "auto" may replace the schedule.
    folder: folder that is created for the headers and the library.
    name: name of the library: a C identifier.
    threads: threads for which operators are scheduled (default: as `compile`).
    targets: levels of one kind of processor, the best first, as for `export`.  Executables keep the
        target of their compilation.

    Weights are inside the library.  Raises the errors of `compile`, and UsageError for a name or
    model that can't be an operator, or if there is no C compiler.
    """
    request = Request.of(None, options, threads=threads)
    programs, folder = programs_of_operators(ops, targets, request), Path(folder)
    return written_in(folder, lambda scratch: write_plugin(programs, scratch, name))
