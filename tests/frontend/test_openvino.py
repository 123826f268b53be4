"""OpenVINO's models: files, constants, operators and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rounding_cases

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.openvino import Net

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((1, 3, 6, 5)).astype(np.float32)
W = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float16)


CONV = 'strides="1,1" dilations="1,1" pads_begin="1, 1" pads_end="1, 1" auto_pad="explicit"'


def convolution(folder: Path) -> Path:
    net = Net()
    w = net.add("Convert", 'destination_type="f32"', net.const(W))
    y = net.add("Convolution", CONV, net.x, w, names="y,z")
    return net.write(folder, y)


def convolved(x: np.ndarray = X) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", views, W.astype(np.float32))


def test_open_dimensions_and_names(tmp_path: Path) -> None:
    exe = ts.compile(convolution(tmp_path))
    for x in (X, RANDOM.standard_normal((2, 3, 4, 9)).astype(np.float32)):
        np.testing.assert_allclose(exe.run({"x": x})["y"], convolved(x), rtol=1e-4, atol=1e-4)


def test_both_files_as_a_pair_and_facts(tmp_path: Path) -> None:
    path = convolution(tmp_path)
    facts = inspect(path)
    assert facts.format == "OpenVINO IR, version 11"
    assert facts.operators == {"Convolution": 1, "Convert": 1}
    assert facts.weight_bytes == W.nbytes
    weights = (tmp_path / "net.bin").rename(tmp_path / "weights")
    found = evaluate(load((path, weights)), [X])["y"]
    np.testing.assert_allclose(found, convolved(), rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="expected a file of weights"):
        load(path)


@pytest.mark.parametrize("kind, low", [("i4", -8), ("u4", 0)])
def test_weights_of_four_bits(tmp_path: Path, kind: str, low: int) -> None:
    numbers = RANDOM.integers(low, low + 16, (3, 5))
    nibbles = np.append(numbers.reshape(-1) & 15, 0).reshape(-1, 2)
    raw = (nibbles[:, 0] | nibbles[:, 1] << 4).astype(np.uint8).tobytes()
    net = Net("1,3,6,5")
    w = net.add("Convert", 'destination_type="f32"', net.const(numbers, kind, raw))
    y = net.add("MatMul", 'transpose_a="false" transpose_b="true"', net.x, w)
    found = evaluate(load(net.write(tmp_path, y)), [X])["matmul"]
    np.testing.assert_allclose(found, X @ numbers.T.astype(np.float32), rtol=1e-4, atol=1e-4)


def run(net: Net, folder: Path, result: int) -> np.ndarray:
    (found,) = evaluate(load(net.write(folder, result)), [X]).values()
    return found


def test_slices_with_masks(tmp_path: Path) -> None:
    net = Net("1,3,6,5")
    lists = [net.const(np.array(v)) for v in ([0, 1, -1, 9], [0, 3, 0, 9], [1, 1, 1, 1])]
    masks = 'begin_mask="1,0,0,1" end_mask="1,0,0,1" new_axis_mask="0" shrink_axis_mask="0,0,1,0"'
    y = net.add("StridedSlice", masks, net.x, *lists)
    np.testing.assert_array_equal(run(net, tmp_path, y), X[:, 1:3, -1])


def test_gathered_slices_of_a_batch(tmp_path: Path) -> None:
    net = Net("1,3,6,5")
    places = np.array([[0, -1]])
    axis = net.const(np.array(2))
    y = net.add("Gather", 'batch_dims="1"', net.x, net.const(places), axis)
    np.testing.assert_array_equal(run(net, tmp_path, y), X[:, :, [0, 5]])


def test_levels(tmp_path: Path) -> None:
    net = Net("1,3,6,5")
    ends = [net.const(np.float32(v)) for v in (-1, 1, 0, 255)]
    y = net.add("FakeQuantize", 'levels="256"', net.x, *ends)
    wanted = np.rint((X.clip(-1, 1) + 1) / 2 * 255)
    np.testing.assert_allclose(run(net, tmp_path, y), wanted, atol=1e-3)


@pytest.mark.parametrize(
    "mode, wanted",
    [("half_to_even", np.rint(rounding_cases.X)), ("half_away_from_zero", rounding_cases.AWAY)],
)
def test_both_rules_of_rounding(tmp_path: Path, mode: str, wanted: np.ndarray) -> None:
    net = Net(str(rounding_cases.X.size))
    y = net.add("Round", f'mode="{mode}"', net.x)
    graph = load(net.write(tmp_path, y))
    (found,) = evaluate(graph, [rounding_cases.X]).values()
    np.testing.assert_array_equal(found, wanted)


def test_shapes_are_computed_on_the_way(tmp_path: Path) -> None:
    net = Net("?,3,?,?")
    shape = net.add("ShapeOf", 'output_type="i64"', net.x)
    zero = net.const(np.array(0))
    first = net.add("Gather", 'batch_dims="0"', shape, net.const(np.array([0])), zero)
    wanted = net.add("Concat", 'axis="0"', first, net.const(np.array([-1])))
    y = net.add("Reshape", 'special_zero="false"', net.x, wanted, names="flat")
    exe = ts.compile(net.write(tmp_path, y))
    for n in (1, 4):
        x = RANDOM.standard_normal((n, 3, 2, 2)).astype(np.float32)
        np.testing.assert_array_equal(exe.run({"x": x})["flat"], x.reshape(n, -1))


def test_unsupported_operators_are_listed_at_once(tmp_path: Path) -> None:
    net = Net()
    y = net.add("Loop", "", net.add("Magic", "", net.x))
    with pytest.raises(UnsupportedError, match="2 nodes of 2 operators cannot be compiled: Magic"):
        load(net.write(tmp_path, y))


@pytest.mark.parametrize(
    "change, message",
    [
        (("<net name", '<!DOCTYPE net [<!ENTITY a "b">]><net name'), "ONNX|declarations"),
        (("<layers>", '<layers><!ENTITY a "b">'), "without declarations of types and entities"),
        (("</net>", ""), "damaged XML"),
        (('offset="0"', 'offset="1000"'), "expected 108 numbers of 16 bits in 216 bytes from 1000"),
        (('offset="0"', 'offset="-2"'), "expected 108 numbers of 16 bits"),
        (('offset="0"', 'offset="x"'), "expected shape, offset and size"),
        (('shape="4,3,3,3"', 'shape="4,3,3,999999999"'), "numbers of 16 bits in 216 bytes"),
        (('element_type="f16"', 'element_type="f1"'), "element type 'f1' is not supported"),
        (('from-layer="0"', 'from-layer="9"'), "'9:0' is used, which nothing before defines"),
        (
            ('type="Result"', 'type="Result" x=""><input/></layer><layer id="9" type="Result"'),
            "Result .*: expected an input, found 0",
        ),
        (('strides="1,1"', 'strides="1,0"'), "strides: expected 2 numbers from 1"),
    ],
)
def test_damaged_files(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = convolution(tmp_path)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(ModelError, match=message):
        evaluate(load(path), [X])
