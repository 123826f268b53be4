"""Python's operators on expressions, reduction axes and 0-d tensors make nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilesmith import te
from tilesmith.ir.dtypes import DType, bf16, bool_, f32, i8, i32, u8
from tilesmith.ir.expr import Binary, Call, Compare, Expr, Load, Unary, Var, const, same
from tilesmith.ir.types import TensorType, same_dim, same_shape
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.interpret import interpret

BOTH: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne", "floordiv", "mod")
}
INTEGERS = {name: getattr(operator, name) for name in ("and_", "or_", "xor", "lshift", "rshift")}
KINDS: list[tuple[DType, dict[str, Callable[[Any, Any], Any]]]] = [
    (i32, {**BOTH, **INTEGERS}),
    (f32, {**BOTH, "truediv": operator.truediv}),
    (bool_, {name: INTEGERS[name] for name in ("and_", "or_", "xor")}),
]
CASES = [(d, name, f) for d, known in KINDS for name, f in known.items()]
ONE: list[tuple[DType, Callable[[Any], Any]]] = [
    (i32, operator.neg), (i32, abs), (i32, operator.inv), (i32, operator.pos),
    (f32, operator.neg), (f32, abs), (u8, abs), (bool_, operator.inv),
]  # fmt: skip


def values(dtype: DType) -> np.ndarray:
    """Positive numbers, so that they also are divisors and distances of shifts."""
    numbers = np.array([1, 5, 3, 2, 7, 4])
    return numbers % 2 == 1 if dtype.is_bool else numbers.astype(dtype.numpy)


def computed(body: Callable[..., Any], *inputs: np.ndarray, dtype: DType) -> np.ndarray:
    """`body` of the elements of `inputs`, by the interpreter."""
    n = len(inputs[0])
    tensors = [te.placeholder((n,), x.dtype) for x in inputs]
    out = te.compute((n,), lambda i: body(*(t[i] for t in tensors)), "out")
    func = te.lower(te.create_schedule(out.op), [*tensors, out])
    result = np.zeros(n, dtype.numpy)
    interpret(func, [*inputs, result])
    assert out.dtype is dtype
    return result


@pytest.mark.parametrize(("dtype", "name", "f"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_operators_of_two_are_those_of_numpy(
    dtype: DType, name: str, f: Callable[[Any, Any], Any]
) -> None:
    x, y = values(dtype), values(dtype)[::-1].copy()
    result = dtype if name not in ("lt", "le", "gt", "ge", "eq", "ne") else bool_
    np.testing.assert_array_equal(computed(f, x, y, dtype=result), f(x, y))
    number = x[1].item()
    right = computed(lambda a: f(a, number), x, dtype=result)
    np.testing.assert_array_equal(right, f(x, x[1]))
    left = computed(lambda a: f(number, a), x, dtype=result)
    np.testing.assert_array_equal(left, f(x[1], x))
    left = computed(lambda a: f(x[1], a), x, dtype=result)  # a NumPy scalar gives way
    np.testing.assert_array_equal(left, f(x[1], x))


@pytest.mark.parametrize(("dtype", "f"), ONE)
def test_operators_of_one_are_those_of_numpy(dtype: DType, f: Callable[[Any], Any]) -> None:
    x = values(dtype)
    np.testing.assert_array_equal(computed(f, x, dtype=dtype), f(x))


def test_comparisons_guard() -> None:
    x = np.arange(9, dtype=np.float32)
    a = te.placeholder((9,))

    def outside(i: Expr) -> Expr:
        return te.if_then_else(te.any(i == 0, i > 5), 0.0, a[i])

    def written(i: Expr) -> Expr:
        return te.if_then_else((i == 0) | ~(i <= 5), 0.0, a[i])

    for body in (outside, written):
        out = te.compute((9,), body)
        func = te.lower(te.create_schedule(out.op), [a, out])
        result = np.full(9, -1, np.float32)
        interpret(func, [x, result])
        np.testing.assert_array_equal(result, np.where((x == 0) | (x > 5), 0, x))


def test_axes_and_scalars_take_part() -> None:
    k = te.reduce_axis(8, "k")
    zero = te.compute((), lambda: const(2.0, f32), "two")
    x = Var("x", f32)
    for f in (*BOTH.values(), operator.pow):
        for stands, is_ in ((k, k.var), (zero, zero[()])):
            other = 3 if stands is k else x
            assert f(stands, other) is f(is_, other)
            if f is not operator.pow:
                assert f(other, stands) is f(other, is_)
    assert (-k) is (-k.var) and abs(k) is abs(k.var) and k.astype("i32").dtype is i32
    matrix = te.placeholder((2, 3), name="A")
    for f in BOTH.values():
        with pytest.raises(TypeError, match="A has rank 2; index it"):
            f(matrix, 1)
    with pytest.raises(TypeError, match="not iterable"):
        iter(matrix)


def test_a_node_has_no_truth_value() -> None:
    i, j = Var("i"), Var("j")
    a, k = te.placeholder((4,)), te.reduce_axis(4)
    for value in (i, i == j, i != i, const(1), const(True), a[i], a, k):
        with pytest.raises(TypeError, match=r"has no truth value.*te\.if_then_else"):
            bool(value)
    for f in (
        lambda: 0 <= i < 4,
        lambda: i in [j, i],
        lambda: (i, 1) == (j, 1),
        lambda: [i].index(j),
        lambda: i == 0 and j == 0,
    ):
        with pytest.raises(TypeError, match="has no truth value"):
            f()


def test_identity() -> None:
    i, j = Var("i"), Var("i")
    assert isinstance(i == j, Compare) and isinstance(i != 3, Compare)
    assert {i: 1, j: 2}[j] == 2 and j not in {i} and {(i, j), (i, j)} == {(i, j)}
    assert same((i, j), [i, j]) and not same((i, j), (j, i)) and not same((i,), (i, i))
    assert structural_equal(i + 1, j + 1) and not structural_equal(i + 1, j + 2)
    assert same_dim(4, 4) and same_dim(i, i) and not same_dim(i, j) and not same_dim(i, 4)
    assert same_shape((i, 4), (i, 4)) and not same_shape((i, 4), (j, 4))
    assert TensorType(f32, (i, 4)) == TensorType(f32, (i, 4))
    assert TensorType(f32, (i, 4)) != TensorType(f32, (j, 4)) and i is not j
    assert hash(TensorType(f32, (i, 4))) == hash(TensorType(f32, (i, 4)))


def test_powers() -> None:
    x, n = Var("x", f32), Var("n", i32)
    assert (x**1) is x and (x**2) is x * x and (x**3) is x * x * x and (x**2.0) is x * x
    assert (x**0) is const(1.0, f32) and (x**-1) is 1.0 / x
    for e in (x**0.5, x**4, x**x, 2.0**x):
        assert isinstance(e, Call) and e.name == "pow"
    assert (n**0) is const(1, i32) and (n**5) is (n * n) * (n * n) * n
    base = np.array([-3, -1, 0, 1, 2, 11], np.int32)
    for e in range(1, 9):
        np.testing.assert_array_equal(computed(lambda a, e=e: a**e, base, dtype=i32), base**e)
    assert te.power(x, 2) is x * x


def test_conversion() -> None:
    x = Var("x", f32)
    assert x.astype("float32") is x and x.astype(np.int32).dtype is i32
    assert x.astype("i8") is te.cast(x, "i8") and x.astype(bf16).dtype is bf16
    with pytest.raises(TypeError, match="no element type for 'float33'"):
        x.astype("float33")


U, B, X, I = Var("u", u8), Var("b", bool_), Var("x", f32), Var("i")  # noqa: E741
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: I + 0.5, "the float 0.5 does not fit an operand of type i64; cast first"),
    (lambda: I > 0.5, "the float 0.5 does not fit an operand of type i64"),
    (lambda: U + 300, "the number 300 does not fit an operand of type u8"),
    (lambda: U == -1, "the number -1 does not fit an operand of type u8"),
    (lambda: Var("s", i8) * 128, "the number 128 does not fit an operand of type i8"),
    (lambda: I < 1 << 64, "the number 18446744073709551616 does not fit an operand of type i64"),
    (lambda: B & 2, "the number 2 does not fit an operand of type bool"),
    (lambda: X + U, "add needs two operands of one type, got f32 and u8; .*astype"),
    (lambda: X == I, "eq needs two operands of one type"),
    (lambda: X + "1", "expected an expression or a number, got '1'"),
    (lambda: X == None, "expected an expression or a number, got None"),  # noqa: E711
    (lambda: X * 1j, "expected an expression or a number, got 1j"),
    (lambda: X + np.ones(2), "expected an expression or a number, got an object of class ndarray"),
    (lambda: np.ones(2) * X, "expected an expression or a number, got an object of class ndarray"),
    (lambda: I / 2, "i / 2: / divides floats, found i64; write // for a whole quotient"),
    (lambda: X & X, "is not defined on f32; cast first; in Python & and | bind more tightly"),
    (lambda: X | (I < 1), "needs two operands|is not defined on f32"),
    (lambda: X << 1, r"shl\(x, 1.0\) is not defined on f32"),
    (lambda: ~X, r"not\(x\) is not defined on f32"),
    (lambda: -B, r"neg\(b\) is not defined on bool"),
    (lambda: B + B, r"add\(b, b\) is not defined on bool"),
    (lambda: abs(B), r"abs\(b\) is not defined on bool"),
    (lambda: I**-1, "integers take a constant exponent from 0; cast to a float"),
    (lambda: I**I, "integers take a constant exponent from 0"),
    (lambda: 2**I, "write 1 << n for a power of 2"),
    (lambda: I**0.5, "the float 0.5 does not fit an operand of type i64"),
]


@pytest.mark.parametrize(("f", "message"), WRONG)
def test_wrong_kinds_are_refused(f: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        f()


def test_nodes_are_those_of_the_ir() -> None:
    i, a = Var("i"), te.placeholder((4,), "bool")
    assert isinstance(-i, Unary) and isinstance(i << 2, Binary) and isinstance(a[i], Load)
    assert (a[i] ^ True) is Binary("xor", a[i], const(True))
    assert math.isinf(te.const(math.inf).value)
