#!/usr/bin/env python3
"""Quantised models against other engines: `python -m benchmarks.quantised ZOO [NAME ...]`.

ONNX Runtime's quantiser writes each model of the zoo with QuantizeLinear and DequantizeLinear: 8
bits, weights per channel, calibrated on the stored inputs and random ones.  ONNX Runtime, OpenVINO
and Tilesmith run that file in turns, with two threads.  Prints medians, the ratio of the better
engine's time to ours, and each engine's largest difference from the unoptimised graph relative to
its largest magnitude; exit status 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tables import table, verdict
from tilesmith.cli.compare import difference
from tilesmith.cli.engines import onnxruntime, openvino
from tilesmith.support.measure import interleave, ratio

NAMES = ("resnet50", "mobilenet_v2", "efficientnet_b0", "bert_base", "minilm")
MEAN, LEAST = 1.1, 0.9
"""The geometric mean of the ratios, and the smallest of them."""

THREADS = 2


class Samples(CalibrationDataReader):
    """The stored inputs, then one set of normal random ones of the same shapes."""

    def __init__(self, inputs: Mapping[str, np.ndarray]) -> None:
        rng = np.random.default_rng(0)
        random = {
            k: rng.standard_normal(v.shape).astype(v.dtype) if v.dtype.kind == "f" else v
            for k, v in inputs.items()
        }
        self.sets = iter([dict(inputs), random])

    def get_next(self) -> dict[str, np.ndarray]:
        return next(self.sets, {})


def quantised(source: Path, inputs: Mapping[str, np.ndarray], folder: Path) -> Path:
    """The model of `source` in 8 bits."""
    prepared, made = folder / f"{source.stem}-prepared.onnx", folder / source.name
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared), str(made), Samples(inputs), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    return made


def unoptimised(model: Path, inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(inputs))]


def measured(zoo: Path, name: str, rounds: int) -> tuple[list[str], float]:
    """A row of the table, and the ratio."""
    with np.load(zoo / f"{name}.npz") as stored:
        inputs = {k[3:]: stored[k] for k in stored if k.startswith("in_")}
    with tempfile.TemporaryDirectory() as folder:
        model = quantised(zoo / f"{name}.onnx", inputs, Path(folder))
        ours = ts.compile(str(model), threads=THREADS)
        runs = {
            "Tilesmith": lambda: list(ours.run(inputs).values()),
            "ONNX Runtime": onnxruntime(model, inputs, THREADS),
            "OpenVINO": openvino(model, inputs, THREADS),
        }
        wanted = unoptimised(model, inputs)
        off = [f"{difference(list(wanted), list(run())):.1e}" for run in runs.values()]
        times = interleave(runs, rounds=rounds)
    best = min(ratio(times[other], times["Tilesmith"]) for other in list(runs)[1:])
    medians = [f"{1e3 * times[n].median:.2f}" for n in runs]
    return [name, *medians, f"{best:.2f}", *off, verdict(best >= LEAST)], best


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("zoo", type=Path, help="a folder that benchmarks/zoo.py made")
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each engine (default 10)")
    given = parser.parse_args()
    results = [measured(given.zoo, name, given.rounds) for name in given.names or NAMES]
    engines = ["Tilesmith", "ONNX Runtime", "OpenVINO"]
    columns = [
        "model",
        *(f"{e}, ms" for e in engines),
        "ratio",
        *(f"{e} off by" for e in engines),
        "bar",
    ]
    print(table(f"Quantised models, {THREADS} threads", columns, [row for row, _ in results]))
    mean = math.exp(sum(math.log(r) for _, r in results) / len(results))
    print(
        f"geometric mean {mean:.2f} (bar {MEAN}), least {min(r for _, r in results):.2f} ({LEAST})"
    )
    return int(mean < MEAN or min(r for _, r in results) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
