"""Write a model as a C library that needs no Python.

Example: tilesmith export resnet50.onnx -o resnet50 --target x86-64-v4,v3,v2
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from tilesmith.cli.arguments import JsonFlag, ModelArgument, SignOption, levels, with_options
from tilesmith.cli.console import compiling, print_json, size_text
from tilesmith.cli.models import check_file, open_model
from tilesmith.cli.outputs import check_output_folder
from tilesmith.cli.train import (
    LOSS,
    LossOption,
    OptimizerOption,
    RateOption,
    TrainableOption,
    optimizer_of,
)
from tilesmith.driver.exporting import exported
from tilesmith.driver.request import Request
from tilesmith.engines.tengine.plugin import export_plugin
from tilesmith.runtime.signing import secret_key
from tilesmith.runtime.standalone.export import Format
from tilesmith.runtime.standalone.objects import WeightsPlace
from tilesmith.support.errors import UsageError
from tilesmith.training.trainer import Trainer

AnyFormat: TypeAlias = Literal[Format, "tengine"]
"""The formats of `export`, and plugins of engines for models in their own formats."""

_OF_OTHERS = ("model", "options", "target")
"""The fields of a request that a trainer gets in another way."""


@with_options
def command(
    model: ModelArgument,
    wanted: Request,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder to write (default: the model's name)."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the library and its functions (default: the model's name)."),
    ] = None,
    format: Annotated[
        AnyFormat,
        typer.Option(
            help="A shared or static library, one object, an operator for other engines, C, or "
            "the layers of a .tmfile for Tengine."
        ),
    ] = "shared",
    weights: Annotated[
        WeightsPlace | None,
        typer.Option(help="In a file that is mapped, or inside the library (default: file)."),
    ] = None,
    glibc: Annotated[
        str | None,
        typer.Option(
            metavar="2.17",
            help="Oldest version of glibc to run with; needs ziglang (default: this machine's).",
        ),
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train", help="Write a library that trains the model (docs/training.md)."),
    ] = False,
    loss: LossOption = None,
    optimizer: OptimizerOption = None,
    rate: RateOption = None,
    trainable: TrainableOption = None,
    sign: SignOption = None,
    json: JsonFlag = False,
) -> None:
    check_file(model)
    called = name or re.sub(r"[^A-Za-z0-9_]", "_", model.stem)
    folder = output or model.with_suffix("")
    check_output_folder(folder)
    if sign is not None:
        secret_key(sign)
    of_training = {
        "--loss": loss, "--optimizer": optimizer, "--rate": rate, "--trainable": trainable or None
    }  # fmt: skip
    if train:
        if format != "shared" or (weights, glibc, sign) != (None, None, None):
            raise UsageError(
                "--train writes a shared library with the weights inside; leave out --format, "
                "--weights, --glibc and --sign"
            )
        source = {
            f.name: getattr(wanted, f.name) for f in fields(wanted) if f.name not in _OF_OTHERS
        }
        trainer = Trainer(
            model, loss=loss or LOSS, optimizer=optimizer_of(optimizer, rate),
            trainable=trainable or None, options=wanted.options, **source,
        )  # fmt: skip
        made = trainer.export(folder, called, targets=levels(wanted.options.target))
    elif unread := [name for name, value in of_training.items() if value is not None]:
        raise UsageError(f"{', '.join(unread)}: expected --train, which reads it; found none")
    elif format == "tengine":
        if glibc is not None or sign is not None:
            raise UsageError("--format tengine is for this machine; leave out --glibc and --sign")
        with compiling(model.name, wanted.options.target):
            made = export_plugin(
                model, folder, called, shapes=wanted.shapes,
                targets=levels(wanted.options.target), options=wanted.options,
            )  # fmt: skip
    elif model.suffix == ".tsm" or wanted.options.precision == "auto":
        made = open_model(model, wanted).export(
            folder, called, format, weights or "file", sign, glibc
        )
    else:
        with compiling(model.name, wanted.options.target):
            made = exported(
                replace(wanted, model=model), folder, called, levels(wanted.options.target),
                format, weights or "file", sign, glibc,
            )  # fmt: skip
    result = {
        "model": str(model),
        "library": str(made.library),
        "code_bytes": made.code_bytes,
        "ram_bytes": made.ram_bytes,
        "constant_bytes": made.constant_bytes,
        "files": [str(f) for f in made.files],
    }
    if json:
        print_json(result)
        return
    if format == "c":
        print(f"wrote {made.library}, to be compiled with math.h and string.h alone")
        print(f"flash:   {size_text(made.constant_bytes)} of weights, and the code")
        print(f"RAM:     {size_text(made.ram_bytes)}, and the stack")
    else:
        print(f"wrote {made.library} ({size_text(made.code_bytes)} without weights)")
    print(f"header:  {made.header}")
    if made.weights is not None:
        print(f"weights: {made.weights} ({size_text(made.weights.stat().st_size)})")
