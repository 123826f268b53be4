"""ONNX's own node tests: what imports gives the expected answers, from the graph evaluator and
from machine code; what does not is on a list.

Inputs that shapes depend on (axes, pads, k) are fixed to their values, as a caller would do.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import tilesmith as ts
from tilesmith.frontend.common.errors import ValuesNeededError
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.support.errors import UnsupportedError

DIFFERENT = {
    # The specification divides by the length of the result; these expect scale * length unrounded.
    # ONNX Runtime and PyTorch agree with us.
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
    # Expects the rounding errors of an FFT where the exact result is 0, and we give less.
    "test_dft_inverse",
    "test_dft_inverse_opset19",
    # Expects positions in the smallest image possible; ONNX Runtime and PyTorch read them, as we
    # do, in the image that output_shape asks for.
    "test_maxunpool_export_with_output_shape",
    # Random: expects NumPy's numbers, where the specification says only how they are distributed.
    *(f"test_bernoulli{kind}{form}" for kind in ("", "_double", "_seed")
      for form in ("", "_expanded")),
    *(f"test_training_dropout{form}" for form in ("", "_mask", "_default", "_default_mask")),
}  # fmt: skip

UNSUPPORTED = {
    "strings": "ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit "
    "TfIdfVectorizer",
    "sequences that a condition known only at run time chooses": "If",
    "training": "BatchNormalization Adagrad Adam Momentum",
    "8-bit floats and integers of less than 8 "
    "bits": "Cast CastLike QuantizeLinear DequantizeLinear",
    "sizes that depend on the data": "NonMaxSuppression Unique",
    "not written yet": "BitCast CausalConvWithState Det FlexAttention LinearAttention "
    "SwiGLU TensorScatter",
    "other domains": "ArrayFeatureExtractor Binarizer LabelEncoder TreeEnsemble",
    "the first Scan, which had other rules": "Scan",
}


Engine = Callable[[Graph, dict[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass
class Outcome:
    right: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "data_type"):
        return numpy_helper.to_array(value)
    if isinstance(value, list) or value is None:
        raise UnsupportedError("Sequence (opset 0): an input that is no tensor")
    return np.asarray(value)


def _load(model: Any, arrays: dict[str, np.ndarray]) -> Graph:
    """The graph for inputs of these shapes, with those inputs fixed that the shapes depend on."""
    fixed: dict[str, np.ndarray] = {}
    while True:
        shapes = {n: a.shape for n, a in arrays.items() if n not in fixed}
        try:
            return load(model.SerializeToString(), shapes=shapes, values=fixed)
        except ValuesNeededError as e:
            needed = {n: arrays[n] for n in e.inputs if n not in fixed}
            if not needed:
                raise
            fixed |= needed


def _compiled(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return ts.compile(graph, threads=2).run(inputs)


ENGINES = {"evaluated": evaluate, "compiled": _compiled}


def _run(case: Any, engine: Engine, outcome: Outcome) -> None:
    stored = {t.name for t in case.model.graph.initializer}
    names = [i.name for i in case.model.graph.input if i.name not in stored]
    for inputs, outputs in case.data_sets:
        arrays = {n: _array(a) for n, a in zip(names, inputs, strict=False)}
        graph = _load(case.model, arrays)
        found = engine(graph, {v.name: arrays[v.name] for v in graph.inputs})
        for got, want in zip(found.values(), map(_array, outputs), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if want.dtype.kind not in "fV":
                np.testing.assert_array_equal(got, want)
                continue
            # 2 units in the last place of bf16, whose rounding after each step varies.
            relative = 1.6e-2 if want.dtype.name == "bfloat16" else max(case.rtol, 1e-3)
            absolute = max(case.atol, 1e-3 if want.dtype.itemsize == 2 else 1e-7)
            got, want = (a.astype(np.float64) for a in (got, want))
            np.testing.assert_allclose(got, want, relative, absolute, equal_nan=True)
    outcome.right.append(case.name)


@pytest.fixture(scope="module", params=ENGINES)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose while they are made
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    found = Outcome()
    for case in cases:
        try:
            _run(case, ENGINES[request.param], found)
        except UnsupportedError as e:
            found.unsupported[case.name] = str(e)
        except Exception as e:  # every other end is a wrong answer, reported with its case
            found.wrong[case.name] = f"{type(e).__name__}: {e}"
    return found


def test_what_imports_is_right(outcome):
    assert set(outcome.wrong) <= DIFFERENT, outcome.wrong
    assert len(outcome.right) >= 1400


def test_what_is_unsupported_is_listed(outcome):
    listed = set(" ".join(UNSUPPORTED.values()).split())
    for name, message in outcome.unsupported.items():
        if (
            "has element type" in message
            or "only tensors" in message
            or "the model uses opset" in message
        ):
            continue
        operators = re.findall(r"(?:compiled: |; )(?:[\w.]+\.)?(\w+) \(opset", message) or [
            "Sequence"
        ]
        assert "Sequence" in operators or set(operators) <= listed, (name, message)
