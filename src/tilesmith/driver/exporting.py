"""`tilesmith.export`: a model as a C library, for one or several levels of a processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tilesmith.ir.sizes import ExpectedSizes
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import Program
from tilesmith.runtime.standalone.export import Format
from tilesmith.runtime.standalone.export import export as write
from tilesmith.runtime.standalone.objects import Exported, WeightsPlace
from tilesmith.runtime.threads import thread_count
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options
from tilesmith.support.precision import AUTO

from .entry import of_frontend, program_of
from .request import Request


@checked(UsageError)
def export(
    model: Any,
    folder: str | Path,
    name: str = "model",
    *,
    targets: Sequence[str] = (),
    format: Format = "shared",
    weights: WeightsPlace = "file",
    example_inputs: Any = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    options: Options | None = None,
    values: Mapping[str, Any] | None = None,
    dynamic: Mapping[Any, Any] | Sequence[Any] | Literal["auto"] | bool | None = None,
    expected: ExpectedSizes | None = None,
    in_place: Mapping[str, str] | None = None,
    pins: Mapping[str, Any] | None = None,
    forbid: Mapping[str, Any] | None = None,
    sign: str | Path | None = None,
    glibc: str | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    optional: Sequence[str] = (),
    signature: str | None = None,
) -> Exported:
    """Write a model as a C library, which needs no Python where it runs (docs/libraries.md).

    model: a model as for `compile`, or an executable.
    folder: created if needed; receives headers, library, weights and an example.
    name: name of the library and prefix of its functions: a C identifier.
    targets: levels of one kind of processor, such as `("x86-64-v4", "x86-64-v3")`, the best first:
        the library holds code for each and runs the first that the processor supports.  Default:
        the target of `options`.
    format: "shared" or "static", a library; "object", one relocatable object; "plugin", a library
        with the model as one operator for other engines (see `export_plugin`); "python", a `.tsm`
        file, a module that loads it, and the module's type stub; "c", source for a microcontroller.
        The `.tsm` file, too, holds code for each of `targets`.
    weights: "file", a separate file that is mapped into memory, or "inside" the library.  A plugin
        always has its weights inside.
    sign: a PEM file with a secret Ed25519 key.  Then NAME.sha256 lists the digests of all files.
        NAME.sha256.sig is the signature of this list, which `verify` checks.
    glibc: the oldest version of glibc that the library is to run with, such as "2.17"; needs the
        package `ziglang` (default: this machine's).

    The other arguments are those of `compile`, for a model that is not compiled.  Raises the errors
    of `compile`, and UsageError for a model that can't be exported or if there is no C compiler.
    """
    compiling = dict(locals())
    for own in ("model", "folder", "name", "targets", "format", "weights", "sign", "glibc"):
        del compiling[own]
    if isinstance(model, Executable):
        asked = {"targets": targets or None, **compiling, "optional": optional or None}
        unused = [name for name, value in asked.items() if value is not None]
        if unused:
            raise UsageError(
                f"{', '.join(unused)}: arguments for a model that is not compiled yet; this one is"
            )
        return model.export(folder, name, format, weights, sign, glibc)
    request = Request.of(model, **compiling)
    return exported(request, folder, name, targets, format, weights, sign, glibc)


def exported(
    request: Request,
    folder: str | Path,
    name: str,
    targets: Sequence[str],
    format: Format,
    weights: WeightsPlace,
    sign: str | Path | None = None,
    glibc: str | None = None,
) -> Exported:
    """Write the model of a request as a C library; the arguments are those of `export`."""
    programs = programs_of(request, targets)
    count = thread_count(request.options.threads)
    return write(programs, folder, name, format, weights, count, sign, glibc)


def programs_of(request: Request, targets: Sequence[str]) -> list[Program]:
    """The programs of a model for each target, in order (default: the target in the options).

    Raises UsageError if the request has `specialise`, or the precision "auto", which is decided by
    measuring.  Raises the errors of `compile`.
    """
    if request.options.precision == AUTO:
        raise UsageError(
            "precision 'auto' measures on this machine: compile the model with it and export the "
            "executable"
        )
    if request.specialise is not None:
        raise UsageError(
            "--specialise is for executables of Python; a library, and a file for several targets, "
            "have one program for each target"
        )
    request, _ = of_frontend(request)
    return [program_of(r) for r in request.levels(targets)]
