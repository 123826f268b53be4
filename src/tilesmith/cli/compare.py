"""Run every installed engine on the same model and input, taking turns.

All engines compute in float32 with the same number of threads.  The ratio is the median over
rounds of an engine's time over ours in the same round: above 1, it is slower than Tilesmith.

Example: tilesmith compare resnet50.onnx --threads 2
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tilesmith.cli.arguments import (
    JsonFlag,
    ModelArgument,
    SeedOption,
    ShapeOption,
    parse_shapes,
    with_options,
)
from tilesmith.cli.console import milliseconds, note, print_json, print_table, progress
from tilesmith.cli.engines import ENGINES, installed
from tilesmith.cli.models import inputs_from, open_model, random_inputs, read_arrays
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import interleave, ratio
from tilesmith.support.options import Options

_OURS = "tilesmith"


@with_options
def command(
    model: ModelArgument,
    options: Options,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", help="Engine to compare with (repeatable; default: all found)."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns that each engine takes.")] = 20,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="Input file (default: random input).")
    ] = None,
    shape: ShapeOption = None,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if model.suffix == ".tsm":
        raise UsageError("compare needs the source model (.onnx): other engines can't read .tsm")
    if not 1 <= rounds <= 10_000:
        raise UsageError(f"--rounds must be from 1 to 10000, not {rounds}")
    names = engine or installed()
    for name in names:
        if name not in ENGINES:
            raise UsageError(f"unknown engine {name!r}; known are {', '.join(ENGINES)}")
        if name not in installed():
            raise UsageError(f"engine {name!r} is not installed; pip install {name}")
    # Ours first: it rejects bad files with an error, where others may take the process down.
    exe = open_model(model, options, parse_shapes(shape))
    if input:
        inputs = inputs_from(read_arrays(input), exe.inputs, input)
    else:
        inputs = random_inputs(exe.inputs, seed)
    threads = exe.threads
    runs: dict[str, Callable[[], Any]] = {_OURS: lambda: list(exe.run(inputs).values())}
    failed: dict[str, str] = {}
    for name in names:
        try:
            with progress(f"preparing {name}"):
                runs[name] = ENGINES[name](model, inputs, threads)
                runs[name]()
        except Exception as e:  # whatever another engine raises is a result, not our failure
            runs.pop(name, None)
            failed[name] = " ".join(str(e).split())[:200]
            note(f"{name} failed: {failed[name]}")
    answers = {name: run() for name, run in runs.items()}
    with progress("measuring") as update:
        samples = interleave(
            runs, rounds=rounds, progress=lambda done, all_: update(f"round {done} of {all_}")
        )
    rows = {
        name: {
            **s.as_dict(),
            "ratio": ratio(s, samples[_OURS]),
            "difference": _difference(answers[name], answers[_OURS]),
        }
        for name, s in samples.items()
    }
    if json:
        result = {"model": str(model), "threads": threads, "engines": rows, "failed": failed}
        print_json(result)
        return
    print_table(
        ("engine", ">median ms", ">min ms", ">p90 ms", ">ratio", ">difference"),
        [
            (
                name,
                milliseconds(s.median),
                milliseconds(s.minimum),
                milliseconds(s.p90),
                f"{rows[name]['ratio']:.2f}",
                "" if name == _OURS else f"{rows[name]['difference']:.1e}",
            )
            for name, s in samples.items()
        ],
        title=f"{model.name}, {threads} thread{'s' if threads > 1 else ''}, float32",
    )


def _difference(theirs: list[np.ndarray], ours: list[np.ndarray]) -> float:
    """Largest difference between two engines' outputs, as a share of the largest magnitude."""
    worst = 0.0
    for a, b in zip(theirs, ours, strict=True):
        if a.size:
            x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
            worst = max(worst, float(np.abs(x - y).max()) / (float(np.abs(x).max()) or 1.0))
    return worst
