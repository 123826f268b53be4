"""Programs written with Relay's builder compute what their text says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilesmith.compat.tvm as tvm
from tilesmith.compat.tvm import relay
from tilesmith.compat.tvm.contrib import graph_executor
from tilesmith.compat.tvm.relay import testing
from tilesmith.support.errors import UsageError

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 8, 8)).astype(np.float32)


def run(function: relay.Function, *arrays: np.ndarray, **params: np.ndarray) -> list[np.ndarray]:
    lib = relay.build(tvm.IRModule.from_expr(function), target="llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    for p, a in zip(function.params, arrays, strict=False):
        module.set_input(p.name_hint, a)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def test_a_network_of_layers_with_parameters():
    data = relay.var("data", shape=X.shape, dtype="float32")
    weight = relay.var("weight", shape=(4, 3, 3, 3))
    bias = relay.var("bias", shape=(4,))
    out = relay.nn.conv2d(data, weight, (2, 2), (1, 1), channels=4, kernel_size=(3, 3))
    out = relay.nn.relu(relay.nn.bias_add(out, bias))
    out = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(out)))
    w, b = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32), np.float32([1, 2, 3, 4])
    function = relay.Function(relay.analysis.free_vars(out), out)
    assert [p.name_hint for p in function.params] == ["data", "weight", "bias"]
    (found,) = run(function, X, weight=w, bias=b)
    y = torch.nn.functional.conv2d(*map(torch.from_numpy, (X, w, b)), stride=2, padding=1)
    wanted = torch.softmax(y.relu().mean((2, 3)), 1).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_operators_of_python_constants_tuples_and_branches():
    x, flag = relay.var("x", shape=(4, 6)), relay.var("flag", shape=(), dtype="bool")
    first, second = relay.split(x, 2, axis=1)
    both = relay.concatenate([first * 2.0, 1.0 - second], 1)
    table = relay.const(np.arange(6, dtype=np.float32))
    chosen = relay.If(flag, both + table, relay.nn.relu(both))
    out = relay.Tuple([chosen, relay.sum(x, 1, True), relay.transpose(x).astype("float64")])
    a = RANDOM.standard_normal((4, 6)).astype(np.float32)
    joined = np.hstack([a[:, :3] * 2, 1 - a[:, 3:]])
    for value, wanted in ((True, joined + np.arange(6)), (False, np.maximum(joined, 0))):
        found = run(relay.Function([x, flag], out), a, np.array(value))
        np.testing.assert_allclose(found[0], wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[1], a.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[2], a.T.astype(np.float64))


def test_the_text_of_a_function():
    x = relay.var("x", shape=(1, 8))
    function = relay.Function([x], relay.clip(relay.nn.relu(x) + x, 0.5, 6.0))
    assert str(function) == (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(1, 8), float32]) {\n"
        "  %1 = nn.relu(%x);\n"
        "  %2 = add(%1, %x);\n"
        "  clip(%2, a_min=0.5f64, a_max=6.0f64)\n"
        "}\n"
    )


def test_workloads_and_passes_of_the_tutorials():
    mod, params = testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
    mod = tvm.transform.Sequential([relay.transform.FoldConstant(), relay.transform.FuseOps()])(mod)
    lib = relay.build(mod, target="llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("data", RANDOM.standard_normal((1, 3, 32, 32)).astype(np.float32))
    module.run()
    found = module.get_output(0).numpy()
    assert found.shape == (1, 1000)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-5)
    mod, params = testing.mlp.get_workload(batch_size=2)
    data = RANDOM.standard_normal((2, 1, 28, 28)).astype(np.float32)
    value = data.reshape(2, -1)
    for i in (1, 2, 3):
        value = np.maximum(value, 0) if i > 1 else value
        value = value @ params[f"fc{i}_weight"].numpy().T + params[f"fc{i}_bias"].numpy()
    wanted = torch.softmax(torch.from_numpy(value), 1).numpy()
    run_ = relay.create_executor("graph", mod=mod, target="llvm", params=params).evaluate()
    np.testing.assert_allclose(run_(data).numpy(), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda x: relay.nn.unheard_of(x), r"relay.nn.unheard_of: this operator is not supported"),
        (lambda x: relay.nn.relu(x)[0], "expected a number of a result"),
        (lambda x: [*relay.nn.relu(x)], "expected a call with several results"),
        (lambda x: relay.clip(x, 0, 1, 2), "give attributes by name"),
        (lambda x: relay.var("y", shape=(1,), dtype="float7"), "expected an element type of TVM"),
        (lambda x: relay.transform.ToMixedPrecision(), "tilesmith.compile"),
    ],
)
def test_wrong_programs_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make(relay.var("x", shape=(1, 8)))
