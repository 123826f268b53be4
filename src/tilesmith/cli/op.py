"""Write one operator as optimised C source, with assembly, object, header, test and benchmark.

Example: tilesmith op conv2d --shape 1,64,56,56 --shape 64,64,3,3 --set pads=1,1,1,1 -o conv

Operators are conv2d, depthwise_conv2d, max_pool2d, avg_pool2d, fully_connected, matmul, softmax,
layer_norm, rms_norm, batch_norm, instance_norm, group_norm, and those that `tilesmith ops` lists.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import print_json
from tilesmith.cli.outputs import check_output_folder
from tilesmith.support.errors import UsageError
from tilesmith.tuning.operators import default_name, export_op


def command(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="The operator, by name.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="1,64,56,56", help="Shape of an operand, in order (repeatable)."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Element type of the operands, or one for each: u8,i8.")
    ] = "f32",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An attribute: strides=2,2 (repeatable)."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The machine: native, x86-64-v3, aarch64, ...")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the function and the files (default: OPERATOR's).")
    ] = None,
    tune: Annotated[
        float, typer.Option(metavar="SECONDS", help="Search for a faster schedule here.")
    ] = 0.0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder to write (default: the operator's name)."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    folder = output or Path(name or default_name(operator))
    check_output_folder(folder)
    made = export_op(
        operator,
        folder,
        name,
        shapes=[_shape(s) for s in shape or ()],
        dtype=dtype.split(","),
        attributes=dict(map(_attribute, set_ or ())),
        target=target,
        tune=tune,
    )
    if json:
        print_json({"source": str(made.source), "files": [str(f) for f in made.files]})
        return
    print(f"wrote {made.source}, {made.header.name}, {made.assembly.name}, {made.object.name}")
    print(f"test:      make -C {made.source.parent} test")
    print(f"benchmark: make -C {made.source.parent} bench")


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise UsageError(f"--shape: expected numbers such as 1,64,56,56, found {text!r}") from None


def _attribute(text: str) -> tuple[str, Any]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise UsageError(f"--set: expected NAME=VALUE, found {text!r}")
    try:
        return name, ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    except (ValueError, SyntaxError):
        return name, value
