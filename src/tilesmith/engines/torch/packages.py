"""Packages of AOTInductor's form with our code: `ts.torch.export_aot`.

PyTorch loads such a package without Tilesmith, in Python and in C++.  The model is a library with
the C interface of those that AOTInductor writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.package.package import package_aoti
from torch.utils import _pytree as pytree

from tilesmith.driver.entry import of_frontend, program_of
from tilesmith.driver.request import Request
from tilesmith.engines.plugin import check_types
from tilesmith.frontend.aten.exported import Exported
from tilesmith.runtime.program import Program
from tilesmith.runtime.standalone.objects import runtime_objects
from tilesmith.runtime.standalone.operators import check_operator, operator_objects
from tilesmith.runtime.standalone.tables import text
from tilesmith.runtime.standalone.toolchain import SOURCES, Toolchain, toolchain
from tilesmith.runtime.threads import thread_count
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import copied, scratch_folder
from tilesmith.support.foreign import is_archive, is_exported_program, is_module
from tilesmith.support.options import Options

RUNTIME = ("library/model.c", "pool.c")
"""Files of the runtime that a library needs."""

INTERFACE = SOURCES / "library" / "aoti.c"
"""The functions that PyTorch calls."""

TYPES = frozenset(
    ("bf16", "f16", "f32", "f64", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "bool")
)
"""Element types for which `aoti.c` has PyTorch's number."""

_FUNCTION = re.compile(r"^int32_t (aoti_torch_\w+)\(", re.M)
"""A declaration of a function of PyTorch's in `aoti.c`."""


@checked(UsageError)
def export_aot(
    model: Any,
    path: str | Path,
    example_inputs: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic: Any = None,
    targets: Sequence[str] = (),
    threads: int | None = None,
    options: Options | None = None,
) -> Path:
    """Write a package that `torch._inductor.aoti_load_package(path)` loads without Tilesmith.

    The loaded model is called like the module, on tensors of the CPU.  It records no gradients.
    Weights are inside the package.

    model: a `torch.nn.Module` with example inputs, or a `torch.export.ExportedProgram`, also one in
        a file.
    path: path of the package, which ends with ".pt2"; a file of this name is replaced.
    example_inputs, example_kwargs, dynamic: as for `compile`.
    targets: levels of one kind of processor, the best first, as for `export`.
    threads: threads of a call (default: as `compile`).

    Returns the path.  Raises the errors of `compile`, and UsageError for models that write buffers
    or arguments, whose arguments or results are numbers, or whose results have shapes that depend
    on data; for other systems than Linux; or if there is no C compiler.
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise UsageError(f"export_aot: expected a path that ends with .pt2, found {str(path)!r}")
    if is_archive(model):
        model = torch.export.load(model)
    if not is_module(model) and not is_exported_program(model):
        raise UsageError(
            "export_aot: expected a torch.nn.Module with example inputs or a "
            f"torch.export.ExportedProgram, found {type(model).__name__}"
        )
    asked = Request.of(
        model, options, threads=threads, example_inputs=example_inputs,
        example_kwargs=example_kwargs, dynamic=dynamic,
    )  # fmt: skip
    request, exported = of_frontend(asked)
    assert exported is not None  # the model is one of PyTorch
    _check_signature(exported)
    programs = tuple(map(program_of, request.levels(targets)))
    _check_programs(programs)
    spec = request.model.call_spec
    _write(programs, path, (spec.in_spec, spec.out_spec), thread_count(asked.options.threads))
    return path


def _check_signature(exported: Exported) -> None:
    signature = exported.signature
    if signature.new:
        written = ", ".join(
            repr(t) if isinstance(t, str) else f"argument number {t + 1}" for t in signature.new
        )
        raise UsageError(
            f"export_aot: the model writes {written}; a package's models write nothing"
        )
    numbers = [i.name for i in exported.inputs if i.weight is None and i.kind == "size"]
    if numbers:
        raise UsageError(
            f"export_aot: {', '.join(numbers)}: expected tensors, found numbers that are inputs; "
            "PyTorch gives a package's models tensors alone"
        )
    if any(kind != "tensor" for kind in signature.results):
        raise UsageError("export_aot: expected results that are tensors, found numbers or None")


def _check_programs(programs: Sequence[Program]) -> None:
    check_operator("model", programs)
    first = programs[0]
    if first.target.system != "linux":
        raise UsageError(f"export_aot: target {first.target.name}: expected one for Linux")
    check_types("export_aot", first, TYPES)


def _write(programs: Sequence[Program], path: Path, specs: tuple[Any, Any], threads: int) -> None:
    tools = toolchain(programs[0].target)
    in_spec, out_spec = (text(pytree.treespec_dumps(s)) for s in specs)

    def model(_: int, __: str, description: str) -> str:
        """The C file of the model."""
        made = (
            "const struct tilesmith_aoti tilesmith_aoti_model = {.description = &description,\n"
            f"    .inputs_spec = {in_spec},\n    .outputs_spec = {out_spec},\n"
            f"    .threads = {threads}}};"
        )
        return "\n\n".join(('#include "tilesmith_aoti.h"', description, made, ""))

    with scratch_folder() as scratch:
        interface = scratch / "aoti.o"
        tools.compile(INTERFACE, interface)
        objects = [
            interface,
            *runtime_objects(RUNTIME, scratch, tools),
            *operator_objects({"model": programs}, scratch, tools, model),
            _torch_library(scratch, tools),
        ]
        library = scratch / "model.wrapper.so"  # the loader looks for this ending
        tools.shared(objects, library)
        metadata = scratch / "model.wrapper_metadata.json"
        metadata.write_text(json.dumps({"AOTI_DEVICE_KEY": "cpu"}))
        whole = scratch / "model.pt2"
        package_aoti(str(whole), {"model": [str(library), str(metadata)]})
        copied(whole, path)


def _torch_library(scratch: Path, tools: Toolchain) -> Path:
    """A library with the name and the functions of PyTorch's, to link with.  A process that loads
    the package has PyTorch's own.
    """
    names = _FUNCTION.findall(INTERFACE.read_text(encoding="utf-8"))
    source = scratch / "torch.c"
    body = "".join(
        f'__attribute__((visibility("default"))) void {name}(void) {{}}\n' for name in names
    )
    source.write_text(body)
    tools.compile(source, source.with_suffix(".o"))
    library = scratch / "libtorch_cpu.so"
    tools.shared([source.with_suffix(".o")], library)
    return library
