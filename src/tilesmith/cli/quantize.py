"""Quantise a trained model without training: its products then use 8-bit integers.

The data are samples of the model's inputs: a folder of .npz files (of .npy files, for a model with
one input), or one such file with samples along axis 0; arrays are named as the model's inputs or
in_NAME.  The result is an .onnx file with QuantizeLinear and DequantizeLinear nodes, or a compiled
.tsm.

Example: tilesmith quantize resnet50.onnx --data samples/ -o resnet50-int8.onnx
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilesmith import driver
from tilesmith.cli.arguments import (
    JsonFlag,
    SourceArgument,
    parse_pins,
    with_options,
)
from tilesmith.cli.console import print_json, progress, size_text
from tilesmith.cli.models import check_source
from tilesmith.cli.outputs import check_output
from tilesmith.driver.request import Request
from tilesmith.frontend.onnx.export import save_onnx
from tilesmith.quantisation.entry import quantize_model
from tilesmith.quantisation.options import QuantizeOptions
from tilesmith.support.errors import UsageError


@with_options
def command(
    model: SourceArgument,
    quantisation: QuantizeOptions,
    request: Annotated[Request, "shapes"],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write: .onnx, or .tsm (compiled)."),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Samples: a folder of .npz or .npy files, or such a file."),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", help="Scheme of layers: NAME=f32; NAME may be a pattern like 'a/*'."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    check_source(model, f"{str(model)!r} is compiled already; quantise its source model")
    if output.suffix not in (".onnx", ".tsm"):
        raise UsageError(f"expected an .onnx or .tsm file to write, found {str(output)!r}")
    check_output(output)
    wanted = replace(quantisation, pins=parse_pins(pin))
    with progress(f"quantising {model.name}"):
        graph, report = quantize_model(replace(request, model=model), data, wanted)
        if output.suffix == ".tsm":
            driver.compile(graph, options=request.options).save(output)
        else:
            save_onnx(graph, output)
    size = output.stat().st_size
    if json:
        print_json({"model": str(model), "output": str(output), "bytes": size, **report.as_json()})
    else:
        print(report)
        print(f"wrote {output} ({size_text(size)})")
