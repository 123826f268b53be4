"""Other weights for compiled models, and copies of these."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.driver import kernels_made
from tilesmith.runtime.weights import read_safetensors

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def network(seed: int) -> nn.Sequential:
    """With normalisations that are folded and products whose weights are packed."""
    torch.manual_seed(seed)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    ).eval()
    for tensor in module.state_dict().values():
        if tensor.is_floating_point() and tensor.ndim == 1:
            tensor.uniform_(0.5, 1.5)
    return module


X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def agrees(exe, module):
    torch.testing.assert_close(exe(X), module(X).detach(), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def compiled():
    return ts.compile(network(0), (X,), threads=1)


def test_other_weights_need_no_code(compiled, monkeypatch, tmp_path):
    exe, other = copy.deepcopy(compiled), network(1)
    made = kernels_made()
    exe.load_state_dict(other.state_dict())
    agrees(exe, other)
    agrees(compiled, network(0))
    constants = exe.program.constants
    exe.load_weights(other.state_dict())
    assert exe.program.constants is constants  # nothing was packed again
    with torch.no_grad():
        other[4].weight.mul_(2)  # in place: a compiled module has packed the weights
    exe.load_weights({"4.weight": other[4].weight})
    agrees(exe, other)
    assert kernels_made() == made
    assert exe.state_dict()["4.weight"] is other[4].weight
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {k: v.numpy() for k, v in network(2).state_dict().items()})
    exe.load_weights(path)
    agrees(exe, network(2))


def test_contents_that_change_the_program(compiled):
    """A scale of ones and a bias of zeros are left out of the program."""
    plain = network(0)
    plain[1].reset_parameters()
    plain[1].reset_running_stats()
    exe = ts.compile(plain, (X,), threads=1)
    agrees(exe, plain)
    exe.load_weights(network(1).state_dict())
    agrees(exe, network(1))
    exe.load_weights(plain.state_dict())
    agrees(exe, plain)


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    module, x = Tied(), torch.ones(1, 8)
    exe = ts.compile(module, (x,), threads=1)
    size = exe.program.constants.nbytes
    new = np.eye(8, dtype=np.float32) * 2
    for weights in ({"first.weight": new}, {"first.weight": new, "second.weight": new.copy()}):
        exe.load_weights(weights)
        assert exe.program.constants.nbytes == size
        assert exe(x).tolist() == [[4.0] * 8]


def test_onnx_models_of_open_sizes():
    def model(scale: float) -> onnx.ModelProto:
        weight = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8) * scale
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 8]) for n in "xy")
        graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
        return helper.make_model(graph)

    exe = ts.compile(model(1), threads=1, specialise={"n": 4})
    new = numpy_helper.to_array(model(3).graph.initializer[0])
    twin = copy.deepcopy(exe)
    exe.load_weights({"w": new})
    for rows in (3, 4):
        x = np.ones((rows, 8), np.float32)
        for made, factor in ((exe, 1), (twin, 1 / 3)):
            np.testing.assert_allclose(made(x), x @ new * factor, rtol=1e-5)
        twin.load_weights({"w": new * 2})
        np.testing.assert_allclose(twin(x), x @ new * 2, rtol=1e-5)
        twin.load_weights({"w": new / 3})


def test_what_does_not_fit_is_listed(compiled):
    wrong = {
        "0.weigt": np.ones(3),
        "0.bias": np.ones(3, np.float32),
        "1.weight": np.ones(8),
        "4.bias": np.ones(10, np.float32),
    }
    exe = copy.deepcopy(compiled)
    with pytest.raises(ts.ModelError) as raised:
        exe.load_weights(wrong)
    text = str(raised.value)
    assert "'0.bias': expected f32[8], found float32 [3]" in text
    assert "'1.weight': expected f32[8], found float64 [8]" in text
    assert "no weight is called '0.weigt' (did you mean '0.weight'?)" in text
    assert "4.bias" not in text
    agrees(exe, network(0))
    with pytest.raises(ts.ModelError, match=r"the state has no '0\.bias'"):
        exe.load_state_dict({"0.weight": np.ones(3)})


# Copies


def test_pickled_modules(compiled, tmp_path):
    made = kernels_made()
    again = pickle.loads(pickle.dumps(compiled))
    agrees(again, network(0))
    assert kernels_made() == made
    with pytest.raises(ts.UsageError, match="compile the model again"):
        again.load_weights({})
    plain = pickle.loads(pickle.dumps(compiled.in_order()))
    np.testing.assert_array_equal(plain(X.numpy()), compiled(X.numpy()))
    assert plain.recipe is None


def test_copies_write_to_their_own_buffers():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen.add_(x)
            return {"seen": self.seen * 1, "rest": (x, None)}

    exe = ts.compile(Counts(), (torch.ones(3),), threads=1)
    exe(torch.ones(3))
    for twin in (copy.deepcopy(exe), pickle.loads(pickle.dumps(exe))):
        assert twin(torch.ones(3))["seen"].tolist() == [2, 2, 2]
        assert twin.state_dict()["seen"].tolist() == [2, 2, 2]
    assert exe.state_dict()["seen"].tolist() == [1, 1, 1]
    exe.load_weights({"seen": np.full(3, 5, np.float32)})
    assert exe(torch.ones(3))["seen"].tolist() == [6, 6, 6]


# Files of weights


def write_safetensors(path, arrays, change=lambda header: None):
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, a in arrays.items():
        kind = {"f": "F", "i": "I"}[a.dtype.kind] + str(a.dtype.itemsize * 8)
        place = [len(data), len(data) + a.nbytes]
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": place}
        data += np.ascontiguousarray(a).tobytes()
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["w"].update(data_offsets=[0, 4000]),
        lambda h: h["w"].update(data_offsets=[-8, 16]),
        lambda h: h["w"].update(data_offsets=[0]),
        lambda h: h["w"].update(shape=[2, -3]),
        lambda h: h["w"].update(shape=[1 << 62, 1 << 62]),
        lambda h: h["w"].update(shape="23"),
        lambda h: h["w"].update(dtype="F31"),
        lambda h: h.update(w=3),
        lambda h: h["w"].pop("dtype"),
    ],
)
def test_damaged_files_of_weights(tmp_path, change):
    path = tmp_path / "w.safetensors"
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.arange(3)}
    write_safetensors(path, arrays)
    for name, found in read_safetensors(path).items():
        np.testing.assert_array_equal(found, arrays[name])
    write_safetensors(path, arrays, change)
    with pytest.raises(ts.ModelError, match=r"not a sound \.safetensors file"):
        read_safetensors(path)


def test_files_that_hold_no_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    for content in (b"hello", b"\xff" * 40, (1 << 40).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(ts.ModelError, match=r"expected a \.safetensors file, found one whose"):
            read_safetensors(path)
