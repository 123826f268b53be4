"""Run every installed engine on the same model and input, taking turns.

All engines compute in float32 with the same number of threads.  An engine's ratio is its time
divided by ours in the same round.  The median over all rounds is shown; above 1, the engine is
slower than Tilesmith.  ONNX Runtime's inputs and outputs are bound to memory beforehand.  PyTorch
takes part if --module names the module that the model was exported from.

Example: tilesmith compare resnet50.onnx --threads 1,2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tilesmith.driver.request import Request
from tilesmith.runtime.executable import Executable
from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import Samples, interleave, ratio

from .arguments import InputOption, JsonFlag, SeedOption, SourceArgument, with_options
from .console import milliseconds, note, print_json, print_table, progress
from .engines import ENGINES, Prepare, installed, load_module, torch_engines
from .models import chosen_inputs, open_model

OURS = "tilesmith"


@dataclass(frozen=True)
class Comparison:
    """A model on several engines.

    threads: number of threads.
    samples: times of each engine, ours first.
    differences: largest difference of an engine's outputs from ours, relative to the largest
        magnitude.
    failed: by engine, the reason why it failed.
    """

    threads: int
    samples: Mapping[str, Samples]
    differences: Mapping[str, float]
    failed: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON, and for the rows of a table."""
        ours = self.samples[OURS]
        return {
            "threads": self.threads,
            "engines": {
                name: {
                    **s.as_dict(),
                    "ratio": ratio(s, ours),
                    "difference": self.differences[name],
                }
                for name, s in self.samples.items()
            },
            "failed": dict(self.failed),
        }


@with_options
def command(
    model: SourceArgument,
    wanted: Request,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", help="Engine to compare with (repeatable; default: all found)."),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(help="Threads to run with; several numbers, as in 1,2, make several tables."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns that each engine takes.")] = 20,
    module: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="The torch module that the model was exported from, or a function that makes it.",
        ),
    ] = None,
    input: InputOption = None,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if model.suffix == ".tsm":
        raise UsageError(
            "compare needs the source model (.onnx, .tflite): other engines can't read .tsm"
        )
    if not 1 <= rounds <= 10_000:
        raise UsageError(f"--rounds must be from 1 to 10000, not {rounds}")
    counts = thread_counts(threads) if threads else [wanted.options.threads]
    engines = _engines(engine, module, model)
    results = []
    arrays = read_arrays(input) if input else {}
    for count in counts:
        # Ours first: it rejects bad files with an error, where others may crash the process.
        exe = open_model(
            model,
            replace(wanted, options=wanted.options.with_(threads=count)),
            arrays,
        )
        inputs = chosen_inputs(exe, arrays, input, seed)
        comparison = compare(exe, model, inputs, engines, rounds)
        signature = " -> ".join(
            ", ".join(str(s.type) for s in specs) for specs in (exe.inputs, exe.outputs)
        )
        results.append(comparison.as_dict())
        if not json:
            _show(model.name, comparison, signature)
    if json:
        print_json({"model": str(model), "runs": results})


def thread_counts(text: str) -> list[int]:
    """`1,2` as numbers.  Raises UsageError."""
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isdecimal() and 1 <= int(p) <= 4096 for p in parts):
        raise UsageError(f"--threads wants numbers from 1 to 4096, like 1,2, not {text!r}")
    return [int(p) for p in parts]


def _engines(names: list[str] | None, module: str | None, model: Path) -> dict[str, Prepare]:
    """The engines to compare with, by name."""
    known, present = set(ENGINES), installed(model)
    if module is not None:
        try:
            of_module = torch_engines(load_module(module))
        except Exception as e:  # the given code may raise anything
            raise UsageError(f"--module {module}: {e}") from e
        known, present = known | set(of_module), present | of_module
    for name in names or ():
        if name not in known:
            raise UsageError(f"unknown engine {name!r}; known are {', '.join(sorted(known))}")
        if name not in installed() and name not in present:
            raise UsageError(f"engine {name!r} is not installed; pip install {ENGINES[name].pip}")
        if name not in present:
            raise UsageError(f"engine {name!r} does not read {model.name!r}")
    return {name: present[name] for name in names or present}


def compare(
    exe: Executable,
    model: Path,
    inputs: Mapping[str, np.ndarray],
    engines: Mapping[str, Prepare],
    rounds: int,
    turn_seconds: float = 0.1,
) -> Comparison:
    """Time our executable and other engines on the same model, taking turns."""
    runs: dict[str, Callable[[], Any]] = {OURS: lambda: list(exe.run(inputs).values())}
    answers = {OURS: runs[OURS]()}
    failed: dict[str, str] = {}
    for name, prepare in engines.items():
        try:
            with progress(f"preparing {name}"):
                run = prepare(model, inputs, exe.threads)
                answers[name] = [np.array(a) for a in run()]
                runs[name] = run
        except Exception as e:  # another engine's error is a result and not our failure
            failed[name] = " ".join(str(e).split())[:200]
            note(f"{name} failed: {failed[name]}")
    with progress("measuring") as update:
        samples = interleave(
            runs,
            rounds=rounds,
            turn_seconds=turn_seconds,
            progress=lambda done, all_: update(f"round {done} of {all_}"),
        )
    differences = {name: difference(answers[name], answers[OURS]) for name in runs}
    return Comparison(exe.threads, samples, differences, failed)


def _show(name: str, comparison: Comparison, signature: str) -> None:
    rows = comparison.as_dict()["engines"]
    print_table(
        ("engine", ">median ms", ">min ms", ">p90 ms", ">ratio", ">difference"),
        [
            (
                engine,
                milliseconds(s.median),
                milliseconds(s.minimum),
                milliseconds(s.p90),
                f"{rows[engine]['ratio']:.2f}",
                "" if engine == OURS else f"{rows[engine]['difference']:.1e}",
            )
            for engine, s in comparison.samples.items()
        ],
        title=f"{name}, {comparison.threads} thread{'s' * (comparison.threads > 1)}, {signature}",
    )


def difference(theirs: list[np.ndarray], ours: list[np.ndarray]) -> float:
    """Largest difference between two engines' outputs, relative to the largest magnitude."""
    worst = 0.0
    for a, b in zip(theirs, ours, strict=True):
        if a.size:
            x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
            worst = max(worst, float(np.abs(x - y).max()) / (float(np.abs(x).max()) or 1.0))
    return worst
