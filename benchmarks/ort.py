#!/usr/bin/env python3
"""Models of ONNX Runtime with parts replaced by operators of ours: `python -m benchmarks.ort zoo/`.

For each model of the zoo, and one that reads words: ONNX Runtime alone (its workers do not spin),
Tilesmith alone, and ONNX Runtime with what `ts.ort.accelerate` made, in turns.  Prints medians in
ms, the accelerated model's time over that of the faster engine, and the largest difference from
ONNX Runtime relative to its largest magnitude; exit status 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.support.measure import interleave

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found
from zoo import NAMES

MOST = 1.05
"""Bar: the accelerated model's time over the faster engine's."""
ROWS, LENGTH, WORDS, WIDTH = 64, 64, 2000, 1024
"""Of the model that reads words: texts of one run, words of each, known words, features."""
WORD_MODEL = "words"


def words() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A classifier of texts: ONNX Runtime counts words, which Tilesmith does in Python."""
    rng = np.random.default_rng(0)
    vocabulary = [f"word{i}" for i in range(WORDS)]
    weights: list[onnx.TensorProto] = []

    def weight(*shape: int) -> str:
        array = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{len(weights)}"))
        return weights[-1].name

    nodes = [
        helper.make_node(
            "TfIdfVectorizer", ["text"], ["h0"], mode="TF", min_gram_length=1, max_gram_length=1,
            max_skip_count=0, ngram_counts=[0], ngram_indexes=list(range(WORDS)),
            pool_strings=vocabulary,
        )
    ]  # fmt: skip
    for i, width in enumerate((WORDS, WIDTH, WIDTH)):
        nodes += [
            helper.make_node("MatMul", [f"h{i}", weight(width, WIDTH)], [f"m{i}"]),
            helper.make_node("Gelu", [f"m{i}"], [f"h{i + 1}"]),
        ]
    graph = helper.make_graph(
        nodes,
        WORD_MODEL,
        [helper.make_tensor_value_info("text", TensorProto.STRING, [ROWS, LENGTH])],
        [helper.make_tensor_value_info("h3", TensorProto.FLOAT, [ROWS, WIDTH])],
        weights,
    )
    text = np.array(vocabulary, object)[rng.integers(0, WORDS, (ROWS, LENGTH))]
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), {"text": text}


def given(zoo: Path, name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model and inputs for it."""
    if name == WORD_MODEL:
        return words()
    with np.load(zoo / f"{name}.npz") as arrays:
        inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in_")}
    return onnx.load(zoo / f"{name}.onnx"), inputs


def measured(
    zoo: Path, name: str, threads: int, rounds: int, seconds: float
) -> tuple[dict[str, float], float, int]:
    """Seconds of each contender, the largest relative difference, the number of parts."""
    model, feed = given(zoo, name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    plain = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = ts.compile(model, threads=threads)
    arguments = [feed[s.name] for s in ours.inputs]
    with tempfile.TemporaryDirectory() as folder:
        found = ts.ort.accelerate(model, folder, inputs=feed, threads=threads, seconds=seconds)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = found.session(options)
        calls: dict[str, Any] = {
            "onnxruntime": lambda: plain.run(None, feed),
            "tilesmith": lambda: ours(*arguments),
            "accelerated": lambda: session.run(None, feed),
        }
        taken = interleave(calls, rounds=rounds, turn_seconds=0.1)
        differences = [
            float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))
            for a, b in zip(plain.run(None, feed), session.run(None, feed), strict=True)
        ]
    times = {n: statistics.median(s.rounds) for n, s in taken.items()}
    return times, max(differences), len(found.parts)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("zoo", type=Path, help="a folder that benchmarks/zoo.py made")
    parser.add_argument("names", nargs="*", help=f"default: {' '.join((*NAMES, WORD_MODEL))}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=120.0, help="for the search of parts")
    asked = parser.parse_args()
    missed = False
    print(f"{'model':16} {'onnxruntime':>12} {'tilesmith':>10} {'accelerated':>12}  of the faster")
    for name in asked.names or (*NAMES, WORD_MODEL):
        times, difference, parts = measured(
            asked.zoo, name, asked.threads, asked.rounds, asked.seconds
        )
        best = min(times["onnxruntime"], times["tilesmith"])
        ratio = times["accelerated"] / best
        missed |= ratio > MOST
        shown = [f"{times[n] * 1e3:.2f}" for n in ("onnxruntime", "tilesmith", "accelerated")]
        print(
            f"{name:16} {shown[0]:>12} {shown[1]:>10} {shown[2]:>12}  {ratio:.2f}"
            f"{' MISSED' if ratio > MOST else ''}  ({parts} parts, difference {difference:.1e})",
            flush=True,
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
