"""Scripts that compile models with TVM's Relay run with one import changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith.compat.tvm as tvm
from tilesmith.compat.tvm import relay
from tilesmith.compat.tvm.contrib import graph_executor, utils
from tilesmith.compat.tvm.tvmc import main
from tilesmith.support.errors import UsageError


def _model() -> onnx.ModelProto:
    """y = relu(x @ w), with w = 1 and a batch that is open."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], np.ones(12, np.float32))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x.sum(1, keepdims=True), 0).repeat(3, 1)


def test_an_onnx_model_in_a_graph_module():
    mod, params = relay.frontend.from_onnx(_model(), {"x": (2, 4)})
    target = tvm.target.Target("llvm", host="llvm")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.device(str(target), 0)))
    x = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
    module.set_input("x", tvm.nd.array(x))
    module.run()
    assert module.get_output(0).numpy().tolist() == _expected(x).tolist()
    assert (module.get_num_inputs(), module.get_num_outputs()) == (1, 1)
    assert module.get_input_index("x") == 0
    assert module.benchmark(tvm.cpu(), repeat=2, number=1).mean > 0
    assert module.module.time_evaluator("run", tvm.cpu(), number=1)().mean > 0


def test_a_library_is_written_and_loaded():
    folder = utils.tempdir()
    path = folder.relpath("model.tsm")
    lib = relay.build(relay.frontend.from_onnx(_model(), {"batch": 1})[0], "llvm")
    lib.export_library(path)
    graph, loaded, params = tvm.runtime.load_module(path)
    module = graph_executor.create(graph, loaded, tvm.cpu())
    module.set_input(**params)
    module.run(x=np.ones((1, 4), np.float32))
    assert module.get_output(0).tolist() == [[4, 4, 4]]
    folder.remove()
    assert not Path(path).exists()


def test_a_scripted_module_of_pytorch():
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
    scripted = torch.jit.trace(network, torch.zeros(2, 4)).eval()
    mod, params = relay.frontend.from_pytorch(scripted, [("input0", (2, 4))])
    x = np.random.default_rng(0).random((2, 4), np.float32)
    run = relay.create_executor("graph", mod, tvm.cpu(0), "llvm", params).evaluate()
    with torch.no_grad():
        tvm.testing.assert_allclose(run(x).numpy(), network(torch.from_numpy(x)), rtol=1e-5)


def test_relays_text_round_trips():
    mod, _ = relay.frontend.from_onnx(_model(), {"x": (2, 4)})
    text = mod.astext()
    assert "nn.relu" in text
    x = np.ones((2, 4), np.float32)
    assert relay.create_executor(mod=relay.parse(text)).evaluate()(x).tolist() == [[4] * 3] * 2


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model, compiled, found = (str(tmp_path / n) for n in ("m.onnx", "m.tsm", "y.npz"))
    onnx.save(_model(), model)
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    shape = "x:[2, 4]"
    words = ["compile", "--target", "llvm -mcpu=x86-64-v2", "--input-shapes", shape, "-o", compiled]
    assert main([*words, model]) == 0
    assert "--target x86-64-v2 --shape x=2,4" in capsys.readouterr().err
    assert main(["run", "-i", str(tmp_path / "x.npz"), "-o", found, compiled]) == 0
    assert np.load(found)["y"].tolist() == [[4] * 3] * 2
    assert main(["compile", "--input-shapes", "x=2", model]) == UsageError.exit_code
    assert "expected NAME:[1,3,224,224]" in capsys.readouterr().err


def test_wrong_names_are_refused():
    module = graph_executor.GraphModule(
        relay.build(relay.frontend.from_onnx(_model())[0]).executable
    )
    with pytest.raises(UsageError, match="one of the inputs x, found 'z'"):
        module.set_input("z", 1)
    with pytest.raises(UsageError, match="run the model first"):
        module.get_output(0)
    with pytest.raises(UsageError, match=r"relay\.dyn: this operator is not supported"):
        _ = relay.dyn
