"""`tilesmith.export_op`: one operator, or any tensor expression, as optimised C source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tilesmith.codegen.c.builder import Names
from tilesmith.codegen.c.emit import write
from tilesmith.codegen.c.vector_functions import write_vectors
from tilesmith.codegen.targets import covers, host
from tilesmith.driver import Session
from tilesmith.driver.operators import OPERATORS, operator_arguments
from tilesmith.driver.passes import lower_loops
from tilesmith.perf.kernel_work import work_of
from tilesmith.runtime.standalone.operator import (
    Argument,
    ExportedOperator,
    OperatorCode,
    operator_tools,
    write_operator,
)
from tilesmith.strategy.sketch import generated
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import written_in
from tilesmith.support.options import Options
from tilesmith.te.knobs import Config, Decisions
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.tensor import Placeholder, Tensor
from tilesmith.tuning.template import tune_expression


@checked(UsageError)
def export_op(
    op: str | Sequence[Tensor] | Schedule,
    folder: str | Path,
    name: str | None = None,
    *,
    shapes: Sequence[Sequence[int]] = (),
    dtype: str | Sequence[str] = "f32",
    attributes: Mapping[str, Any] | None = None,
    args: Sequence[Tensor] = (),
    target: str | None = None,
    tune: float = 0.0,
    options: Options | None = None,
) -> ExportedOperator:
    """Write an operator as vectorised C, its object and assembly, a test and a benchmark.

    op: an operator by name, such as "conv2d" or "matmul" (docs/libraries.md); tensors, placeholders
        before results; or a schedule of `args`.
    folder: is created, and receives the files.
    name: name of the function and the files, a C identifier (default: the operator's, else
        "kernel").
    shapes: shapes of the operands of an operator by name; `dtype` their element type, or one for
        each; `attributes` are fields of the operator, such as `strides`.
    target: as for `compile`; code for it is made by this machine's compiler or `ziglang`.
    tune: seconds to search for a faster schedule on this machine.

    The function runs on one thread.  Raises UsageError, ModelError for operands that don't fit, and
    ScheduleError.
    """
    session = Session.of(options, target=target, threads=1)
    operator_tools(session.target)  # an impossible target is refused before anything takes time
    called = name or (default_name(op) if isinstance(op, str) else "kernel")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", called) or Names().fresh(called) != called:
        raise UsageError(
            f"name: expected a C identifier that is no word or function of C, found {called!r}"
        )
    if isinstance(op, str):
        tensors = operator_arguments(op, shapes, dtype, attributes or {})
    else:
        if shapes or attributes:
            raise UsageError(
                "shapes, attributes: expected with an operator by name; tensors have shapes"
            )
        tensors = tuple(args if isinstance(op, Schedule) else op)
    if isinstance(op, Schedule):
        if tune:
            raise UsageError("tune: expected an operator or tensors, found a schedule, which stays")
        schedule = op
    else:
        schedule = _scheduled(tensors, session, tune)
    code, folder = _code(schedule, tensors, called, op, session), Path(folder)
    return written_in(folder, lambda scratch: write_operator(code, scratch))


def default_name(op: str) -> str:
    """The default name of an operator's function.  Operators outside `OPERATORS` get a suffix,
    since C has functions with some of their names.
    """
    return op if op in OPERATORS else f"{op}_op"


def _scheduled(tensors: Sequence[Tensor], session: Session, seconds: float) -> Schedule:
    """The schedule made by rules or, if there is time to search, the best schedule found."""
    if seconds <= 0:
        bound = session.options.algorithm_bound
        return session.backend.auto_schedule(tensors, session.target, bound)
    if not covers(host(), session.target):
        raise UsageError(
            f"tune: expected a target whose code runs here, found {session.target.name}"
        )
    fastest = tune_expression(
        tensors, target=session.options.target, threads=1, options=session.options, seconds=seconds
    )
    template = generated(tensors, session.target, session.options.algorithm_bound)
    return template(Config(cast("Decisions", fastest.decisions)))[0]


def _is_result(t: Tensor) -> bool:
    return not isinstance(t.op, Placeholder)


def _extents(t: Tensor) -> tuple[int, ...]:
    extents = tuple(n for n in t.shape if isinstance(n, int))
    if len(extents) != t.rank:
        raise UsageError(
            f"{t.name}: expected fixed extents, found {', '.join(map(str, t.shape))}; make the "
            "tensors for the sizes that are wanted"
        )
    return extents


def _code(
    schedule: Schedule, tensors: Sequence[Tensor], name: str, op: object, session: Session
) -> OperatorCode:
    outputs = [t for t in tensors if _is_result(t)]
    if not outputs:
        raise UsageError("none of the tensors is computed: expected inputs, then results")
    target = session.target
    vectors, plain = (replace(session, target=replace(target, backend=b)) for b in ("vectors", "c"))
    kernel = write_vectors(lower_loops(lower(schedule, tensors, f"{name}_kernel"), vectors))
    naive = lower(create_schedule([t.op for t in outputs]), tensors, f"{name}_reference")
    loops = lower_loops(naive, plain)
    names = Names({name, f"{name}_kernel"})
    arguments = tuple(
        Argument(
            names.fresh("output" if isinstance(op, str) and _is_result(t) else t.name),
            t.dtype,
            _extents(t),
            _is_result(t),
        )
        for t in tensors
    )
    bounds = tuple(session.options.bound(str(t.dtype)) for t in outputs)
    shown = op if isinstance(op, str) else "a tensor expression"
    return OperatorCode(
        name, f"{shown}", kernel, write(loops), arguments, work_of(loops, target).flops, bounds,
        target,
    )  # fmt: skip
