"""`export_delegate`: a model as a delegate of TensorFlow Lite and LiteRT."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilesmith.driver.entry import program_of
from tilesmith.driver.request import Request
from tilesmith.engines.plugin import check_types
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tflite.model import Model, read
from tilesmith.frontend.tflite.reader import chosen_signature
from tilesmith.frontend.tflite.schema import OPERATORS
from tilesmith.runtime.program import Program
from tilesmith.runtime.standalone.objects import runtime_objects, weights_sum
from tilesmith.runtime.standalone.operators import check_operator, operator_objects
from tilesmith.runtime.standalone.toolchain import SOURCES, toolchain
from tilesmith.runtime.threads import thread_count
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import copied, scratch_folder
from tilesmith.support.options import Options

RUNTIME = ("library/model.c", "pool.c")
"""Files of the runtime that a library needs."""

TYPES = frozenset(
    ("f32", "i32", "u8", "i64", "bool", "i16", "i8", "f16", "f64", "u64", "u32", "u16", "bf16")
)
"""Element types for which `tflite.c` has TFLite's number."""


@checked(UsageError)
def export_delegate(
    model: str | os.PathLike[str] | bytes,
    path: str | Path,
    *,
    targets: Sequence[str] = (),
    threads: int | None = None,
    options: Options | None = None,
) -> Path:
    """Write a delegate that computes all of a model, for interpreters of TFLite and LiteRT.

        ts.tflite.export_delegate("model.tflite", "delegate.so")
        delegate = load_delegate("delegate.so")  # of ai_edge_litert.interpreter
        interpreter = Interpreter("model.tflite", experimental_delegates=[delegate])

    The interpreter needs no Tilesmith.  It refuses the delegate for another model, or other
    weights.  The option "threads" of `load_delegate` replaces `threads`.

    model: path of a `.tflite` file, or its bytes.  Its main subgraph is compiled.
    path: path of the shared library; a file of this name is replaced.
    targets: levels of one kind of processor, the best first, as for `export`.
    threads: threads of a call (default: as `compile`).

    Returns the path.  Raises the errors of `compile`, and UsageError for models that keep states,
    whose results have shapes that depend on data, or whose tensors have types that a delegate
    can't have, or if there is no C compiler.
    """
    source = read(Source.of(model, "a .tflite file"))
    request = Request.of(model, options, threads=threads)
    programs = tuple(map(program_of, request.levels(targets)))
    check_operator("model", programs)
    check_types("export_delegate", programs[0], TYPES)
    path = Path(path)
    _write(programs, source, path, thread_count(request.options.threads))
    return path


def _write(programs: Sequence[Program], model: Model, path: Path, threads: int) -> None:
    tools = toolchain(programs[0].target)

    def text(_: int, __: str, description: str) -> str:
        """The C file of the model."""
        return "\n\n".join(
            ('#include "tilesmith_tflite.h"', description, _table(model, threads), "")
        )

    with scratch_folder() as scratch:
        interface = scratch / "tflite.o"
        tools.compile(SOURCES / "library" / "tflite.c", interface)
        objects = [
            interface,
            *runtime_objects(RUNTIME, scratch, tools),
            *operator_objects({"model": programs}, scratch, tools, text),
        ]
        library = scratch / path.name
        tools.shared(objects, library)
        copied(library, path)


def _table(model: Model, threads: int) -> str:
    """The C definition of `tilesmith_tflite_model`."""
    signature = chosen_signature(model)
    subgraph = model.subgraph(signature.subgraph)
    tensors, total, nodes = subgraph.tensors, 0, 0
    for op in subgraph.operators:
        for number in (OPERATORS.index(op.kind), *_counted(op.inputs), *_counted(op.outputs)):
            nodes = (31 * nodes + number) % (1 << 64)
    for number, tensor in enumerate(tensors):
        content = model.buffer(tensor.buffer)
        if content is not None:
            total += weights_sum(np.asarray(content, np.uint8)) * (2 * number + 1)
    numbers = [
        f"static const int32_t {kind}_numbers[] = {{{', '.join(map(str, named.values())) or '0'}}};"
        for kind, named in (("inputs", signature.inputs), ("outputs", signature.outputs))
    ]
    table = (
        "const struct tilesmith_tflite tilesmith_tflite_model = {.description = &description,\n"
        "    .inputs = inputs_numbers, .outputs = outputs_numbers,\n"
        f"    .tensor_count = {len(tensors)}, .nodes_sum = UINT64_C({nodes}),\n"
        f"    .constants_sum = UINT64_C({total % (1 << 64)}), .threads = {threads}}};"
    )
    return "\n".join((*numbers, table))


def _counted(numbers: Sequence[int]) -> tuple[int, ...]:
    """The count of numbers, then the numbers."""
    return len(numbers), *numbers
