"""Operands that decide shapes and that only a run knows: the answers are those of known ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, value

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.measure import stages_in
from tilesmith.graph.verify import verify
from tilesmith.ops.reduce import ReduceSum
from tilesmith.ops.sort import TopK
from tilesmith.support.errors import ModelError

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
SIGNAL = RNG.standard_normal((2, 5, 4, 2)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 4, 5)).astype(np.float32)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def _built(
    op: str,
    given: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    outputs: int = 1,
) -> Any:
    names = [n if n[0] != "_" else "" for n in given]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    inputs = [
        value(n, list(a.shape), helper.np_dtype_to_tensor_dtype(a.dtype))
        for n, a in given.items()
        if n[0] != "_"
    ]
    return model([node], inputs, [f"y{i}" for i in range(outputs)], opset=21)


Cases = list[tuple[str, dict[str, Any], dict[str, np.ndarray]]]

CASES: Cases = [
    *(("Reshape", {}, {"x": X, "s": s}) for s in (_ints(4, -1), _ints(0, 0, 2, 2), _ints(24))),
    ("Reshape", {"allowzero": 1}, {"x": np.zeros((2, 0), np.float32), "s": _ints(0, 5)}),
    *(("Expand", {}, {"x": X[:, :1], "s": s}) for s in (_ints(5, 1), _ints(3, 2, 6, 4), _ints(1))),
    *(("ConstantOfShape", {}, {"s": s}) for s in (_ints(2, 3), _ints(0, 2))),
    *(("Tile", {}, {"x": X, "r": r}) for r in (_ints(2, 1, 3), _ints(2, 3, 1), _ints(1, 0, 1))),
    *(("Slice", {}, {"x": X, "s": _ints(*s), "e": _ints(*e), "a": _ints(*a), "t": _ints(*t)})
      for s, e, a, t in (((1, -3), (9, 9), (0, 2), (1, 2)), ((-1,), (-99,), (1,), (-1,)),
                         ((3, 0), (1, 0), (-1, 0), (1, 1)), ((5,), (0,), (2,), (-3,)))),
    ("Slice", {}, {"x": X, "s": _ints(0, 1), "e": _ints(1, 1 << 62)}),
    *(("Pad", {"mode": m}, {"x": X, "p": _ints(1, 0, -1, 0, 2, 3)})
      for m in ("constant", "edge", "wrap")),
    ("Pad", {"mode": "reflect"}, {"x": X, "p": _ints(1, 2, 0, 0, 1, 3)}),
    ("Pad", {}, {"x": X, "p": _ints(1, 2), "v": np.float32(7), "a": _ints(-1)}),
    *(("Squeeze", {}, {"x": X.reshape(2, 1, 3, 1, 4), "a": a}) for a in (_ints(1, -2), _ints(3))),
    *(("Unsqueeze", {}, {"x": X, "a": a}) for a in (_ints(0), _ints(-1, 1), _ints(4, 0, 2))),
    ("Unsqueeze", {}, {"x": np.float32(3), "a": _ints(1, 0)}),
    *(("ReduceSum", {"keepdims": k}, {"x": X, "a": a})
      for k in (0, 1) for a in (_ints(1), _ints(-1, 0), _ints(0, 1, 2))),
    ("ReduceLogSum", {"keepdims": 0}, {"x": np.abs(X), "a": _ints(2)}),
    ("ReduceMax", {"keepdims": 0}, {"x": X[:0], "a": _ints(1)}),
    ("ReduceMean", {}, {"x": X.astype(np.int32) * 9, "a": _ints(0, 2)}),
    ("ReduceL2", {}, {"x": (X * 9).astype(np.int32), "a": _ints(0, 2)}),
    *(("CumSum", {"reverse": r}, {"x": X, "a": a}) for r in (0, 1)
      for a in (np.array(1), np.array(-1, np.int32))),
    *(("CumSum", {}, {"x": X[:, :0], "a": np.array(a)}) for a in range(3)),  # no elements
    ("Trilu", {"upper": 0}, {"x": X, "k": np.array(1)}),
    *(("Trilu", {"upper": u}, {"x": X, "k": np.array(k)})
      for u in (0, 1) for k in (-1, -99, 3, 99)),
    ("OneHot", {"axis": 0}, {"x": _ints(0, -1, 7), "d": np.array(4), "v": _floats(2, 5)}),
    ("Range", {}, {"s": np.array(9), "l": np.array(0), "d": np.array(-2)}),
    ("Range", {}, {"s": np.float32(1), "l": np.float32(2.05), "d": np.float32(0.1)}),
    ("Range", {}, {"s": np.array(3), "l": np.array(1), "d": np.array(1)}),
    *((w, {"periodic": p}, {"s": np.array(s)})
      for w in ("HannWindow", "HammingWindow", "BlackmanWindow") for p, s in ((0, 9), (1, 1))),
    ("MelWeightMatrix", {}, {"b": np.array(6), "l": np.array(16), "r": np.array(8192),
                             "f": np.float32(10), "t": np.float32(4000)}),
    ("CenterCropPad", {"axes": [0, 2]}, {"x": X, "s": _ints(3, 1)}),
    *(("DFT", {"inverse": i, "onesided": o}, {"x": SIGNAL[..., : 2 if i else 1], "n": n_, "a": a})
      for i, o in ((0, 0), (1, 0), (0, 1), (1, 1))
      for n_, a in ((np.array(6), np.array(1)), (np.array(3), np.array(-2)))),
    ("DFT", {}, {"x": SIGNAL, "_n": X, "a": np.array(-3)}),
    ("STFT", {}, {"x": SIGNAL[:, :, 0, :1], "s": np.array(2), "w": _floats(1, 2, 1)}),
    ("STFT", {"onesided": 0}, {"x": SIGNAL[:, :, 0, :1], "s": np.array(1), "_w": X,
                               "l": np.array(4)}),
    ("Col2Im", {"strides": [2, 1], "pads": [0, 1, 1, 0], "dilations": [1, 2]},
     {"x": RNG.standard_normal((2, 12, 8)).astype(np.float32), "i": _ints(4, 5), "b": _ints(2, 2)}),
    ("AffineGrid", {"align_corners": 1},
     {"x": RNG.standard_normal((2, 2, 3)).astype(np.float32), "s": _ints(2, 9, 3, 1)}),
    ("MaxUnpool", {"kernel_shape": [2, 2]},
     {"x": IMAGE[:, :1, :1, :2], "i": _ints(3, 17).reshape(1, 1, 1, 2), "s": _ints(1, 1, 4, 5)}),
    *(("Unique", {"sorted": s, **a}, {"x": np.array([[3, 1, 1], [3, 1, 1], [0, 2, 2]], np.float32)})
      for s in (0, 1) for a in ({}, {"axis": 0}, {"axis": -1})),
    ("Compress", {"axis": 1}, {"x": X, "c": np.array([True, False, True])}),
    ("Compress", {}, {"x": X, "c": np.array([False, True] * 6)}),
    ("NonZero", {}, {"x": (X > 0.3).astype(np.int8)}),
    *(("Resize", {"mode": m, "coordinate_transformation_mode": c}, {"x": IMAGE, "_r": X, "s": s})
      for m in ("nearest", "linear", "cubic") for c in ("half_pixel", "asymmetric", "align_corners")
      for s in (_floats(1, 1, 1.5, 0.6),)),
    *(("Resize", {"mode": m, "coordinate_transformation_mode": "pytorch_half_pixel",
                  "antialias": int(m != "nearest")},
       {"x": IMAGE, "_r": X, "_s": X, "n": _ints(1, 2, 9, 3)})
      for m in ("nearest", "linear", "cubic")),
    ("Resize", {"mode": "cubic", "exclude_outside": 1, "axes": [2, 3],
                "keep_aspect_ratio_policy": "not_larger"},
     {"x": IMAGE, "_r": X, "_s": X, "n": _ints(7, 8)}),
    ("Resize", {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
                "extrapolation_value": 9.0},
     {"x": IMAGE, "r": _floats(0, 0, 0.4, -0.2, 1, 1, 0.9, 0.7), "_s": X, "n": _ints(1, 2, 3, 3)}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes", "given"), CASES, ids=lambda v: str(v)[:60])
def test_answers_are_those_of_known_operands(
    op: str, attributes: dict[str, Any], given: dict[str, np.ndarray]
) -> None:
    there = {n: np.asarray(a) for n, a in given.items() if n[0] != "_"}
    made = _built(op, {n: np.asarray(a) for n, a in given.items()}, attributes)
    computed = load(made)
    verify(computed)
    assert list(stages_in(computed))
    operands = {n: a for n, a in there.items() if n != "x"} or there
    known = load(made, values=operands)
    assert not list(stages_in(known))
    got = evaluate(computed, there)["y0"]
    want = evaluate(known, {n: a for n, a in there.items() if n not in operands})["y0"]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6, strict=True)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("most", [0, 2, 9])
def test_boxes_that_overlap_better_ones_are_left_out(centred: int, most: int) -> None:
    scores = RNG.uniform(0, 1, (2, 3, 7)).astype(np.float32)
    limits = {"m": _ints(most), "t": _floats(0.1), "l": _floats(0.2)}
    given = {"b": RNG.uniform(0, 1, (2, 7, 4)).astype(np.float32), "s": scores, **limits}
    made = _built("NonMaxSuppression", given, {"center_point_box": centred})
    (want,) = ReferenceEvaluator(made).run(None, given)
    got = evaluate(load(made), given)["y0"]
    np.testing.assert_array_equal(got, np.reshape(want, (-1, 3)))
    assert len(got) or not most


def test_boxes_and_the_best_of_an_axis_of_any_length() -> None:
    nodes = [
        helper.make_node("NonMaxSuppression", ["b", "s", "k", "t", "t"], ["y"]),
        helper.make_node("TopK", ["s", "k"], ["best", "places"], axis=2),
    ]
    inputs = [value("b", [1, "n", 4]), value("s", [1, 2, "n"])]
    inputs += [value("k", [1], TensorProto.INT64), value("t", [1])]
    made = model(nodes, inputs, ["y", "best", "places"])
    graph = load(made)
    verify(graph)
    for n in (2, 13):
        given = {"b": RNG.uniform(0, 1, (1, n, 4)), "s": RNG.uniform(0, 1, (1, 2, n))}
        given = {k: a.astype(np.float32) for k, a in given.items()}
        given |= {"k": _ints(2), "t": _floats(0.1)}
        wanted = ReferenceEvaluator(made).run(None, given)
        for got, want in zip(evaluate(graph, given).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_several_results() -> None:
    sizes = {"x": X, "s": _ints(1, 0, 3)}
    got = evaluate(load(_built("Split", sizes, {"axis": -1}, 3)), sizes)
    for part, want in zip(got.values(), np.split(X, [1, 1], 2), strict=True):
        np.testing.assert_array_equal(part, want)
    best = {"x": X, "k": _ints(2)}
    graph = load(_built("TopK", best, {"axis": 1}, 2))
    (op,) = (n.op for n in graph.nodes if isinstance(n.op, TopK))
    assert not isinstance(op.k, int)  # as many as a run asks for, not all, are put in order
    values, places = evaluate(graph, best).values()
    np.testing.assert_array_equal(values, -np.sort(-X, 1)[:, :2])
    np.testing.assert_array_equal(places, np.argsort(-X, 1, kind="stable")[:, :2])


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("Reshape", {"x": X, "s": _ints(5, 5)}),
        ("Reshape", {"x": X, "s": _ints(-2, -12)}),
        ("Expand", {"x": X, "s": _ints(2, 1, 5)}),
        ("Tile", {"x": X, "r": _ints(1, -1, 1)}),
        ("Slice", {"x": X, "s": _ints(0), "e": _ints(1), "a": _ints(0), "t": _ints(0)}),
        ("Pad", {"x": X, "p": _ints(0, 0, 0, 0, -9, 0)}),
        ("Squeeze", {"x": X, "a": _ints(1)}),
        ("Unsqueeze", {"x": X, "a": _ints(1, 1)}),
        ("ReduceSum", {"x": X, "a": _ints(3)}),
        ("CumSum", {"x": X, "a": np.array(-4)}),
        ("TopK", {"x": X, "k": _ints(5)}),
        ("Range", {"s": np.array(0), "l": np.array(1), "d": np.array(0)}),
        ("Range", {"s": np.float32(0), "l": np.float32(np.nan), "d": np.float32(1)}),
        ("HannWindow", {"s": np.array(-1)}),
    ],
)
def test_a_run_that_does_not_fit_is_refused(op: str, given: dict[str, np.ndarray]) -> None:
    arrays = {n: np.asarray(a) for n, a in given.items()}
    made = load(_built(op, arrays, {}, 2 if op == "TopK" else 1))
    with pytest.raises(ModelError, match=r"measure node.*expected 0 to"):
        evaluate(made, arrays)


def test_images_of_computed_sizes_compile() -> None:
    columns = RNG.standard_normal((1, 8, 6)).astype(np.float32)
    given = {"x": columns, "i": _ints(3, 5), "b": _ints(2, 2)}
    attributes = {"strides": [1, 2], "pads": [0, 1, 0, 0]}
    made = _built("Col2Im", given, attributes)
    (want,) = ReferenceEvaluator(made).run(None, given)
    exe = ts.compile(made)
    np.testing.assert_allclose(exe(*given.values()), want, rtol=1e-6)
    with pytest.raises(ModelError, match="expected 0"):
        exe(columns, _ints(3, 5), _ints(3, 2))


def test_no_elements_are_chosen_of_an_axis_without_elements() -> None:
    given = {"x": X[:, :0], "c": np.zeros(0, bool)}
    assert evaluate(load(_built("Compress", given, {"axis": 1})), given)["y0"].shape == (2, 0, 4)


def _two_counts(op: str) -> Any:
    nodes = [
        helper.make_node("NonZero", ["a"], ["p"]),
        helper.make_node("NonZero", ["b"], ["q"]),
        helper.make_node(op, ["p", "q"], ["y"], **({"axis": 0} if op == "Concat" else {})),
    ]
    return model(nodes, [value("a", [4]), value("b", [4])], ["y"])


@pytest.mark.parametrize(("a", "b"), [((1, 0, 1, 1), (0, 1, 1, 1)), ((1, 0, 1, 0), (0, 1, 0, 0))])
def test_two_measured_extents_may_be_equal_or_broadcast(a: Any, b: Any) -> None:
    given = {"a": _floats(*a), "b": _floats(*b)}
    got = evaluate(load(_two_counts("Add")), given)["y"]
    np.testing.assert_array_equal(got, np.array(np.nonzero(a)) + np.array(np.nonzero(b)))


@pytest.mark.parametrize("op", ["Add", "Concat"])
def test_two_measured_extents_that_differ_are_refused(op: str) -> None:
    given = {"a": _floats(1, 1, 0, 0), "b": _floats(1, 1, 1, 0)}
    graph = load(_two_counts(op))
    verify(graph)
    with pytest.raises(ModelError, match="expected 0 to 0"):
        evaluate(graph, given)


def test_a_measured_extent_that_must_be_a_number_is_checked() -> None:
    nodes = [
        helper.make_node("NonZero", ["a"], ["p"]),
        helper.make_node("MatMul", ["x", "p"], ["y"]),
        helper.make_node("Add", ["p", "w"], ["z"]),
    ]
    inputs = [value("a", [4]), value("x", [2, 1], 7), value("w", [1, 3], 7)]
    graph = load(model(nodes, inputs, ["y", "z"]))
    given = {"x": np.ones((2, 1), np.int64), "w": np.ones((1, 3), np.int64)}
    got = evaluate(graph, {"a": _floats(1, 1, 0, 1), **given})
    np.testing.assert_array_equal(got["z"], [[1, 2, 4]])
    np.testing.assert_array_equal(got["y"], [[0, 1, 3]] * 2)
    got = evaluate(graph, {"a": _floats(0, 0, 0, 1), **given})  # one broadcasts
    np.testing.assert_array_equal(got["z"], [[4, 4, 4]])
    with pytest.raises(ModelError, match="expected 0 to 0"):
        evaluate(graph, {"a": _floats(0, 1, 0, 1), **given})


def test_known_parts_of_a_shape_stay_known() -> None:
    nodes = [
        helper.make_node("Concat", ["n", "four"], ["s"], axis=0),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
    ]
    inputs = [value("x", ["b", 6]), value("n", [1], 7)]
    graph = load(model(nodes, inputs, ["y"], {"four": _ints(4)}))
    assert graph.outputs[0].type.shape[1] == 4
    got = evaluate(graph, {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "n": _ints(-1)})
    assert got["y"].shape == (3, 4)


def test_one_tensor_is_measured_once() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"]),
        helper.make_node("ConstantOfShape", ["s"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    graph = load(model(nodes, [value("s", [2], 7)], ["y"]))
    assert len(list(stages_in(graph))) == 1


def test_only_axes_that_change_are_resampled_and_lanes_run_along_their_samples() -> None:
    box = helper.make_node("Sub", ["end", "start"], ["size"])
    sizes = helper.make_node("Concat", ["ones", "size"], ["sizes"], axis=0)
    resize = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    inputs = [value("x", list(IMAGE.shape), TensorProto.FLOAT)]
    inputs += [value(n, [2], TensorProto.INT64) for n in ("start", "end")]
    constants = {"ones": _ints(*IMAGE.shape[:2])}
    graph = load(model([box, sizes, resize], inputs, ["y"], constants, opset=19))
    sums = [n for n in graph.nodes if isinstance(n.op, ReduceSum)]
    assert [n.op.axes for n in sums] == [(2,), (3,)]
    assert [n.inputs[0].type.rank for n in sums] == [5, 5]
    given = {"x": IMAGE, "start": _ints(1, 2), "end": _ints(9, 5)}
    (found,) = evaluate(graph, list(given.values())).values()
    wanted = _built(
        "Resize", {"x": IMAGE, "_r": X, "_s": X, "n": _ints(1, 2, 8, 3)}, {"mode": "linear"}
    )
    (right,) = ReferenceEvaluator(wanted).run(None, {"x": IMAGE, "n": _ints(1, 2, 8, 3)})
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
