"""Paddle models: programs of both forms, files of parameters, and operators."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import rounding_cases

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.frontend.paddle.operators import OPERATORS
from tilesmith.frontend.paddle.parameters import read_parameters
from tilesmith.frontend.paddle.program import rows
from tilesmith.frontend.paddle.schema import SCHEMA
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.paddle import (
    named,
    op,
    operator,
    parameter_file,
    pir,
    program,
    tensor,
    typed,
)
from written_models.protobuf import encode

RANDOM = np.random.default_rng(0)


def floats(*dims):
    return RANDOM.uniform(-1, 1, dims).astype(np.float32)


def computed(folder, type_, inputs, results=("Out",), weights=None, **attributes):
    """The results of one operator of a program; `inputs` has arrays by slot."""
    names = {slot: f"x_{slot.lower()}" for slot in inputs}
    op = operator(type_, names, {r: r.lower() for r in results}, **attributes)
    declared = {names[k]: (v.dtype.name, v.shape) for k, v in inputs.items()}
    path = program(folder, [op], declared, [r.lower() for r in results])
    found = list(ts.compile(path).run({names[k]: v for k, v in inputs.items()}).values())
    return found[0] if len(found) == 1 else found


# Programs


LINEAR = [
    operator("matmul_v2", {"X": "x", "Y": "w"}, {"Out": "h"}, trans_x=False, trans_y=True),
    operator("elementwise_add", {"X": "h", "Y": "b"}, {"Out": "y"}, axis=-1),
]


def test_a_program_with_an_open_batch(tmp_path):
    w, b = floats(5, 4), floats(5)
    path = program(tmp_path, LINEAR, {"x": ("float32", (-1, 4))}, ["y"], {"w": w, "b": b})
    exe = ts.compile(path)
    for count in (1, 3):
        x = floats(count, 4)
        np.testing.assert_allclose(exe.run({"x": x})["y"], x @ w.T + b, 1e-5, 1e-6)
    facts = inspect(path)
    assert facts.format == "Paddle program, version 2.6"
    assert facts.inputs == {"x": "f32[?,4]"}
    assert facts.operators == {"matmul": 1, "add": 1}


def test_new_weights_go_by_name(tmp_path):
    w, b, x = floats(5, 4), floats(5), floats(2, 4)
    path = program(tmp_path, LINEAR, {"x": ("float32", (-1, 4))}, ["y"], {"w": w, "b": b})
    exe = ts.compile(path)
    exe.load_weights({"w": w * 2})
    np.testing.assert_allclose(exe.run({"x": x})["y"], x @ w.T * 2 + b, 1e-5, 1e-6)


def test_all_unsupported_operators_are_listed(tmp_path):
    ops = [operator("strange", {"X": "x"}, {"Out": "y"}), operator("odd", {"X": "x"}, {"Out": "z"})]
    path = program(tmp_path, ops, {"x": ("float32", (2,))}, ["y", "z"])
    with pytest.raises(UnsupportedError, match=r"strange at 'y'.*odd at 'z'"):
        ts.compile(path)


def test_a_list_of_tensors_and_sizes_that_are_inputs(tmp_path):
    x, y = floats(2, 3), floats(2, 1)
    ops = [
        operator("concat", {"X": "x y"}, {"Out": "c"}, axis=1),
        operator("shape", {"Input": "y"}, {"Out": "s"}),
        operator("reshape2", {"X": "c", "Shape": "", "ShapeTensor": "n m"}, {"Out": "r"}),
        operator("slice", {"Input": "s"}, {"Out": "n"}, axes=[0], starts=[0], ends=[1]),
        operator("fill_constant", {}, {"Out": "m"}, shape=[1], dtype=3, str_value="4"),
    ]
    order = [ops[i] for i in (0, 1, 3, 4, 2)]
    given = {"x": ("float32", (-1, 3)), "y": ("float32", (-1, 1))}
    exe = ts.compile(program(tmp_path, order, given, ["r"]))
    np.testing.assert_array_equal(exe.run({"x": x, "y": y})["r"], np.hstack([x, y]))


# Files of parameters


def test_damaged_parameters_are_refused():
    whole = parameter_file({"a": floats(2, 3), "b": floats(4)})
    assert list(read_parameters(memoryview(whole), ["b", "a"])) == ["a", "b"]
    for size in range(0, len(whole), 5):
        with pytest.raises(ModelError, match="pdiparams file: parameter"):
            read_parameters(memoryview(whole[:size]), ["a", "b"])
    with pytest.raises(ModelError, match=r"expected \d+ bytes for 1 parameters, found"):
        read_parameters(memoryview(whole), ["a"])
    with pytest.raises(ModelError, match=r"expected a file \.pdiparams"):
        read_parameters(None, ["a"])
    with pytest.raises(ModelError, match="version 0, found version 7"):
        read_parameters(memoryview(b"\7" + whole[1:]), ["a", "b"])
    described = encode(SCHEMA, "TensorDesc", tensor("float32", (1 << 40, 1 << 40)))
    huge = struct.pack("<IQII", 0, 0, 0, len(described)) + described
    with pytest.raises(ModelError, match="elements"):
        read_parameters(memoryview(huge), ["a"])


# PIR


def network(w):
    number = [{"#": "0.a_i64", "D": d} for d in (0, -1)]
    return [
        {"#": "p", "A": [0, 1, 1, "w"], "O": typed(1, dims=w.shape), "OA": [1, 0, 1]},
        op("1.data", (), [typed(2, dims=(-1, 2, 2))], named("name", "0.a_str", "x")),
        op("1.full_int_array", (), [typed(3, "i64")], named("value", "0.a_array", number)),
        op("1.reshape", (2, 3), [typed(4)]),
        op("1.matmul", (4, 1), [typed(5)], named("transpose_y", "0.a_bool", True)),
        op("1.split_with_num", (5, 9), [typed(6)], named("num", "0.a_i32", 2)),
        op("0.split", (6,), [typed(7), typed(8)]),
        op("1.fetch", (8,), [typed(10)], named("name", "0.a_str", "last")),
    ]


def test_a_program_of_pir(tmp_path):
    w, x = floats(6, 4), floats(3, 2, 2)
    ops = network(w)
    axis = [{"#": "0.a_i64", "D": 1}]
    ops.insert(1, op("1.full_int_array", (), [typed(9, "i64")], named("value", "0.a_array", axis)))
    path = pir(tmp_path, ops, {"w": w})
    y = ts.compile(path).run({"x": x})["last"]
    np.testing.assert_allclose(y, (x.reshape(3, 4) @ w.T)[:, 3:], 1e-5, 1e-6)
    facts = inspect(path)
    assert facts.format == "Paddle PIR, version 4"
    assert facts.inputs == {"x": "f32[?,2,2]"}
    with pytest.raises(ModelError, match="'9' is used, which nothing before defines"):
        ts.compile(pir(tmp_path, network(w), {"w": w}))


@pytest.mark.parametrize(
    "change",
    [{"program": {"regions": []}}, {"program": 3}, {"base_code": {"magic": "pir"}}],
)
def test_damaged_programs_of_pir_are_refused(tmp_path, change):
    path = pir(tmp_path, [], {})
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match="not a sound program of Paddle's PIR"):
        ts.compile(path)


def test_damaged_programs_are_refused(tmp_path):
    path = program(tmp_path, LINEAR, {"x": ("float32", (-1, 4))}, ["y"], {"w": floats(5, 4)})
    whole = path.read_bytes()
    for size in range(30, len(whole) - 1, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            ts.compile(path)


@pytest.mark.parametrize(
    "entry",
    [operator("feed", {}, {}), operator("feed", {}, {"Out": "q"}), operator("fetch", {}, {})],
)
def test_inputs_and_results_without_a_variable_are_refused(tmp_path, entry):
    with pytest.raises(ModelError, match=r"expected (an operator with|a declaration)"):
        ts.compile(program(tmp_path, [entry], {"x": ("float32", (2,))}, ["x"]))


@pytest.mark.parametrize("dim", ["1e999", 2.5])
def test_dimensions_of_pir_that_are_no_integers_are_refused(tmp_path, dim):
    ops = [op("1.data", (), [typed(1, dims=(float(dim),))], named("name", "0.a_str", "x"))]
    with pytest.raises(ModelError, match="not a sound program of Paddle's PIR"):
        ts.compile(pir(tmp_path, ops, {}))


# Operators


def test_each_row_of_an_old_operator_is_needed_and_leads_to_an_operator():
    for old, (new, inputs, outputs, renamed) in rows().items():
        assert old and OPERATORS.find("", new) is not None, old
        takes_default = inputs in (["X"], ["X", "Y"]) and outputs == ["Out"]
        assert not (old == new and takes_default and not renamed), old


def test_the_second_operand_may_begin_at_an_axis(tmp_path):
    x, y = floats(2, 3, 4), floats(3)
    z = computed(tmp_path, "elementwise_mul", {"X": x, "Y": y}, axis=1)
    np.testing.assert_allclose(z, x * y[:, None], 1e-6)


def test_pads_of_convolutions_and_pools(tmp_path):
    x, w = floats(1, 1, 4, 4), np.ones((1, 1, 1, 1), np.float32)
    settings = {"strides": [1, 1], "dilations": [1, 1], "groups": 1}
    pads = {"paddings": [1, 0, 0, 2]}  # before and after each axis
    inputs = {"Input": x, "Filter": w}
    y = computed(tmp_path, "conv2d", inputs, ["Output"], **settings, **pads)
    np.testing.assert_array_equal(y[0, 0], np.pad(x[0, 0], ((1, 0), (0, 2))))
    y = computed(
        tmp_path, "pool2d", {"X": x}, ksize=[3, 3], strides=[2, 2], paddings=[0, 0],
        pooling_type="max", ceil_mode=True,
    )  # fmt: skip
    assert y.shape == (1, 1, 2, 2)
    assert y[0, 0, 1, 1] == x[0, 0, 2:, 2:].max()


def test_scale_cast_and_reductions(tmp_path):
    x = floats(2, 3)
    y = computed(tmp_path, "scale", {"X": x}, scale=2.0, bias=1.0, bias_after_scale=False)
    np.testing.assert_allclose(y, (x + 1) * 2, 1e-6)
    y = computed(tmp_path, "reduce_mean", {"X": x}, dim=[1], keep_dim=True)
    np.testing.assert_allclose(y, x.mean(1, keepdims=True), 1e-5)
    y = computed(tmp_path, "cast", {"X": x * 9}, out_dtype=2)
    np.testing.assert_array_equal(y, (x * 9).astype(np.int32))


def test_layouts_that_are_not_supported(tmp_path):
    with pytest.raises(UnsupportedError, match="layout NHWC"):
        computed(tmp_path, "pool2d", {"X": floats(1, 4, 4, 2)}, ksize=[2, 2], data_format="NHWC",
                 pooling_type="max")  # fmt: skip


def test_a_recurrent_layer(tmp_path):
    weights = {"w": floats(5, 4), "r": floats(5, 5), "b": floats(5), "d": floats(5)}
    x, h = floats(3, 2, 4), floats(1, 2, 5)
    slots = {"Input": "x", "PreState": "h", "WeightList": "w r b d"}
    op = operator("rnn", slots, {"Out": "y", "State": "s"}, mode="RNN_TANH", num_layers=1)
    given = {"x": ("float32", (-1, 2, 4)), "h": ("float32", (1, 2, 5))}
    found = ts.compile(program(tmp_path, [op], given, ["y", "s"], weights)).run({"x": x, "h": h})
    state, shown = h[0], []
    for step in x:
        w, r, b, d = weights.values()
        state = np.tanh(step @ w.T + b + state @ r.T + d)
        shown.append(state)
    np.testing.assert_allclose(found["y"], np.stack(shown), 1e-4, 1e-5)
    np.testing.assert_allclose(found["s"], state[None], 1e-4, 1e-5)


def test_a_slice_that_runs_backward_to_the_start(tmp_path):
    x = floats(5)
    bounds = {"starts": [4], "ends": [-1], "strides": [-2]}
    y = computed(tmp_path, "strided_slice", {"Input": x}, axes=[0], **bounds)
    np.testing.assert_array_equal(y, x[::-2])


def test_ties_round_away_from_zero(tmp_path):
    y = computed(tmp_path, "round", {"X": rounding_cases.X})
    np.testing.assert_array_equal(y, rounding_cases.AWAY)
    with pytest.raises(UnsupportedError, match="decimals other than 0"):
        computed(tmp_path, "round", {"X": rounding_cases.X}, decimals=1)


# Detection


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("is_clipped", [True, False])
def test_boxes_of_yolo(tmp_path, is_clipped):
    anchors, classes, stride, spread = [(10, 13), (16, 30)], 3, 16, 1.2
    x, image = floats(2, 16, 4, 5), np.array([[64, 80], [60, 100]], np.int32)
    boxes, scores = computed(
        tmp_path, "yolo_box", {"X": x, "ImgSize": image}, ("Boxes", "Scores"),
        anchors=[10, 13, 16, 30], class_num=classes, conf_thresh=0.5, downsample_ratio=stride,
        clip_bbox=is_clipped, scale_x_y=spread,
    )  # fmt: skip
    cells = x.reshape(2, 2, 8, 4, 5)
    for number, anchor, row, column in np.ndindex(2, 2, 4, 5):
        cell, (height, width) = cells[number, anchor, :, row, column], image[number]
        place = anchor * 20 + row * 5 + column
        confidence = sigmoid(cell[4])
        if confidence < 0.5:
            assert not boxes[number, place].any() and not scores[number, place].any()
            continue
        offset = sigmoid(cell[:2]) * spread - 0.5 * (spread - 1)
        centre = (offset + np.array([column, row])) * [width / 5, height / 4]
        size = np.exp(cell[2:4]) * anchors[anchor] * [width / 5, height / 4] / stride
        box = np.concatenate([centre - size / 2, centre + size / 2])
        if is_clipped:
            box = np.clip(box, [0, 0, -np.inf, -np.inf], [np.inf, np.inf, width - 1, height - 1])
        np.testing.assert_allclose(boxes[number, place], box, rtol=1e-5, atol=1e-4)
        expected = sigmoid(cell[5:]) * confidence
        np.testing.assert_allclose(scores[number, place], expected, rtol=1e-5)


def greedy(boxes, scores, least, overlap, extra):
    """The numbers of the boxes that a class keeps, the best first."""
    kept: list[int] = []
    for i in sorted(np.flatnonzero(scores > least), key=lambda i: -scores[i])[:20]:
        sides = np.minimum(boxes[i, 2:], boxes[kept][:, 2:]) - np.maximum(
            boxes[i, :2], boxes[kept][:, :2]
        )
        common = np.clip(sides + extra, 0, None).prod(-1)
        areas = (boxes[:, 2:] - boxes[:, :2] + extra).prod(-1)
        if (common <= overlap * (areas[i] + areas[kept] - common)).all():
            kept.append(int(i))
    return kept


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("kept", [100, 5])
def test_best_boxes_of_all_images(tmp_path, normalized, kept):
    corners = RANDOM.uniform(0, 40, (2, 30, 2)).astype(np.float32)
    sides = RANDOM.uniform(4, 30, (2, 30, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + sides], -1)
    scores = RANDOM.permutation(180).reshape(2, 3, 30).astype(np.float32) / 180
    rows, places, counts = computed(
        tmp_path, "multiclass_nms3", {"BBoxes": boxes, "Scores": scores},
        ("Out", "Index", "NmsRoisNum"), background_label=1, score_threshold=0.3, nms_top_k=20,
        nms_threshold=0.4, keep_top_k=kept, nms_eta=1.0, normalized=normalized,
    )  # fmt: skip
    first = 0
    for image, count in enumerate(counts):
        wanted = [
            (label, scores[image, label, i], i)
            for label in (0, 2)
            for i in greedy(boxes[image], scores[image, label], 0.3, 0.4, 0 if normalized else 1)
        ]
        best = sorted(wanted, key=lambda row: -row[1])[:kept]
        wanted = [row for row in wanted if row in best]
        assert count == len(wanted)
        for (label, score, i), row, place in zip(
            wanted, rows[first : first + count], places[first : first + count], strict=True
        ):
            np.testing.assert_array_equal(row, [label, score, *boxes[image, i]])
            assert place == [image * 30 + i]
        first += count
    assert first == len(rows) == len(places)


def test_a_threshold_that_shrinks_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="shrinks by"):
        computed(
            tmp_path, "multiclass_nms3", {"BBoxes": floats(1, 4, 4), "Scores": floats(1, 2, 4)},
            ("Out", "Index", "NmsRoisNum"), score_threshold=0.3, nms_top_k=4, nms_eta=0.9,
            keep_top_k=4, nms_threshold=0.4, normalized=True, background_label=-1,
        )  # fmt: skip
