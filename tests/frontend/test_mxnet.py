"""MXNet models: symbols of each version, files of arrays of each version, and operators."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import rounding_cases

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.frontend.mxnet.arrays import read_arrays
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError
from written_models.mxnet import V1, V2, V3, array_file, dense, network, node, shape, sparse, symbol

RANDOM = np.random.default_rng(0)


def floats(*dims):
    return RANDOM.uniform(-1, 1, dims).astype(np.float32)


def computed(folder, op, *inputs, heads=(), **attributes):
    """The results of one operator."""
    nodes = [node("null", f"x{i}") for i in range(len(inputs))]
    nodes.append(node(op, "y", range(len(inputs)), **attributes))
    last = len(inputs)
    path = network(folder, nodes, [[last, h, 0] for h in heads] or [last])
    given = {f"x{i}": v for i, v in enumerate(inputs)}
    exe = ts.compile(path, shapes={k: v.shape for k, v in given.items()})
    results = [np.asarray(r) for r in exe.run(given).values()]
    return results if heads else results[0]


CONVOLUTION = [
    node("null", "data"),
    node("null", "w"),
    node("null", "b"),
    node("Convolution", "c", (0, 1, 2), kernel=(1, 1), num_filter=2, no_bias=False),
    node("Activation", "a", (3,), act_type="relu"),
]


def pointwise(x, w, b):
    return np.maximum(np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + b[:, None, None], 0)


# Files of arrays


@pytest.mark.parametrize("magic", [0, V1, V2, V3])
def test_each_version_of_arrays(magic):
    a, b = floats(2, 3), np.arange(4, dtype=np.int8)
    read = read_arrays(array_file({"arg:a": dense(a, magic), "b": dense(b, magic)}))
    assert list(read) == ["arg:a", "b"]
    np.testing.assert_array_equal(read["arg:a"], a)
    np.testing.assert_array_equal(read["b"], b)
    assert read["b"].dtype == np.int8


def test_sparse_arrays_are_made_dense():
    rows, places = floats(2, 3), np.array([1, 4])
    csr = sparse(2, (2, 3), np.float32([5, 6, 7]), np.array([0, 2, 3]), np.array([0, 2, 1]))
    read = read_arrays(array_file({"r": sparse(1, (5, 3), rows, places), "c": csr}))
    wanted = np.zeros((5, 3), np.float32)
    wanted[places] = rows
    np.testing.assert_array_equal(read["r"], wanted)
    np.testing.assert_array_equal(read["c"], np.float32([[5, 0, 6], [0, 7, 0]]))


def test_damaged_arrays_are_refused():
    whole = array_file({"a": dense(floats(2, 3))})
    for size in range(0, len(whole) - 1, 3):
        with pytest.raises(ModelError, match="params file: expected"):
            read_arrays(whole[:size])
    many = struct.pack("<QQQ", 0x112, 0, 1 << 60)
    with pytest.raises(ModelError, match="no more arrays than bytes"):
        read_arrays(many)
    huge = struct.pack("<Ii", V2, 0) + shape((1 << 40, 1 << 40)) + bytes(12)
    with pytest.raises(ModelError, match="elements"):
        read_arrays(array_file({"a": huge}))
    wrong = sparse(1, (5, 3), floats(2, 3), np.array([1, 9]))
    with pytest.raises(ModelError, match="sparse array"):
        read_arrays(array_file({"a": wrong}))
    device = struct.pack("<ii", 1, 0)
    numbered = dense(floats(1)).replace(device + bytes(4), device + b"c\0\0\0")
    with pytest.raises(ModelError, match="element type: expected 0 to 12, found 99"):
        read_arrays(array_file({"a": numbered}))


# Symbols


def test_a_network_whose_batch_and_size_stay_open(tmp_path):
    w, b = floats(2, 3, 1, 1), floats(2)
    exe = ts.compile(network(tmp_path, CONVOLUTION, [4], {"w": w, "b": b}))
    for dims in ((1, 3, 4, 5), (2, 3, 2, 2)):
        x = floats(*dims)
        (y,) = exe.run({"data": x}).values()
        np.testing.assert_allclose(y, pointwise(x, w, b), 1e-5, 1e-6)
    assert list(exe.run({"data": x})) == ["a_output"]


def test_the_caller_may_give_both_files(tmp_path):
    w, b, x = floats(2, 3, 1, 1), floats(2), floats(1, 3, 2, 2)
    path = network(tmp_path, CONVOLUTION, [4], {"w": w, "b": b})
    other = tmp_path / "trained"
    (tmp_path / "net-0003.params").rename(other)
    (y,) = ts.compile((path, other)).run({"data": x}).values()
    np.testing.assert_allclose(y, pointwise(x, w, b), 1e-5, 1e-6)


def test_files_before_0_9(tmp_path):
    """Attributes are under `param`, statistics are no inputs, and an input is a pair."""
    nodes = [
        node("null", "data"),
        node("null", "bn_gamma"),
        node("null", "bn_beta"),
        node("BatchNorm", "bn", (0, 1, 2), "param", eps=0.1, fix_gamma="False"),
        node("null", "softmax_label"),
        node("SoftmaxOutput", "softmax", (3, 4), "param"),
    ]
    for n in nodes:
        n["inputs"] = [i[:2] for i in n["inputs"]]
        n["backward_source_id"] = -1
    path = tmp_path / "net-symbol.json"
    path.write_text(symbol(nodes, [[5, 0]], old=True))
    gamma, beta, mean = floats(3, 3)
    variance = np.float32([1, 2, 3])
    stored = {"arg:bn_gamma": gamma, "arg:bn_beta": beta, "aux:bn_moving_mean": mean}
    stored["aux:bn_moving_var"] = variance
    arrays = {k: dense(v, 0) for k, v in stored.items()}
    (tmp_path / "net-0000.params").write_bytes(array_file(arrays))
    x = floats(2, 3)
    exe = ts.compile(path, shapes={"data": (2, 3)})
    y = np.exp((x - mean) / np.sqrt(variance + 0.1) * gamma + beta)
    (found,) = exe.run({"data": x}).values()  # the label is no input
    np.testing.assert_allclose(found, y / y.sum(1, keepdims=True), 1e-5, 1e-6)


def test_the_type_of_an_input_is_that_of_its_weights(tmp_path):
    w = floats(2, 3, 1, 1).astype(np.float16)
    path = network(tmp_path, CONVOLUTION, [4], {"w": w, "b": w[:, 0, 0, 0]})
    assert inspect(path).inputs == {"data": "f16[?,3,?,?]"}


def test_inspection(tmp_path):
    nodes = [*CONVOLUTION, node("Strange", "s", (4,))]
    facts = inspect(network(tmp_path, nodes, [5], {"w": floats(2, 3, 1, 1), "b": floats(2)}))
    assert facts.format == "MXNet symbol, version 1.9.1"
    assert facts.operators == {"Convolution": 1, "Activation": 1, "Strange": 1}
    assert facts.unsupported == {"Strange"}
    assert facts.weight_bytes == 32


def test_all_unsupported_operators_are_listed(tmp_path):
    nodes = [node("null", "x"), node("Strange", "s", (0,)), node("Odd", "o", (0,))]
    with pytest.raises(UnsupportedError, match=r"Strange at 's'.*Odd at 'o'"):
        ts.compile(network(tmp_path, nodes, [1, 2]), shapes={"x": (2,)})
    with pytest.raises(OpenShapesError, match="'x': f32 of unknown rank"):
        ts.compile(network(tmp_path, nodes, [1]))


@pytest.mark.parametrize(
    "change",
    [
        {"heads": [[7, 0, 0]]},
        {"heads": 3},
        {"heads": [[float("inf"), 0, 0]]},
        {"nodes": [{"op": "null"}]},
        {"nodes": [node("abs", "x", (0,))]},
        {"attrs": {"mxnet_version": 3}},
    ],
)
def test_damaged_symbols_are_refused(tmp_path, change):
    whole = json.loads(symbol([node("null", "x"), node("abs", "y", (0,))], [1]))
    path = tmp_path / "net-symbol.json"
    path.write_text(json.dumps({**whole, **change, "mxnet_version": 1}))
    with pytest.raises(ModelError, match="not a sound MXNet symbol"):
        ts.compile(path)


# Operators


def test_codes_of_reshape(tmp_path):
    x = floats(2, 3, 4)
    for codes, dims in {
        (0, -1): (2, 12),
        (-2,): (2, 3, 4),
        (-3, 0): (6, 4),
        (-4, 1, 2, -2): (1, 2, 3, 4),
        (0, -4, -1, 3, 0): (2, 1, 3, 4),
    }.items():
        y = computed(tmp_path, "Reshape", x, shape=codes)
        np.testing.assert_array_equal(y, x.reshape(dims))
    y = computed(tmp_path, "Reshape", floats(8, 3, 4), shape=(-1, 0), reverse=True)
    assert y.shape == (24, 4)


def test_slices_with_entries_left_out(tmp_path):
    x = floats(4, 5)
    y = computed(tmp_path, "slice", x, begin="(None, 4)", end="(None, None)", step="(2, -1)")
    np.testing.assert_array_equal(y, x[::2, ::-1])


def test_pooling_conventions(tmp_path):
    x = floats(1, 1, 6, 6)
    settings = {"kernel": (3, 3), "stride": (2, 2), "pool_type": "max"}
    assert computed(tmp_path, "Pooling", x, **settings).shape == (1, 1, 2, 2)
    y = computed(tmp_path, "Pooling", x, pooling_convention="full", **settings)
    assert y.shape == (1, 1, 3, 3)
    np.testing.assert_array_equal(y[0, 0, 2, 2], x[0, 0, 4:, 4:].max())


def test_scalars_comparisons_and_reductions(tmp_path):
    x = floats(2, 3)
    y = computed(tmp_path, "_rminus_scalar", x, scalar=2.5)
    np.testing.assert_allclose(y, 2.5 - x, 1e-6)
    y = computed(tmp_path, "broadcast_greater", x, x[:1])
    np.testing.assert_array_equal(y, (x > x[:1]).astype(np.float32))
    y = computed(tmp_path, "sum", x)
    assert y.shape == (1,)  # there are no scalars
    y = computed(tmp_path, "mean", x, axis=0, exclude=True)
    np.testing.assert_allclose(y, x.mean(1), 1e-5)


@pytest.mark.parametrize(
    "op, wanted",
    [
        ("round", rounding_cases.AWAY),
        ("rint", rounding_cases.DOWN),
        ("_npi_rint", rounding_cases.DOWN),
        ("_npi_around", np.rint(rounding_cases.X)),
        ("fix", np.trunc(rounding_cases.X)),
    ],
)
def test_each_rule_of_rounding(tmp_path, op, wanted):
    np.testing.assert_array_equal(computed(tmp_path, op, rounding_cases.X), wanted)


def test_several_results(tmp_path):
    x = floats(2, 6)
    parts = computed(tmp_path, "SliceChannel", x, heads=(0, 2), num_outputs=3)
    np.testing.assert_array_equal(parts[0], x[:, :2])
    np.testing.assert_array_equal(parts[1], x[:, 4:])
    best, places = computed(tmp_path, "topk", x, heads=(0, 1), k=2, ret_typ="both")
    np.testing.assert_array_equal(best, np.sort(x)[:, :-3:-1])
    assert places.dtype == np.float32


def test_indices_out_of_range_are_clipped(tmp_path):
    x = floats(3, 2)
    y = computed(tmp_path, "take", x, np.float32([-4, 1, 9]))
    np.testing.assert_array_equal(y, x[[0, 1, 2]])
    y = computed(tmp_path, "take", x, np.float32([-1, 4]), mode="wrap")
    np.testing.assert_array_equal(y, x[[2, 1]])


def test_options_that_are_not_supported(tmp_path):
    with pytest.raises(UnsupportedError, match="layout NHWC"):
        computed(tmp_path, "Pooling", floats(1, 4, 4, 1), kernel=(2, 2), layout="NHWC")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_a_recurrent_layer(tmp_path):
    x, h, c = floats(3, 2, 4), floats(1, 2, 5), floats(1, 2, 5)
    w, r, b, d = floats(20, 4), floats(20, 5), floats(20), floats(20)
    flat = np.concatenate([v.reshape(-1) for v in (w, r, b, d)])
    found = computed(tmp_path, "RNN", x, flat, h, c, heads=(0, 1, 2), mode="lstm", state_size=5,
                     num_layers=1, state_outputs=True)  # fmt: skip
    state, cell, shown = h[0], c[0], []
    for step in x:
        i, f, g, o = np.split(step @ w.T + b + state @ r.T + d, 4, 1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(cell)
        shown.append(state)
    for y, wanted in zip(found, (np.stack(shown), state[None], cell[None]), strict=True):
        np.testing.assert_allclose(y, wanted, 1e-4, 1e-5)


def test_prior_boxes(tmp_path):
    y = computed(
        tmp_path, "_contrib_MultiBoxPrior", floats(1, 3, 1, 2), sizes=(0.4,), ratios=(1, 4)
    )
    assert y.shape == (1, 4, 4)
    np.testing.assert_allclose(y[0, 0], [0.15, 0.3, 0.35, 0.7], 1e-5)  # of a width of two cells
    np.testing.assert_allclose(y[0, 3], [0.55, 0.4, 0.95, 0.6], 1e-5)


def test_samples_of_a_regular_grid_are_the_image(tmp_path):
    x = floats(1, 2, 3, 4)
    theta = np.float32([[1, 0, 0, 0, 1, 0]])
    settings = {"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (3, 4)}
    y = computed(tmp_path, "SpatialTransformer", x, theta, **settings)
    np.testing.assert_allclose(y, x, 1e-4, 1e-5)


def test_maxima_of_regions(tmp_path):
    x = floats(1, 1, 4, 4)
    y = computed(tmp_path, "ROIPooling", x, np.float32([[0, 0, 0, 3, 3]]), pooled_size=(2, 2),
                 spatial_scale=1.0)  # fmt: skip
    np.testing.assert_array_equal(y[0, 0], x[0, 0].reshape(2, 2, 2, 2).max((1, 3)))


def test_corners_of_regions_round_away_from_zero(tmp_path):
    x = floats(1, 1, 4, 4)
    below = np.nextafter(np.float32(0.5), np.float32(0))
    rois = np.float32([[0, below, below, 0.5, 0.5], [0, -0.5, -0.5, 0.5, 0.5]])
    y = computed(tmp_path, "ROIPooling", x, rois, pooled_size=(2, 2), spatial_scale=1.0)
    np.testing.assert_array_equal(y[0, 0], x[0, 0, :2, :2])
    wide = [(0, 1), (0, 2)]  # the bins of -1 to 1, without what lies outside of the image
    parts = [[x[0, 0, a:b, c:d].max() for c, d in wide] for a, b in wide]
    np.testing.assert_array_equal(y[1, 0], parts)


def test_boxes_that_overlap_better_ones(tmp_path):
    boxes = [
        [0, 0.5, 0, 0, 2, 2],
        [0, 0.9, 0, 0, 2, 2.2],
        [1, 0.7, 0, 0, 2, 2],
        [0, 0.1, 5, 5, 6, 6],
    ]
    x = np.float32([boxes])
    settings = {"valid_thresh": 0.2, "id_index": 0}
    y = computed(tmp_path, "_contrib_box_nms", x, **settings)
    np.testing.assert_array_equal(y[0], [x[0, 1], x[0, 2], [-1] * 6, [-1] * 6])
    y = computed(tmp_path, "_contrib_box_nms", x, force_suppress=True, **settings)
    np.testing.assert_array_equal(y[0], [x[0, 1], *[[-1] * 6] * 3])


def test_detections(tmp_path):
    scores = np.float32([[[0.1, 0.2, 0.9], [0.6, 0.8, 0.0], [0.3, 0.0, 0.1]]])
    anchors = np.float32([[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.45], [0.5, 0.5, 1, 1]]])
    codes = np.zeros((1, 12), np.float32)
    y = computed(tmp_path, "_contrib_MultiBoxDetection", scores, codes, anchors, threshold=0.2)
    wanted = [[0, 0.8, *anchors[0, 1]], [-1, 0.6, *anchors[0, 0]], [-1] * 6]
    np.testing.assert_allclose(y[0], wanted, 1e-5, 1e-6)
