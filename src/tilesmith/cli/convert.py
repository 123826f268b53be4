"""Write a model of any format that is read as an ONNX model, or as a program in TVM's Relay.

Both models are then compiled and run on the same random input.  If an output differs too much, the
exit code is 4 and no file is written.  Names of inputs and outputs stay; Relay has no names of
outputs.  Open dimensions need a size (--shape).

Example: tilesmith convert pose.tflite -o pose.onnx

Example: tilesmith convert resnet50.onnx -o resnet50.relay
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tilesmith import driver
from tilesmith.cli.arguments import JsonFlag, SeedOption, SourceArgument, with_options
from tilesmith.cli.console import print_json, progress, size_text
from tilesmith.cli.models import check_source, random_inputs
from tilesmith.cli.outputs import check_output
from tilesmith.driver.compiler import load_graph
from tilesmith.driver.request import Request
from tilesmith.frontend.onnx.export import save_onnx, to_onnx
from tilesmith.frontend.relay.export import save_relay, to_relay
from tilesmith.graph.nodes import Graph
from tilesmith.support.errors import AccuracyError, UsageError

_SAVE = {".onnx": save_onnx, ".relay": save_relay}
"""Writers of files, by their ending."""

_ALLOWED = 1e-3
"""Largest difference of an output of floats, relative to its largest magnitude."""


@with_options
def command(
    model: SourceArgument,
    request: Annotated[Request, "shapes", "values"],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The .onnx or .relay file to write.")
    ],
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    check_source(model, f"{str(model)!r} is compiled already; convert its source model")
    if output.suffix not in _SAVE:
        raise UsageError(f"expected an .onnx or .relay file to write, found {str(output)!r}")
    check_output(output)
    with progress(f"converting {model.name}"):
        graph = load_graph(replace(request, model=model))
        is_onnx = output.suffix == ".onnx"
        content = to_onnx(graph).SerializeToString() if is_onnx else to_relay(graph).encode()
        differences = _differences(graph, content, seed)
        for name, difference in differences.items():
            if not difference <= _ALLOWED:
                raise AccuracyError(
                    f"output {name!r} of the new model differs from the model's by "
                    f"{difference:.3g} of its largest magnitude (allowed: {_ALLOWED:g}); nothing "
                    "was written"
                )
        _SAVE[output.suffix](graph, output)
    size = output.stat().st_size
    if json:
        facts = {"model": str(model), "output": str(output), "bytes": size}
        print_json({**facts, "differences": differences})
        return
    worst = max(differences.values(), default=0.0)
    print(f"wrote {output} ({size_text(size)}); largest relative difference {worst:.2g}")


def _differences(graph: Graph, content: bytes, seed: int) -> dict[str, float]:
    """By output, the largest difference between the results of the graph and of the converted
    model, relative to the largest magnitude.  Both run on the same random input.

    content: the converted model's file.
    """
    own, written = driver.compile(graph), driver.compile(content)
    inputs = random_inputs(own.program.expected_inputs, seed, own.program.index_limits)
    states = {name: first.copy() for name, first in own.states.items()}
    expected: dict[str, Any] = own.run(inputs)
    for output, state in own.program.states:
        expected[own.program.outputs[output].name] = own.states[own.program.inputs[state].name]
    arrays = {**inputs, **states}
    names = [s.name for s in written.program.expected_inputs]
    made = written.run({n: arrays[v.name] for n, v in zip(names, graph.inputs, strict=True)})
    results = dict(zip(graph.output_names, made.values(), strict=True))
    return {name: _difference(expected[name], results[name]) for name in expected}


def _difference(expected: np.ndarray, result: np.ndarray) -> float:
    """The largest difference relative to the largest expected magnitude.  It is infinite if shapes
    or types differ, or if any values differ that are not finite floats.
    """
    if expected.shape != result.shape or expected.dtype != result.dtype:
        return float("inf")
    if not expected.size or np.array_equal(expected, result):
        return 0.0
    if expected.dtype.kind in "biuO":
        return float("inf")
    a, b = expected.astype(np.float64), result.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = a[finite], b[finite]
    largest = abs(a).max(initial=0.0)
    return float(abs(a - b).max(initial=0.0) / (largest or 1.0))
