"""Contents of small tensors whose elements depend on symbolic dimensions.

Source models compute shapes with operators (shape, gather, add, concat, reshape).  The elements of
such a result are found by interpreting the operator's tensor expression on extents.  Float
arithmetic on extents is assumed to be exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from tilesmith.graph.builder import expansion
from tilesmith.ir import expr as ir
from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Binary, Expr, Var, as_expr, const
from tilesmith.ir.fold import INTEGER, fold_binary, fold_call, fold_cast, fold_compare
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.te.tensor import Compute, Placeholder, Reduce, Tensor

_MOST = 64
"""Upper bound on the elements of a tensor whose contents are tracked."""

_DENOMINATOR = 1 << 10
"""Upper bound on the denominator of a float factor of an extent."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """An element of a float tensor: a quotient of extents.

    number: the dividend.
    by: the divisor, at least 1.
    """

    number: Dim
    by: Dim


Element: TypeAlias = "int | float | bool | Expr | Ratio"
"""A number or bool, an i64 expression for an element of an integer type, or a `Ratio`."""

Contents: TypeAlias = "np.ndarray"
"""The elements of a tensor (`Element`), in an array of objects."""


class _Unknown(Exception):
    """An element can't be expressed."""


def is_small(type: TensorType) -> bool:
    """Whether a tensor of this type is small enough that its contents are tracked."""
    return type.is_static and type.size <= _MOST


def known_contents(contents: Contents, type: TensorType) -> np.ndarray | None:
    """The contents as a numeric array; None if an element is symbolic."""
    if all(isinstance(e, (int, float)) for e in contents.flat):
        return np.array(contents.tolist(), type.dtype.numpy).reshape(type.static_shape)
    return None


def results(
    op: Op, types: tuple[TensorType, ...], inputs: Sequence[Contents]
) -> tuple[Contents, ...] | None:
    """The contents of the results of `op` for `inputs`; None if they are unknown."""
    if op.is_composite():
        return _of_expansion(op, types, inputs)
    if not op.is_primitive():
        return None
    tensors = op.tensors(*types)
    contents = dict(zip(tensors.inputs, inputs, strict=True))
    try:
        return tuple(_Interpreter(contents).tensor(t) for t in tensors.outputs)
    except _Unknown:
        return None


def _of_expansion(
    op: Op, types: tuple[TensorType, ...], inputs: Sequence[Contents]
) -> tuple[Contents, ...] | None:
    graph = expansion(op, types)
    held: dict[Any, Contents] = dict(zip(graph.inputs, inputs, strict=True))
    for c in graph.constants:
        held[c.value] = c.data.array.astype(object)
    for node in graph.nodes:
        if not all(is_small(v.type) for v in node.outputs):
            return None
        contents = results(
            node.op, tuple(v.type for v in node.inputs), [held[v] for v in node.inputs]
        )
        if contents is None:
            return None
        held.update(zip(node.outputs, contents, strict=True))
    return tuple(held[v] for v in graph.outputs)


class _Interpreter:
    """Computes elements of tensors, each of them once."""

    def __init__(self, given: dict[Tensor, Contents]) -> None:
        self._given = given
        self._found: dict[tuple[Tensor, tuple[int, ...]], Element] = {}

    def tensor(self, t: Tensor) -> Contents:
        shape = tuple(d for d in t.shape if isinstance(d, int))
        if len(shape) != t.rank:
            raise _Unknown
        made = np.empty(shape, object)
        for index in np.ndindex(*shape):
            made[index] = self._element(t, index)
        return made

    def _element(self, t: Tensor, at: tuple[int, ...]) -> Element:
        if isinstance(t.op, Placeholder):
            return self._given[t][at]
        key = (t, at)
        if key not in self._found:
            op = t.op
            values: dict[Var, Element] = dict(zip((a.var for a in op.axis), at, strict=True))
            self._found[key] = self._value(op.body[t.index], values, op)
        return self._found[key]

    def _value(self, e: Expr, values: dict[Var, Element], op: Compute) -> Element:
        if isinstance(e, ir.Const):
            return e.value
        if isinstance(e, Var):
            return values.get(e, e)  # a variable that is not an axis is a symbolic size
        if isinstance(e, ir.Load):
            assert isinstance(e.buffer, Tensor)
            index = tuple(self._number(i, values, op) for i in e.indices)
            if not all(isinstance(d, int) and 0 <= i < d for i, d in zip(index, e.buffer.shape)):
                raise _Unknown
            return self._element(e.buffer, index)
        if isinstance(e, ir.Select):
            chosen = self._value(e.cond, values, op)
            if not isinstance(chosen, bool):
                raise _Unknown
            return self._value(e.if_true if chosen else e.if_false, values, op)
        if isinstance(e, Reduce):
            return self._reduced(e, values, op)
        operands = [self._value(c, values, op) for c in e.children]
        if all(isinstance(x, (int, float)) for x in operands):
            return _folded(e, operands)
        if isinstance(e, ir.Binary):
            return _binary(e.op, operands[0], operands[1], e.dtype)
        if isinstance(e, ir.Compare):
            return _compare(e.op, operands[0], operands[1], e.a.dtype)
        if isinstance(e, ir.Unary) and e.op == "neg":
            return _binary("sub", 0, operands[0], e.dtype)
        if isinstance(e, ir.Cast):
            return _cast(operands[0], e.a.dtype, e.type)
        if isinstance(e, ir.Call):
            return _call(e.name, operands)
        raise _Unknown

    def _number(self, e: Expr, values: dict[Var, Element], op: Compute) -> int:
        number = self._value(e, values, op)
        if not isinstance(number, int):
            raise _Unknown
        return number

    def _reduced(self, e: Reduce, values: dict[Var, Element], op: Compute) -> Element:
        dtypes = tuple(s.dtype for s in e.sources)
        state = [self._value(i, {}, op) for i in e.reducer.identity(dtypes)]
        a, b = (tuple(Var(x, d) for d in dtypes) for x in "ab")
        combined = e.reducer.combine(a, b)
        counts = [range(self._number(as_expr(x.extent), {}, op)) for x in e.axes]
        for point in itertools.product(*counts):
            inner = {**values, **dict(zip((x.var for x in e.axes), point, strict=True))}
            new = [self._value(s, inner, op) for s in e.sources]
            both = dict(zip((*a, *b), (*state, *new), strict=True))
            state = [self._value(c, both, op) for c in combined]
        return state[e.index]


def _folded(e: Expr, operands: Sequence[Any]) -> Element:
    """The result of an operation on numbers."""
    literals = tuple(const(x, c.dtype) for x, c in zip(operands, e.children, strict=True))
    literal = None
    if isinstance(e, ir.Binary):
        literal = fold_binary(e.op, *literals)
    elif isinstance(e, ir.Compare):
        literal = fold_compare(e.op, *literals)
    elif isinstance(e, ir.Cast):
        literal = fold_cast(literals[0], e.type)
    elif isinstance(e, ir.Call):
        literal = fold_call(e.name, literals, e.type)
    elif isinstance(e, ir.Unary) and e.dtype.is_bool:
        return not operands[0]
    elif isinstance(e, ir.Unary) and e.op == "neg":
        return const(-operands[0], e.dtype).value
    if literal is None:
        raise _Unknown
    return literal.value


def _binary(op: str, a: Element, b: Element, dtype: DType) -> Element:
    if dtype.is_float:
        return _float_binary(op, _ratio(a), _ratio(b))
    if dtype.is_bool:
        for x, y in ((a, b), (b, a)):
            if isinstance(x, bool) and op in ("and", "or"):
                return y if x is (op == "and") else x
        raise _Unknown
    if op not in INTEGER or isinstance(a, (float, Ratio)) or isinstance(b, (float, Ratio)):
        raise _Unknown
    return as_dim(Binary(op, as_expr(int(a) if isinstance(a, bool) else a), as_expr(b)))


def _ratio(x: Element) -> Ratio:
    if isinstance(x, Ratio):
        return x
    if isinstance(x, float) and x == x and abs(x) != float("inf"):
        number, by = Fraction(x).as_integer_ratio()
        if by <= _DENOMINATOR:
            return Ratio(number, by)
    if isinstance(x, (int, Expr)):
        return Ratio(x, 1)
    raise _Unknown


def _float_binary(op: str, a: Ratio, b: Ratio) -> Element:
    product = extents.product
    if op == "mul":
        return _reduced_ratio(product((a.number, b.number)), product((a.by, b.by)))
    if op == "div":
        return _reduced_ratio(product((a.number, b.by)), product((a.by, b.number)))
    left, right = product((a.number, b.by)), product((b.number, a.by))
    by = product((a.by, b.by))
    if op == "add":
        return _reduced_ratio(extents.total((left, right)), by)
    if op == "sub":
        return _reduced_ratio(extents.difference(left, right), by)
    if op in ("min", "max"):
        choose = extents.smaller if op == "min" else extents.larger
        return _reduced_ratio(choose(left, right), by)
    raise _Unknown


def _reduced_ratio(number: Dim, by: Dim) -> Ratio:
    """The reduced quotient of two extents.  The divisor must be positive."""
    if not extents.is_at_most(1, by):
        raise _Unknown
    (n, above), (d, below) = extents.factored(number), extents.factored(by)
    shared, common = math.gcd(n, d), above & below
    return Ratio(
        extents.product((n // shared, *(above - common).elements())),
        extents.product((d // shared, *(below - common).elements())),
    )


def _compare(op: str, a: Element, b: Element, dtype: DType) -> Element:
    if dtype.is_float:
        x, y = _ratio(a), _ratio(b)
        a, b = extents.product((x.number, y.by)), extents.product((y.number, x.by))
    if isinstance(a, (float, Ratio)) or isinstance(b, (float, Ratio)) or dtype.is_bool:
        raise _Unknown
    decision = extents.decided(ir.compare(op, as_expr(a), as_expr(b)))
    if decision is None:
        raise _Unknown
    return decision


def _cast(x: Element, source: DType, to: DType) -> Element:
    if to.is_bool:
        return _compare("ne", x, 0, source)
    if to.is_float:
        return _ratio(x)
    if isinstance(x, Ratio):  # the cast rounds toward zero
        return _binary("truncdiv", x.number, x.by, to)
    return x


def _call(name: str, operands: Sequence[Element]) -> Element:
    x = operands[0]
    if not isinstance(x, Ratio):
        raise _Unknown
    if name == "floor":
        return Ratio(as_dim(as_expr(x.number) // x.by), 1)
    if name == "ceil":
        up = extents.total((x.number, x.by, -1))
        return Ratio(as_dim(as_expr(up) // x.by), 1)
    if name in ("abs", "trunc") and extents.is_at_most(0, x.number):
        return x if name == "abs" else Ratio(as_dim(as_expr(x.number) // x.by), 1)
    raise _Unknown
