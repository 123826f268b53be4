"""Programs written with Relay's builder compute what their text says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilesmith.compat.tvm as tvm
from tilesmith.compat.tvm import relay
from tilesmith.compat.tvm.contrib import graph_executor
from tilesmith.compat.tvm.relay import testing
from tilesmith.support.errors import ModelError, UsageError

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


def resnet18(data: np.ndarray, params: dict[str, np.ndarray]) -> torch.Tensor:
    """ResNet-18 with normalisation first, in PyTorch."""
    weights = {k: torch.from_numpy(v) for k, v in params.items()}
    functional = torch.nn.functional

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        kinds = ("moving_mean", "moving_var", "gamma", "beta")
        mean, variance, scale, shift = (weights.get(f"{name}_{kind}") for kind in kinds)
        scale = None if name == "bn_data" else scale  # TVM's network does not scale its input
        return functional.batch_norm(x, mean, variance, scale, shift, eps=2e-5)

    def conv(x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        w = weights[f"{name}_weight"]
        return functional.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)

    x = norm(conv(norm(torch.from_numpy(data), "bn_data"), "conv0", 2), "bn0").relu()
    x = functional.max_pool2d(x, 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for unit in (1, 2):
            name, stride = f"stage{stage}_unit{unit}", 2 if stage > 1 and unit == 1 else 1
            act = norm(x, f"{name}_bn1").relu()
            out = norm(conv(act, f"{name}_conv1", stride), f"{name}_bn2").relu()
            x = conv(act, f"{name}_sc", stride) if f"{name}_sc_weight" in weights else x
            x = conv(out, f"{name}_conv2") + x
    x = norm(x, "bn1").relu().mean((2, 3)) @ weights["fc1_weight"].T + weights["fc1_bias"]
    return torch.softmax(x, 1)


def test_inputs_keep_their_names_and_constants_get_others():
    x, y = relay.var("constant0", shape=(4,)), relay.var("constant0_1", shape=(4,))
    table = relay.const(np.float32([1, 2, 3, 4]))
    a, b = np.float32([[1, 0, 2, 0], [5, 6, 7, 8]])
    (found,) = run(relay.Function([x, y], x * table + y), a, b)
    np.testing.assert_array_equal(found, a * np.float32([1, 2, 3, 4]) + b)


def test_two_inputs_of_one_name_are_refused():
    out = relay.var("w", shape=(4,)) + relay.var("w", shape=(4,))
    with pytest.raises(UsageError, match=r"found two relay.var\('w'\)"):
        tvm.IRModule.from_expr(out)
    branch = relay.If(relay.var("w", shape=(), dtype="bool"), relay.var("w", shape=(4,)), out)
    with pytest.raises(UsageError, match=r"found two relay.var\('w'\)"):
        tvm.IRModule.from_expr(branch)


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
def test_attributes_of_python_and_of_numpy_are_one_text(kind):
    x = relay.var("x", shape=(4,))
    text = str(relay.Function([x], relay.clip(x, kind(0.5), np.int64(6))))
    assert "clip(%x, a_min=0.5f64, a_max=6)" in text


def test_arguments_without_names_are_attributes_and_operands_in_tvms_order():
    x, places = relay.var("x", shape=(2, 3)), relay.var("i", shape=(2, 2), dtype="int64")
    a, i = np.float32([[3, 1, 2], [4, 6, 5]]), np.int64([[0, 2], [1, 1]])
    out = relay.Tuple([relay.cumsum(x, 1), relay.argsort(x, 0), relay.gather(x, 1, places),
                       relay.nn.l2_normalize(x, 1e-5, [1]),
                       relay.nn.pad(x, ((0, 0), (1, 0)), 7.0)])  # fmt: skip
    sums, order, gathered, normal, padded = run(relay.Function([x, places], out), a, i)
    np.testing.assert_array_equal(sums, np.cumsum(a, 1))
    np.testing.assert_array_equal(order, np.argsort(a, 0))
    np.testing.assert_array_equal(gathered, np.take_along_axis(a, i, 1))
    np.testing.assert_allclose(normal, a / np.linalg.norm(a, axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(padded, np.pad(a, ((0, 0), (1, 0)), constant_values=7))


@pytest.mark.parametrize("make", [lambda x: relay.exp(x, 3), lambda x: relay.add(x, 3.0, 4)])
def test_an_operand_that_an_operator_does_not_read_is_refused(make):
    x = relay.var("x", shape=(1, 8))
    with pytest.raises(ModelError, match="expected no argument number"):
        run(relay.Function([x], make(x)), np.zeros((1, 8), np.float32))


def test_workloads_and_passes_of_the_tutorials():
    mod, params = testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
    values = {k: v.numpy() for k, v in params.items()}
    for name, value in values.items():  # statistics that a new network does not have
        if name.endswith("mean"):
            value[:] = RANDOM.uniform(-0.5, 0.5, value.shape)
        elif name.endswith(("gamma", "var")):
            value[:] = RANDOM.uniform(0.5, 1.5, value.shape)
    params = {k: tvm.nd.array(v) for k, v in values.items()}
    mod = tvm.transform.Sequential([relay.transform.FoldConstant(), relay.transform.FuseOps()])(mod)
    lib = relay.build(mod, target="llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    data = RANDOM.standard_normal((1, 3, 32, 32)).astype(np.float32)
    module.set_input("data", data)
    module.run()
    found = module.get_output(0).numpy()
    assert found.shape == (1, 1000)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(found, resnet18(data, values), rtol=1e-4, atol=1e-7)
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
        (lambda x: relay.exp(x, "float32"), "exp: .* give attributes by name"),
        (lambda x: relay.nn.relu(None), "expected a tensor or a number as operand, found None"),
        (lambda x: relay.var("y", shape=3), "shape: expected a list or None, found 3"),
        (lambda x: relay.var("y", 3), "type_annotation: expected a TensorType or None, found 3"),
        (lambda x: relay.TensorType(3), "shape: expected a list, found 3"),
        (lambda x: relay.const("a"), "expected a number or an array"),
        (lambda x: relay.const(2**40), "expected integers of int32"),
        (lambda x: [*relay.split(x, 2.5)], "indices_or_sections of integers, found 2.5"),
        (lambda x: relay.split(x)[0], "split: expected indices_or_sections"),
        (lambda x: str(relay.Function([x], relay.clip(x, 0, np.inf))), "finite numbers.*inf"),
        (lambda x: str(relay.Function([x], relay.clip(x, float("nan"), 1))), "finite numbers.*nan"),
        (lambda x: testing.resnet.get_workload(num_layers=152), "num_layers of 18, 34, 50, 101"),
        (lambda x: relay.transform.FuseOps(nonsense=1), r"\(fuse_opt_level\), found nonsense=1"),
        (lambda x: relay.transform.FuseOps(2, fuse_opt_level=2), "found 2, fuse_opt_level=2"),
        (lambda x: relay.transform.InferType(3), r"the arguments \(\), found 3"),
        (lambda x: relay.transform.ToMixedPrecision(), "tilesmith.compile"),
    ],
)
def test_wrong_programs_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make(relay.var("x", shape=(1, 8)))


def test_a_name_that_is_no_pass_is_no_attribute():
    assert not hasattr(relay.transform, "UnheardOf")
