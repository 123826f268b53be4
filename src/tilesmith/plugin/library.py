"""`export_plugin`: models and tensor expressions as operators of any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilesmith.driver.request import Request
from tilesmith.runtime.standalone.objects import Exported
from tilesmith.runtime.standalone.plugin import write_plugin
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import filled
from tilesmith.support.options import Options

from .operators import programs_of_operators


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
    """Write a library of operators with a plain C interface, for layers of other engines.

    `NAME_register` passes the engine a `struct tilesmith_operator` for each operator: its name, and
    functions for the shapes of its outputs, the size of its workspace and its run
    (docs/plugins.md).

    ops: by name of the operator: a model as for `compile`, an executable, or a schedule and its
        arguments (`(s, [x, y])`, as for `build`; "auto" in place of the schedule).
    folder: is created, and receives headers and library.
    name: name of the library: a C identifier.
    threads: threads for which operators are scheduled (default: as `compile`).
    targets: levels of one kind of processor, the best first, as for `export`; executables have
        their own.

    Weights are inside the library.  Raises the errors of `compile`, and UsageError for a name or
    model that can't be an operator and if there is no C compiler.
    """
    request = Request.of(None, options, threads=threads)
    programs, folder = programs_of_operators(ops, targets, request), Path(folder)
    try:
        with filled(folder) as scratch:
            made = write_plugin(programs, scratch, name)
    except OSError as e:
        raise UsageError(f"{str(folder)!r} can't be written: {e.strerror or e}") from e
    return made.moved(scratch, folder)
