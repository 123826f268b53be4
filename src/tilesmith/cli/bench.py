"""Measure how long a model takes.

Example: tilesmith bench resnet50.onnx --threads 2 --seconds 5
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import measure

from .arguments import InputOption, JsonFlag, ModelArgument, SeedOption, Wanted, with_options
from .console import milliseconds, print_json, print_table
from .models import chosen_inputs, open_model


@with_options
def command(
    model: ModelArgument,
    wanted: Wanted,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 3.0,
    input: InputOption = None,
    kernels: Annotated[
        int, typer.Option(help="Also show the times of this many of the slowest kernels.")
    ] = 0,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if not 0 < seconds <= 3600:
        raise UsageError(f"--seconds must be more than 0 and at most 3600, not {seconds:g}")
    arrays = read_arrays(input) if input else {}
    exe = open_model(model, wanted, arrays)
    inputs = chosen_inputs(exe, arrays, input, seed)
    samples = measure(lambda: exe.run(inputs), seconds=seconds)
    result: dict[str, Any] = {
        "model": str(model),
        "threads": exe.threads,
        **samples.as_dict(),
        "per_second": 1 / samples.median,
    }
    if kernels > 0:
        times = exe.profile(*(inputs[s.name] for s in exe.inputs))
        total = sum(t.seconds for t in times)
        slowest = sorted(times, key=lambda t: -t.seconds)[:kernels]
        result["kernels"] = [
            {"label": t.call.label, "ms": t.seconds * 1e3, "share": t.seconds / total}
            for t in slowest
        ]
    if json:
        print_json(result)
        return
    print_table(
        ("model", ">threads", ">median ms", ">min ms", ">p90 ms", ">runs", ">per second"),
        [
            (
                model.name,
                exe.threads,
                milliseconds(samples.median),
                milliseconds(samples.minimum),
                milliseconds(samples.p90),
                len(samples.times),
                f"{1 / samples.median:.1f}",
            )
        ],
    )
    if kernels > 0:
        print()
        print_table(
            ("kernel", ">ms", ">share"),
            [
                (k["label"], milliseconds(k["ms"] / 1e3), f"{k['share']:.1%}")
                for k in result["kernels"]
            ],
        )
