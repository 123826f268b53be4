"""TVM's `topi`: operators on tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilesmith.compat.tvm as tvm
from tilesmith.compat.tvm import te, topi
from tilesmith.ops.base import OPS
from tilesmith.support.errors import ModelError, UsageError


def _run(function: Any, *arrays: np.ndarray) -> np.ndarray:
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    result = function(*inputs)
    f = tvm.build(topi.generic.schedule_injective(result), [*inputs, result])
    out = tvm.nd.empty(result.shape, result.dtype)
    f(*arrays, out)
    return out.numpy()


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", ["exp", "tanh", "floor", "abs", "negative", "sign"])
def test_functions_of_one_tensor(name: str):
    x = _random(3, 5)
    found = _run(getattr(topi, name), x)
    np.testing.assert_allclose(found, getattr(np, name)(x), rtol=1e-5, atol=1e-6)


def test_a_formula_with_numbers_and_broadcasting():
    def formula(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        total = topi.elemwise_sum([topi.broadcast_add(a, b), topi.broadcast_mul(a, b)])
        return topi.sum(topi.divide(total, 2.0), axis=(1, 2))

    x, y = _random(4, 3, 5), _random(3, 5)
    tvm.testing.assert_allclose(
        _run(formula, x, y), ((x + y + x * y) / 2).sum((1, 2)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (1, True), ((0, 2), False)])
def test_reductions(axis: Any, keepdims: bool):
    x = _random(2, 3, 4)
    found = _run(lambda t: topi.max(t, axis=axis, keepdims=keepdims), x)
    np.testing.assert_array_equal(found, x.max(axis=axis, keepdims=keepdims))


def test_places_of_maxima_are_int32():
    x = _random(4, 9)
    found = _run(lambda t: topi.argmax(t, axis=1), x)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, x.argmax(1))


def test_operators_of_relay_are_functions_with_tvms_arguments():
    x = _random(2, 3)
    assert _run(lambda t: topi.repeat(t, 2, 1), x).tolist() == x.repeat(2, 1).tolist()
    assert _run(lambda t: topi.flip(t, axis=1), x).tolist() == x[:, ::-1].tolist()
    assert _run(lambda t: topi.cast(t, te.placeholder((1,), "int8").dtype), x).dtype == np.int8
    found = _run(lambda t: topi.where(topi.greater(t, 0.0), t, topi.multiply(t, 1.0)), x)
    assert found.tolist() == x.tolist()
    found = _run(lambda t: topi.nn.pad(t, (1, 0), (0, 2), 7.0), x)
    assert found.tolist() == np.pad(x, ((1, 0), (0, 2)), constant_values=7).tolist()


def test_softmax_has_several_stages():
    x = _random(4, 9)
    e = np.exp(x - x.max(1, keepdims=True))
    tvm.testing.assert_allclose(_run(topi.nn.softmax, x), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_operators_with_constants_inside():
    x = _random(4, 9)
    found = _run(lambda t: topi.apply(OPS["gelu"](), t), x)
    erf = np.vectorize(math.erf)(x / math.sqrt(2))
    tvm.testing.assert_allclose(found, x * (1 + erf) / 2, rtol=1e-4, atol=1e-6)


def test_moves():
    x = _random(2, 3, 4)
    assert _run(lambda t: topi.transpose(t, (1, 0, 2)), x).tolist() == x.transpose(1, 0, 2).tolist()
    assert _run(lambda t: topi.reshape(t, (6, 4)), x).tolist() == x.reshape(6, 4).tolist()
    found = _run(lambda t: topi.strided_slice(t, [0, 1], [2, 3], [1, 1]), x)
    assert found.tolist() == x[:, 1:3].tolist()
    assert _run(lambda t: topi.concatenate([t, t], 1), x).shape == (2, 6, 4)
    assert _run(lambda t: topi.expand_dims(t, 1), x).shape == (2, 1, 3, 4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions_and_pools(layout: str):
    torch = pytest.importorskip("torch")
    x, w = _random(1, 3, 8, 8), _random(4, 3, 3, 3)
    expected = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=2, padding=1).numpy()
    if layout == "NHWC":
        x, w = (np.ascontiguousarray(v) for v in (x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)))
        expected = expected.transpose(0, 2, 3, 1)
    found = _run(lambda a, b: topi.nn.conv2d(a, b, 2, 1, 1, layout), x, w)
    tvm.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    if layout == "NCHW":
        pooled = _run(lambda t: topi.nn.pool2d(t, [2, 2], [2, 2], [1, 1], [0] * 4, "max"), x)
        assert pooled.tolist() == x.reshape(1, 3, 4, 2, 4, 2).max((3, 5)).tolist()
        rows = _random(3, 2, 3, 3)
        deep = _run(lambda a, b: topi.nn.depthwise_conv2d_nchw(a, b, 1, 1), x, rows)
        filters = torch.from_numpy(rows.reshape(6, 1, 3, 3))
        grouped = torch.conv2d(torch.from_numpy(x), filters, padding=1, groups=3)
        tvm.testing.assert_allclose(deep, grouped.numpy(), rtol=1e-4, atol=1e-4)


def test_dense():
    x, w, b = _random(2, 3), _random(4, 3), _random(4)
    tvm.testing.assert_allclose(_run(topi.nn.dense, x, w, b), x @ w.T + b, rtol=1e-4, atol=1e-5)


def test_arguments_without_names_have_the_order_of_topi():
    x = _random(2, 8, 3, 3)
    by_place = _run(lambda t: topi.nn.lrn(t, 5, 1, 1e-2, 0.5, 3.0), x)
    by_name = _run(lambda t: topi.nn.lrn(t, size=5, axis=1, alpha=1e-2, beta=0.5, bias=3.0), x)
    np.testing.assert_array_equal(by_place, by_name)
    equal = np.float32([[1, 1, 0], [0, 2, 2]])
    assert _run(lambda t: topi.argmax(t, 1, False, True), equal).tolist() == [1, 2]
    assert _run(lambda t: topi.argmax(t, 1, True, False), equal).tolist() == [[0], [1]]


def test_operands_after_attributes_have_their_places():
    places = np.int32([[0, 1], [1, 0]])
    x = _random(2, 2)
    found = _run(lambda t, i: topi.gather(t, 1, i), x, places)
    np.testing.assert_array_equal(found, np.take_along_axis(x, places, 1))
    x = _random(1, 2, 3, 4)
    found = _run(lambda t: topi.layout_transform(t, "NCHW", "NHWC"), x)
    np.testing.assert_array_equal(found, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda i: topi.multiply(i, 0.5),
        lambda i: topi.greater(i, 2.5),
        lambda i: topi.add(i, 300),
        lambda i: topi.add(i, -1),
        lambda i: topi.add(i, "a"),
        lambda i: topi.add(topi.cast(i, "float16"), 70000.0),
        lambda i: topi.add(topi.cast(i, "float32"), 16777217),
        lambda i: topi.where(topi.greater(i, 2), i, 0.5),
    ],
)
def test_a_number_that_the_tensors_type_does_not_hold_is_refused(make: Any):
    with pytest.raises(UsageError, match=r"expected a .*number"):
        make(te.placeholder((3,), "uint8", name="i"))


def test_numbers_have_the_type_of_the_tensors():
    x = np.int32([1, 5])
    found = _run(lambda t: topi.where(topi.greater(t, 2), 7, topi.multiply(t, 2.0)), x)
    assert found.dtype == np.int32
    assert found.tolist() == [2, 7]
    with pytest.raises(UsageError, match=r"topi\.where: expected tensors, found \(5, 7\)"):
        topi.where(te.placeholder((3,), "bool", name="c"), 5, 7)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda x: topi.exp(x, 3), "expected no argument number 2"),
        (lambda x: topi.add(x, 3, 4), "expected no argument number 3"),
        (lambda x: topi.argsort(x, 0), "expected no argument number 2"),
        (lambda x: topi.exp(x, "float32"), "give attributes by name"),
        (lambda x: topi.max(x, 0, True, True), "give attributes by name, found True"),
        (lambda x: topi.max(x, 0, axis=1), "axis once"),
        (lambda x: topi.one_hot(x), "one_hot: not enough values"),
        (
            lambda x: topi.one_hot(topi.cast(x, "int32"), 1, 0, 4, -1, "float32"),
            "constants of one element",
        ),
        (lambda x: topi.elemwise_sum([]), "found none"),
        (lambda x: topi.elemwise_sum([3]), r"xs\[0\]: expected a Tensor, found 3"),
        (lambda x: topi.full(3, "float32", 0.0), "shape: expected a list, found 3"),
        (lambda x: topi.nn.pad(x, (1, 1), (0,)), "as many numbers before as after"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, message: str):
    with pytest.raises((ModelError, UsageError), match=message):
        make(te.placeholder((2, 3), name="x"))


def test_what_does_not_fit_is_refused():
    x = te.placeholder((2, 3), name="x")
    with pytest.raises(ModelError):
        topi.matmul(x, x)
    with pytest.raises(UsageError, match="NCHW or NHWC"):
        topi.nn.conv2d(x, x, 1, 0, 1, "CHWN")
    with pytest.raises(UsageError, match=r"topi\.unheard_of: this operator is not supported"):
        topi.unheard_of(x)
    with pytest.raises(UsageError, match=r"topi\.exp: expected tensors, found"):
        topi.exp(1.0)
    with pytest.raises(UsageError, match="schedule_"):
        _ = topi.x86.conv2d
