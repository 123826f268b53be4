"""`te.gradient`: gradients of tensor expressions are tensor expressions."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.expr import Load
from tilesmith.ops.structure import product_of_loads
from tilesmith.support.errors import ExpressionError
from tilesmith.te.tensor import Compute, Reduce


def test_gradient_of_a_product_is_a_product() -> None:
    a, b = te.placeholder((4, 6), name="a"), te.placeholder((6, 5), name="b")
    k = te.reduce_axis(6, "k")
    c = te.compute((4, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    g = te.placeholder((4, 5), name="g")
    da, db = te.gradient(c, [a, b], g)
    assert (da.shape, db.shape) == ((4, 6), (6, 5))
    for d in (da, db):
        assert isinstance(d.op, Compute) and isinstance(d.op.body[0], Reduce)
        assert product_of_loads(d.op) is not None, "no conditions, no divisions"


def test_gradient_of_strides_keeps_only_the_taps() -> None:
    x = te.placeholder((21,), name="x")
    w = te.placeholder((3,), name="w")
    k = te.reduce_axis(3, "k")
    y = te.compute((10,), lambda i: te.sum(x[i * 2 + k] * w[k], axis=k))
    (dx,) = te.gradient(y, x)
    assert isinstance(dx.op, Compute)
    assert [a.extent for a in dx.op.reduce_axis] == [3]


def test_gradient_is_scheduled_and_built_like_any_expression() -> None:
    x = te.placeholder((3, 8), name="x")
    k = te.reduce_axis(8, "k")
    total = te.compute((3,), lambda i: te.sum(te.exp(x[i, k]), axis=k), "total")
    y = te.compute((3,), lambda i: te.log(total[i]), "y")
    (dx,) = te.gradient(y, x)
    f = ts.build(te.create_schedule(dx.op), [x, dx])
    given = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    found = np.zeros((3, 8), np.float32)
    f(given, found)
    e = np.exp(given)
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_second_derivative_is_the_gradient_of_the_gradient() -> None:
    x = te.placeholder((5,), "f64", "x")
    y = te.compute((5,), lambda i: x[i] * x[i] * x[i])
    (first,) = te.gradient(y, x)
    (second,) = te.gradient(first, x)
    f = ts.build(te.create_schedule(second.op), [x, second])
    given, found = np.arange(5.0), np.zeros(5)
    f(given, found)
    np.testing.assert_allclose(found, 6 * given)


def test_gradient_of_a_tensor_that_is_not_read_is_zero() -> None:
    x, z = te.placeholder((5,), name="x"), te.placeholder((2, 2), name="z")
    (dz,) = te.gradient(te.compute((5,), lambda i: x[i]), z)
    assert isinstance(dz.op, Compute) and dz.shape == (2, 2)
    assert not any(isinstance(e, Load) for e in dz.op.body)


def test_open_extents_stay_open() -> None:
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    k = te.reduce_axis(4, "k")
    y = te.compute((n,), lambda i: te.sum(x[i, k] * x[i, k], axis=k))
    (dx,) = te.gradient(y, x)
    assert dx.shape[0] is n


def test_expressions_without_a_derivative_are_refused() -> None:
    x, i = te.placeholder((5,), name="x"), te.placeholder((5,), "i32", "i")
    y = te.compute((5,), lambda j: x[j])
    with pytest.raises(ExpressionError, match="tensors of floats, found i of i32"):
        te.gradient(y, i)
    with pytest.raises(ExpressionError, match="cotangent of the shape and type of"):
        te.gradient(y, x, te.placeholder((4,)))
    with pytest.raises(ExpressionError, match="a cotangent for each of 1 outputs, found 2"):
        te.gradient(y, x, [y, y])
    k = te.reduce_axis(5, "k")
    hypot = te.comm_reducer(lambda a, b: te.sqrt(a * a + b * b), lambda t: te.const(0, t), "hypot")
    z = te.compute((), lambda: hypot(x[k], axis=k))
    with pytest.raises(ExpressionError, match="reduces with 'hypot', which has no derivative"):
        te.gradient(z, x)
