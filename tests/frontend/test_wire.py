"""Large weights stay in the model file, and whatever looks unusual is left to protobuf."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith.frontend.load import load
from tilesmith.frontend.onnx.wire import LARGE, split
from tilesmith.support.errors import ModelError

RNG = np.random.default_rng(0)
WEIGHTS = {
    "small": RNG.standard_normal(3).astype(np.float32),
    "large": RNG.standard_normal((40, 50)).astype(np.float32),
    "flags": RNG.integers(0, 2, (80, 80)).astype(bool),
    "wide": RNG.integers(0, 9, (2000,)),
}


def model(**weights: np.ndarray) -> onnx.ModelProto:
    """A model whose outputs are its weights."""
    tensors = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    nodes = [helper.make_node("Identity", [t.name], [f"out_{t.name}"]) for t in tensors]
    outputs = [
        helper.make_tensor_value_info(f"out_{t.name}", t.data_type, list(t.dims)) for t in tensors
    ]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors, doc_string="last")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_splitting_leaves_only_large_raw_data_out():
    content = model(**WEIGHTS).SerializeToString()
    found = split(content)
    assert sorted(found.weights) == [1, 2, 3]
    for i, (at, size) in found.weights.items():
        array = list(WEIGHTS.values())[i]
        assert content[at : at + size] == array.tobytes()
    rest = onnx.ModelProto.FromString(bytes(found.message))
    expected = model(**WEIGHTS)
    for i in found.weights:
        expected.graph.initializer[i].ClearField("raw_data")
    assert rest == expected


@pytest.mark.parametrize("given", ["path", "bytes", "bytearray"])
def test_weights_read_back(tmp_path, given):
    proto = model(**WEIGHTS)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    content = path.read_bytes()
    graph = load({"path": path, "bytes": content, "bytearray": bytearray(content)}[given])
    named = zip(graph.output_names, graph.outputs, strict=True)
    found = {name.removeprefix("out_"): graph.constant[v].data.array for name, v in named}
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_weights_of_a_file_are_not_copied(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(large=WEIGHTS["large"]), path)
    (constant,) = load(path).constants
    assert not constant.data.array.flags.owndata
    assert not constant.data.array.flags.writeable


@pytest.mark.parametrize("cut", [1, 100, 4000, 8000])
def test_truncated_files_are_left_to_protobuf(cut):
    content = model(**WEIGHTS).SerializeToString()[:-cut]
    assert split(content).message is content
    with pytest.raises(ModelError, match="do not decode"):
        load(content)


def test_repeated_fields_are_left_to_protobuf():
    twice = model(large=WEIGHTS["large"])
    content = twice.SerializeToString() * 2  # merges: two graphs become one
    assert split(content).weights == {}
    raw = TensorProto(data_type=1, dims=[40, 50], name="w", raw_data=bytes(8000))
    tensor = raw.SerializeToString() + TensorProto(raw_data=b"x" * LARGE).SerializeToString()
    graph = b"\x2a" + _size(len(tensor)) + tensor
    assert split(b"\x3a" + _size(len(graph)) + graph).weights == {}


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\x3a\x00\x3b", b"\x00", b"\x3a\x81"])
def test_nonsense_is_left_to_protobuf(content):
    assert split(content).message is content


def test_a_size_that_disagrees_with_the_shape_is_refused():
    proto = model(large=WEIGHTS["large"])
    proto.graph.initializer[0].raw_data += b"\0" * 4
    with pytest.raises(ModelError, match="found 8004"):
        load(proto.SerializeToString())


def _size(n: int) -> bytes:
    return bytes([n & 0x7F | 0x80, n >> 7])
