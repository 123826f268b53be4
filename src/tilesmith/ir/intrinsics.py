"""The pure functions of `Call`, with their meaning in NumPy.

One table serves the verifier, the interpreter, the reference evaluator and code generation.  The
latter expands most of them into arithmetic (`codegen.math`) and leaves rare ones to the C
mathematics library.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.support.arguments import checked
from tilesmith.support.errors import ExpressionError

from .dtypes import DType, bool_, i64, u32
from .expr import (
    Broadcast,
    Call,
    Expr,
    ExprLike,
    Load,
    as_expr,
    cast,
    const,
    maximum,
    minimum,
    post_order,
    rebuilt,
    select,
    type_text,
)
from .threefry import threefry_word


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function.  Arguments have one dtype; the result has it too, except for `returns_bool` and
    `bitcast`.

    name: its name.
    arity: number of arguments.
    evaluate: its meaning in NumPy.
    returns_bool: the result is a bool (isnan).
    libm: its name in the C mathematics library for f64; f32 adds an "f".  None if it has none.
    of_floats: it is defined on floats only.
    only: the one type that it is defined on, if there is one.
    """

    name: str
    arity: int
    evaluate: Callable[..., Any]
    returns_bool: bool = False
    libm: str | None = None
    of_floats: bool = False
    only: DType | None = None

    def takes(self, dtype: DType) -> bool:
        """Whether it is defined on arguments of this type."""
        if self.only is not None:
            return dtype is self.only
        is_fit = dtype.is_float or not self.of_floats
        return self.name == "bitcast" or (is_fit and not dtype.is_storage)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _reference_erf(x: Any) -> Any:
    x = np.asarray(x)
    return _erf(x.astype(np.float64)).astype(x.dtype)


def _pow(x: Any, y: Any) -> Any:
    x = np.asarray(x)
    return (
        np.power(x.astype(np.float64), y).astype(x.dtype) if x.dtype.kind == "f" else np.power(x, y)
    )


def _place(index: Any, extent: Any, _position: Any) -> Any:
    is_inside = (-extent <= index) & (index < extent)
    return np.where(is_inside, np.where(index < 0, index + extent, index), 0)


def _overflow(op: str) -> Intrinsic:
    """Whether the exact result of an operation on two integers does not fit their type."""
    exact = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[op]

    def evaluate(a: Any, b: Any) -> Any:
        limits = np.iinfo(np.asarray(a).dtype)
        result = exact(np.asarray(a).astype(object), np.asarray(b).astype(object))
        return (result < limits.min) | (result > limits.max)

    return Intrinsic(f"{op}_overflows", 2, evaluate, returns_bool=True, only=i64)


def _unary(name: str, f: Callable[[Any], Any], libm: str = "") -> Intrinsic:
    """A function of one float."""
    return Intrinsic(name, 1, f, libm=libm or name, of_floats=True)


def _whole(name: str, f: Callable[[Any], Any], libm: str = "") -> Intrinsic:
    """A function of one number of any type; integers but for `abs` are what they are."""
    return Intrinsic(name, 1, f, libm=libm or name)


INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        _unary("exp", np.exp), _unary("exp2", np.exp2),
        _unary("log", np.log), _unary("log1p", np.log1p),
        _unary("sqrt", np.sqrt), Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x), of_floats=True),
        _unary("erf", _reference_erf),
        _unary("sin", np.sin), _unary("cos", np.cos), _unary("tan", np.tan),
        _unary("asin", np.arcsin), _unary("acos", np.arccos), _unary("atan", np.arctan),
        _unary("sinh", np.sinh), _unary("cosh", np.cosh), _unary("tanh", np.tanh),
        _unary("asinh", np.arcsinh), _unary("acosh", np.arccosh), _unary("atanh", np.arctanh),
        _whole("abs", np.abs, "fabs"), _whole("floor", np.floor), _whole("ceil", np.ceil),
        _whole("trunc", np.trunc),
        _whole("round", np.rint, "rint"),  # to nearest, ties to even
        Intrinsic("pow", 2, _pow, libm="pow"),  # of integers too
        Intrinsic("fma", 3, lambda a, b, c: a * b + c),
        Intrinsic("threefry", 4, threefry_word, only=u32),  # of a counter and a key
        Intrinsic("isnan", 1, np.isnan, returns_bool=True),
        Intrinsic("isinf", 1, np.isinf, returns_bool=True),
        *map(_overflow, ("add", "sub", "mul")),
        Intrinsic("check_index", 3, _place, only=i64),  # see `checked_index`
        Intrinsic("bitcast", 1, None),  # type: ignore[arg-type]  # needs the result type: the interpreter's own case
    )
}  # fmt: skip


def checked_index(index: Expr, extent: ExprLike, position: ExprLike) -> Expr:
    """The place 0..extent-1 that an index selects, which counts from the end where negative.

    Another index selects 0, and compiled code reports it: at the end of the kernel the run fails
    with its value and its `position`, a number in the tensor of indices.  All are of type i64.
    """
    return call("check_index", index, extent, position)


FROM_FRONT = 1 << 62
"""What `checked_place` takes off a negative index: no axis is as long."""


def checked_place(index: Expr, extent: ExprLike, position: Expr) -> Expr:
    """`checked_index` for an index that never counts from the end: a negative one is reported.

    Its position is reported as -1 - position, so that the report is told from others.
    """
    place = select(index < 0, index - FROM_FRONT, index)
    return checked_index(place, extent, select(index < 0, -1 - position, position))


BY_ZERO = -(1 << 61)
"""The index that `checked_divisor` reports: no tensor holds as many elements."""


def checked_divisor(divisor: Expr, position: Expr) -> Expr:
    """An integer as it is, but -1 for 0, which compiled code reports with its `position`."""
    fine = checked_index(select(divisor == 0, const(BY_ZERO), 1), 2, position)
    return divisor + cast(fine - 1, divisor.dtype)


def needs_guard(node: Expr) -> bool:
    """True for a node that may be evaluated only where it is wanted: a load, which may lie outside
    the memory, or the check of an index, which may report.
    """
    return isinstance(node, Load) or is_check(node)


def checks_index(root: Expr) -> bool:
    """True if an index is checked in `root`."""
    return any(map(is_check, post_order(root)))


def is_check(node: Expr) -> bool:
    """True for a `checked_index`."""
    return isinstance(node, Call) and node.name == "check_index"


def with_positions(root: Expr, f: Callable[[Expr], Expr] = lambda _: const(0)) -> Expr:
    """`root` with checks that report other positions: `f` of their own.  By default no variable is
    left but those on which the value of `root` depends.
    """
    done: dict[Expr, Expr] = {}
    for node in post_order(root, done):
        found = rebuilt(node, done)
        if is_check(found):
            *about, position = found.children
            new = f(position)
            if new.lanes != position.lanes:
                new = Broadcast(new, position.lanes)
            found = found.with_children((*about, new))
        done[node] = found
    return done[root]


def without_checks(root: Expr) -> Expr:
    """`root` with indices clamped where they were checked."""
    done: dict[Expr, Expr] = {}
    for node in post_order(root, done):
        found = rebuilt(node, done)
        if is_check(found):
            index, extent, _ = found.children
            place = index + select(index < 0, extent, extent - extent)
            found = minimum(maximum(place, 0), extent - 1)
        done[node] = found
    return done[root]


@checked(ExpressionError)
def call(name: str, *args: ExprLike, dtype: DType | None = None) -> Expr:
    """`Call` of a known intrinsic; only `bitcast` needs `dtype`.

    Raises ExpressionError for unknown names, and for arguments on which it is not defined.
    """
    intrinsic = INTRINSICS.get(name)
    if intrinsic is None:
        raise ExpressionError(f"unknown function {name!r}; known are {', '.join(INTRINSICS)}")
    exprs = [as_expr(a) for a in args[:1]]
    exprs += [as_expr(a, exprs[0]) for a in args[1:]]
    lanes = max(e.lanes for e in exprs)
    exprs = [Broadcast(e, lanes) if e.lanes < lanes else e for e in exprs]
    if len(exprs) != intrinsic.arity:
        raise ExpressionError(f"{name} takes {intrinsic.arity} arguments, got {len(exprs)}")
    types = {e.dtype for e in exprs}
    if exprs[0].dtype.is_storage and name != "bitcast":
        raise ExpressionError(f"{name} is not defined on {exprs[0].dtype}; cast first")
    if len(types) > 1 or not intrinsic.takes(exprs[0].dtype):
        wanted = "floats of one type" if intrinsic.of_floats else "arguments of one type"
        wanted = f"arguments of {intrinsic.only}" if intrinsic.only is not None else wanted
        raise ExpressionError(
            f"{name} takes {wanted}, found {', '.join(map(type_text, exprs))}; cast first"
        )
    return Call(name, tuple(exprs), bool_ if intrinsic.returns_bool else dtype or exprs[0].dtype)
