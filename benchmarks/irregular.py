#!/usr/bin/env python3
"""Operators whose work data decide: `python benchmarks/irregular.py [WORD ...]`.

ONNX Runtime and we take turns on the same arrays; `ratio` is our time over its in the same round
(median over rounds).  WORDs select the rows whose names contain one.  Results are compared.
Prints a table, or JSON with --json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from case_table import run
from tilesmith.support.measure import interleave, ratio

COORDINATES = 4
"""Extents up to this one are numbers in a model, larger ones are open."""


@dataclass(frozen=True)
class Case:
    """A model of one operator, whose inputs have open dimensions, and arrays for it."""

    name: str
    model: onnx.ModelProto
    arrays: dict[str, np.ndarray]


def one_operator(
    name: str, arrays: dict[str, np.ndarray], constants: list[np.ndarray], **attributes: Any
) -> onnx.ModelProto:
    known = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(constants)]
    node = helper.make_node(name, [*arrays, *(k.name for k in known)], ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(
            n,
            helper.np_dtype_to_tensor_dtype(a.dtype),
            [f"{n}{i}" if d > COORDINATES else d for i, d in enumerate(a.shape)],
        )
        for n, a in arrays.items()
    ]
    kind = TensorProto.INT64 if name == "NonMaxSuppression" else TensorProto.FLOAT
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([node], "case", inputs, [result], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def suppressions() -> Iterator[Case]:
    """Boxes of a detector: none, few, or many of them above a threshold of 0.5."""
    rng = np.random.default_rng(0)
    for what, best in (("none", 0.4), ("1 in 10,000", 0.50005), ("1 in 100", 0.505), ("half", 1.0)):
        boxes = rng.random((1, 8400, 4), np.float32) * np.array([640, 640, 60, 60], np.float32)
        boxes += np.array([0, 0, 3, 3], np.float32)
        arrays = {
            "boxes": boxes,
            "scores": rng.random((1, 80, 8400), np.float32) * np.float32(best),
        }
        limits = [np.array([300]), np.array([0.45], np.float32), np.array([0.5], np.float32)]
        model = one_operator("NonMaxSuppression", arrays, limits, center_point_box=1)
        yield Case(f"NonMaxSuppression 8400 x 80, {what}", model, arrays)


def samples() -> Iterator[Case]:
    """An image warped by a smooth flow."""
    rng = np.random.default_rng(0)
    ends = np.linspace(-1.05, 1.05, 128, dtype=np.float32)
    grid = np.stack(np.meshgrid(ends, ends), -1)[None] + rng.normal(0, 0.01, (1, 128, 128, 2))
    arrays = {
        "image": rng.standard_normal((1, 32, 128, 128), np.float32),
        "grid": grid.astype(np.float32),
    }
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border"):
            model = one_operator("GridSample", arrays, [], mode=mode, padding_mode=padding)
            yield Case(f"GridSample {mode}, {padding}", model, arrays)


CASES: tuple[Callable[[], Iterator[Case]], ...] = (suppressions, samples)


def measure(case: Case, threads: int, rounds: int) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    text = case.model.SerializeToString()
    session = ort.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    exe = ts.compile(case.model, threads=threads)
    got, want = exe.run(case.arrays)["y"], np.asarray(session.run(None, case.arrays)[0])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    taken = interleave(
        {"ours": lambda: exe.run(case.arrays), "theirs": lambda: session.run(None, case.arrays)},
        rounds=rounds,
        turn_seconds=0.05,
    )
    ours, theirs = taken["ours"], taken["theirs"]
    return {
        "name": case.name,
        "threads": threads,
        "min_ms": ours.minimum * 1e3,
        "onnxruntime_min_ms": theirs.minimum * 1e3,
        "ratio": 1 / ratio(theirs, ours),
    }


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:44s} {row['threads']} threads {row['min_ms']:8.3f} ms, "
        f"ONNX Runtime {row['onnxruntime_min_ms']:8.3f}: {row['ratio']:5.2f}"
    )


if __name__ == "__main__":
    run(__doc__, CASES, measure, line, rounds=10)
