"""Run a model on an input file, or on random input, and show what comes out.

The input is an .npz with one array per input, named as the model's input or in_NAME; for a model
with one input also an .npy.  If the file has the expected answers too (out_NAME), the difference
is shown.

Example: tilesmith run resnet50.onnx --input x.npz --top 5
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tilesmith.cli.outputs import apart_from, check_output
from tilesmith.driver.request import Request
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import TensorSpec
from tilesmith.support.array_files import read_arrays
from tilesmith.support.described import Described
from tilesmith.support.errors import AccuracyError, UsageError
from tilesmith.support.folders import is_stream, written

from .arguments import InputOption, JsonFlag, ModelArgument, SeedOption, with_options
from .console import milliseconds, note, print_json
from .models import chosen_inputs, open_model

_TOLERANCES = {"f64": 1e-8, "f32": 1e-3, "f16": 2e-2}
"""Bounds of `--check` by element type: largest difference relative to the largest magnitude."""

_COARSE = 1e-1
"""The bound of `--check` for bf16 and narrower floats."""


@with_options
def command(
    model: ModelArgument,
    wanted: Request,
    input: InputOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs to this .npz file.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many classes to show per row of scores.")] = 5,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Fail (exit code 4) if an output differs too much from the expected answer.",
        ),
    ] = False,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if output is not None:
        if output.suffix != ".npz" and str(output) != "-" and not is_stream(output):
            output = output.with_name(f"{output.name}.npz")  # NumPy appends this suffix
        check_output(output)
    arrays = read_arrays(input) if input else {}
    exe = open_model(model, wanted, arrays)
    inputs = chosen_inputs(exe, arrays, input, seed)
    if not input:
        note(f"no --input: random input, seed {seed}")
        for name, said in exe.program.described.items():
            if said.is_normalized:
                note(f"input {name!r} is to be {said.normalization}; --input may give it as u8")
    start = time.perf_counter()
    outputs = exe.run(inputs)
    first = time.perf_counter() - start
    again = _fastest(exe, inputs)
    if output:
        for name, value in outputs.items():
            if not isinstance(value, np.ndarray):
                raise UsageError(
                    f"--output writes arrays, found a {type(value).__name__} as output {name!r}; "
                    f"use the model from Python"
                )
        try:
            with written(output) as f:
                np.savez(f, **outputs)  # type: ignore[arg-type]
        except OSError as e:
            raise UsageError(f"{str(output)!r} can't be written: {e.strerror or e}") from None
    differences = _differences(outputs, arrays)
    described = exe.program.described
    if check and not differences:
        raise UsageError("--check needs an --input file with expected answers (out_NAME)")
    result: dict[str, Any] = {
        "model": str(model),
        "threads": exe.threads,
        "first_ms": first * 1e3,
        "ms": again * 1e3,
        "outputs": [
            {
                "name": s.name,
                "type": _found(s, outputs[s.name]).type,
                **_summary(outputs[s.name], top, described.get(s.name, Described())),
                **({"difference": differences[s.name]} if s.name in differences else {}),
            }
            for s in exe.outputs
        ],
    }
    with apart_from(output):
        if json:
            print_json(result)
        else:
            _show(result)
    if not json:
        note(_next(model))
    for s in exe.outputs if check else ():
        kind, allowed = _allowed(s)
        if s.name in differences and not differences[s.name][kind] <= allowed:
            share = " of its largest magnitude" if kind == "relative" else ""
            raise AccuracyError(
                f"output {s.name!r} differs from the expected answer by "
                f"{differences[s.name][kind]:.3g}{share} (allowed for {s.dtype}: {allowed:g})"
            )


def _allowed(spec: TensorSpec) -> tuple[str, float]:
    """The kind of difference that is bounded for an output ("relative" or "absolute"), and the
    bound.  Integers are exact; quantised values (8 bits) may be one quantum off.
    """
    if spec.dtype.is_float:
        return "relative", _TOLERANCES.get(spec.dtype.name, _COARSE)
    return "absolute", 1.0 if spec.dtype.bits == 8 and not spec.dtype.is_bool else 0.0


def _fastest(exe: Executable, inputs: dict[str, np.ndarray]) -> float:
    """The fastest of a few runs (at most about half a second of them)."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < 10 and sum(times) < 0.5):
        start = time.perf_counter()
        exe.run(inputs)
        times.append(time.perf_counter() - start)
    return min(times)


def _found(spec: TensorSpec, value: Any) -> TensorSpec:
    """The description of an output with the shape of its value; unchanged for a list."""
    return replace(spec, shape=value.shape) if isinstance(value, np.ndarray) else spec


def _summary(value: Any, top: int, described: Described) -> dict[str, Any]:
    """Range and mean, and for rows of scores the best classes of each row, with their labels if the
    model's file has them.  For lists, the length; for strings, nothing.
    """
    if isinstance(value, list):
        return {"length": len(value)}
    if not isinstance(value, np.ndarray) or value.size == 0 or value.dtype.kind == "O":
        return {}
    array = value
    summary: dict[str, Any] = {}
    if array.dtype.kind in "fV":
        plain = array.astype(np.float64)
        summary = {
            "min": float(plain.min()),
            "max": float(plain.max()),
            "mean": float(plain.mean()),
            "nan": int(np.isnan(plain).sum()),
        }
    else:
        summary = {"min": array.min().item(), "max": array.max().item()}
    is_scores = array.dtype.kind in "fV" or described.labels
    if is_scores and array.ndim == 2 and array.shape[1] >= 2 and top > 0:
        plain = array.astype(np.float64)
        order = np.argsort(-plain, axis=1, kind="stable")[:, :top]
        summary["top"] = [
            [{"class": int(c), **_label(described.labels, c), "score": float(row[c])} for c in best]
            for row, best in zip(plain, order, strict=True)
        ]
    if described.value_labels and top > 0:
        values = array.reshape(-1)[:top].astype(np.float64)
        summary["values"] = [
            {"value": float(v), **_label(described.value_labels, v)} for v in values
        ]
    return summary


def _label(labels: Sequence[str], number: float) -> dict[str, str]:
    """The label of a number; empty if it has none."""
    return {"label": labels[int(number)]} if 0 <= number < len(labels) else {}


def _differences(
    outputs: dict[str, Any], arrays: dict[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Largest differences from the expected outputs in the input file.  For strings, the number
    that differ.
    """
    differences = {}
    for name, got in outputs.items():
        expected = arrays.get(f"out_{name}")
        if expected is None or not isinstance(got, np.ndarray):
            continue
        if expected.shape != got.shape:
            raise UsageError(
                f"the expected answer out_{name} has shape {expected.shape}, the model gives "
                f"{got.shape}"
            )
        if not got.size:
            continue
        if got.dtype.kind == "O":
            wrong = int((expected.astype(str) != got.astype(str)).sum())
            differences[name] = {"absolute": float(wrong), "relative": wrong / got.size}
            continue
        e, g = expected.astype(np.float64), got.astype(np.float64)
        absolute = float(np.abs(g - e).max())
        differences[name] = {
            "absolute": absolute,
            "relative": absolute / (float(np.abs(e).max()) or 1.0),
        }
    return differences


def _show(result: dict[str, Any]) -> None:
    for o in result["outputs"]:
        print(f"{o['name']}: {o['type']}")
        if "mean" in o:
            nan = f", {o['nan']} NaN" if o["nan"] else ""
            print(f"  min {o['min']:.6g}, max {o['max']:.6g}, mean {o['mean']:.6g}{nan}")
        elif "length" in o:
            print(f"  a list of {o['length']}")
        elif "min" in o:
            print(f"  min {o['min']}, max {o['max']}")
        for n, row in enumerate(o.get("top", ())):
            best = ", ".join(f"{t.get('label', t['class'])} ({t['score']:.4f})" for t in row)
            print(f"  row {n}, top {len(row)}: {best}")
        if "values" in o:
            shown = ", ".join(str(v.get("label", v["value"])) for v in o["values"])
            print(f"  the first values: {shown}")
        if "difference" in o:
            d = o["difference"]
            print(
                f"  differs from the expected answer by at most {d['absolute']:.3g} "
                f"({d['relative']:.2e} of its largest magnitude)"
            )
    count = result["threads"]
    print(
        f"time: {milliseconds(result['ms'] / 1e3)} ms with {count} thread{'s'[: count > 1]} "
        f"(first run {milliseconds(result['first_ms'] / 1e3)} ms)"
    )


def _next(model: Path) -> str:
    """Advice for the next command."""
    shown = shlex.quote(str(model))
    if model.suffix == ".tsm":
        return f"next: tilesmith bench {shown} measures it"
    return (
        f"next: tilesmith bench {shown} measures it, tilesmith tune {shown} --seconds 60 makes it "
        f"faster on this machine, tilesmith compile {shown} makes a file of it"
    )
