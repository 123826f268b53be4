"""Compile a model into one file that runs without its source.

With several targets, such as `--target x86-64-v4,v3`, the file holds code for each, and the machine
that loads it takes the first that it can run.

Example: tilesmith compile resnet50.onnx -o resnet50.tsm
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import JsonFlag, ModelArgument, SignOption, levels, with_options
from tilesmith.cli.console import compiling, print_json, size_text
from tilesmith.cli.models import check_file, open_model
from tilesmith.cli.outputs import apart_from, check_output
from tilesmith.driver.exporting import programs_of
from tilesmith.driver.request import Request
from tilesmith.runtime.program import Program
from tilesmith.runtime.signing import secret_key
from tilesmith.runtime.stubs import check_module_name
from tilesmith.runtime.tsm import save_program
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import is_stream


@with_options
def command(
    model: ModelArgument,
    wanted: Request,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write (default: the model's name with .tsm)."),
    ] = None,
    stubs: Annotated[
        bool, typer.Option("--stubs", help="Write a Python module and its type stub beside it.")
    ] = False,
    sign: SignOption = None,
    json: JsonFlag = False,
) -> None:
    if model.suffix == ".tsm":
        raise UsageError(f"{str(model)!r} is compiled already; compile its source model")
    check_file(model)
    target = output or model.with_suffix(".tsm")
    check_output(target)
    if stubs:
        check_module_name(target)
    if sign is not None:
        secret_key(sign)
    with apart_from(target):
        start = time.perf_counter()
        program, *lower = _programs(model, wanted)
        seconds = time.perf_counter() - start
        save_program(program, target, sign, stubs, lower)
        size = None if is_stream(target) else target.stat().st_size
        result = {
            "model": str(model),
            "output": str(target),
            "bytes": size,
            "seconds": seconds,
            "target": wanted.options.target,
            "inputs": [str(s) for s in program.caller_inputs],
            "outputs": [str(s) for s in program.caller_outputs],
            "needs_growth": program.needs_growth,
        }
        if json:
            print_json(result)
        else:
            print(f"wrote {target}" + (f" ({size_text(size)})" if size is not None else ""))
            print(f"inputs:  {', '.join(result['inputs'])}")
            print(f"outputs: {', '.join(result['outputs'])}")
            if program.needs_growth:
                print("needs memory that grows while it runs: sizes depend on data")


def _programs(model: Path, wanted: Request) -> Sequence[Program]:
    """The model's programs, one for each target of `wanted`."""
    targets = levels(wanted.options.target)
    if len(targets) == 1:
        return [open_model(model, wanted).program]
    with compiling(model.name, wanted.options.target):
        return programs_of(replace(wanted, model=model), targets)
