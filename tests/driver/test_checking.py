"""`check`: a bound for each output, and rounding steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilesmith as ts
from tilesmith.driver import checking
from tilesmith.ops.activation import Sigmoid
from tilesmith.ops.base import GraphBuilder
from tilesmith.ops.norm import Softmax

ROWS, TERMS = 64, 40


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path / "cache", use_records=False, threads=1)


def quantised() -> bytes:
    """Sums of rows, rounded to quanta of 1; outputs are the quanta and floats."""
    tensor = onnx.TensorProto
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x", "axes"], ["m"]),
            helper.make_node("QuantizeLinear", ["m", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        "quantised",
        [helper.make_tensor_value_info("x", tensor.FLOAT, [ROWS, TERMS])],
        [
            helper.make_tensor_value_info("q", tensor.INT8, [ROWS, 1]),
            helper.make_tensor_value_info("y", tensor.FLOAT, [ROWS, 1]),
        ],
        [
            numpy_helper.from_array(np.asarray([1]), "axes"),
            numpy_helper.from_array(np.float32(1), "scale"),
            numpy_helper.from_array(np.int8(0), "zero"),
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def sums(fraction: float) -> np.ndarray:
    """Rows whose exact sums are a whole number and `fraction`, as nearly as f32 has them."""
    x = np.random.default_rng(0).standard_normal((ROWS, TERMS)).astype(np.float32)
    wanted = np.arange(ROWS) - ROWS // 2 + fraction
    x[:, -1] = 0
    x[:, -1] = wanted - x.astype(np.float64).sum(1)
    return x


def run_wrongly(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray], dtype: str
) -> None:
    """Let kernels give wrong outputs of a type."""
    run = checking._run_alone

    def wrong(*args: object) -> Sequence[np.ndarray]:
        found = run(*args)  # type: ignore[arg-type]
        return [change(a) if a.dtype == dtype else a for a in found]

    monkeypatch.setattr(checking, "_run_alone", wrong)


def test_a_value_next_to_a_boundary_may_be_one_quantum_off(options: ts.Options) -> None:
    checks = ts.check(quantised(), {"x": sums(0.5)}, options=options)
    outputs = [o for c in checks for o in c.outputs]
    assert all(c.passed for c in checks), checks
    assert sum(o.stepped for o in outputs) > 0, "f32 sums round to the same side as exact ones"
    exact = ts.check(quantised(), {"x": sums(0.25)}, options=options)
    assert all(c.passed and not any(o.stepped for o in c.outputs) for c in exact)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_one_quantum_is_wrong_far_from_a_boundary(
    options: ts.Options, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    run_wrongly(monkeypatch, lambda a: a + a.dtype.type(1), dtype)
    checks = ts.check(quantised(), {"x": sums(0.25)}, options=options)
    wrong = [(o.dtype, o.stepped) for c in checks for o in c.outputs if not o.passed]
    # The sum is rounded in a kernel of its own, so that two kernels give floats.
    assert wrong == {"int8": [("i8", 0)], "float32": [("f32", 0)] * 2}[dtype]


def test_two_quanta_are_wrong_everywhere(
    options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_wrongly(monkeypatch, lambda a: a + np.int8(2), "int8")
    checks = ts.check(quantised(), {"x": sums(0.5)}, options=options)
    assert [o.dtype for c in checks for o in c.outputs if not o.passed] == ["i8"]


def test_each_output_has_the_bound_of_its_type(
    options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest values and where they are come from one kernel; an index that is one off is
    wrong.
    """
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["y", "at"])],
        "largest",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 25_600])],
        [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="at")],
        [helper.make_tensor("k", onnx.TensorProto.INT64, [1], [64])],
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    (kernel,) = ts.check(model, options=options)
    assert kernel.passed and {o.dtype: o.bound for o in kernel.outputs} == {"f32": 1e-4, "i64": 0}
    run_wrongly(monkeypatch, lambda a: a + 1, "int64")
    (kernel,) = ts.check(model, options=options)
    assert not kernel.passed and kernel.worst.dtype == "i64"
    assert 0 < kernel.worst.error < 1e-4, "which the bound of the other output allows"
    assert [o.passed for o in kernel.outputs] == [True, False]


def test_an_expansion_is_checked_against_the_formula(
    options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are made of the expansion, so they agree with it even if it is wrong."""
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], name="soft", axis=-1)],
        "softmax",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 10])],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    operator, kernel = ts.check(model, options=options)
    assert (operator.index, operator.operators, operator.passed) == (None, ("softmax",), True)
    assert kernel.index is not None and kernel.passed

    def wrong(self: Softmax, b: GraphBuilder, *inputs: Any) -> Any:
        return b.add(Sigmoid(), *inputs)

    monkeypatch.setattr(Softmax, "decompose", wrong)
    operator, kernel = ts.check(model, options=options)
    assert not operator.passed and operator.loc == "soft" and kernel.passed


@pytest.mark.parametrize(
    ("inputs", "said"),
    [({}, "missing x"), ({"x": None}, "expected f32.*found None"), ({"y": 1}, "no input is named"),
     ({"x": {}}, "input 'x': expected"), ({"x": 1}, "found int64")],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, Any], said: str) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        )
    )
    with pytest.raises(ts.ModelError, match=said):
        ts.check(model, inputs)
