"""Checks of assumptions about open sizes that `torch.export` made while it traced a program.

During tracing, the example's sizes decide Python branches on sizes.  They also decide the results
of operators that compute with sizes, such as `tensor_split`.  The traced program is correct only
for sizes that lead to the same decisions.  PyTorch keeps these conditions as Python text.  A run
that violates a condition is refused.

Three kinds of conditions are not checked: that a computed size is 1, is not 1, or is not 0.
PyTorch adds such conditions wherever a computed size could be broadcast, and imported calls check
sizes themselves.  Conditions on remainders are checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.expr import as_expr
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim


def require(
    n: AtenNode, guards: Sequence[str], names: Mapping[str, Any], symbols: Mapping[str, Dim]
) -> None:
    """Makes runs refuse sizes that violate a guard.

    names: the program's inputs, by name.
    symbols: sizes, by the names that guards may contain.

    Raises ModelError for a guard that no size satisfies.
    """
    wrong: dict[Dim, str] = {}
    for text in guards:
        try:
            excess = _Reader(names, symbols).excess(ast.parse(text, mode="eval").body)
        except (_OtherError, SyntaxError, RecursionError):
            # This condition is not about sizes; types and structure are checked elsewhere.
            continue
        values = extents.values_of(excess)
        if values.lo is not None and values.lo > 0:
            n.bad(f"it was exported for sizes of which {text} holds, which never does here")
        if values.hi is None or values.hi > 0:
            wrong.setdefault(excess, text)
    for excess, text in wrong.items():
        n.builder.require_zero(n.of_dims((excess,), (1,)), f"not {_shown(text)}")


def _shown(text: str) -> str:
    """A guard in the notation of our messages: x.0 for the first axis of x."""
    return re.sub(r"L\['(\w+)'\](\S*?)\.size\(\)\[(\d+)\]", r"\1\2.\3", text)


class _OtherError(Exception):
    """A condition that is not about sizes, or that is not checked."""


class _Reader:
    """Reads a condition as a formula: 0 where the condition holds, and positive elsewhere."""

    def __init__(self, names: Mapping[str, Any], symbols: Mapping[str, Dim]) -> None:
        self._names, self._symbols = names, symbols

    def excess(self, node: ast.expr) -> Dim:
        match node:
            case ast.BoolOp(ast.And(), values):
                return extents.total(map(self.excess, values))
            case ast.BoolOp(ast.Or(), values):
                excesses = [self.excess(v) for v in values]
                least = excesses[0]
                for f in excesses[1:]:
                    least = extents.smaller(least, f)
                return least
            case ast.Compare(left, [operator], [right]) if type(operator) in _EXCESS:
                if _is_usual(left, operator, right):
                    raise _OtherError
                return _EXCESS[type(operator)](self.size(left), self.size(right))
        raise _OtherError

    def size(self, node: ast.expr) -> Dim:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return number
            case ast.Name(name) if name in self._symbols:
                return self._symbols[name]
            case ast.UnaryOp(ast.USub(), of):
                return extents.product((self.size(of), -1))
            case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
                return _ARITHMETIC[type(operator)](self.size(left), self.size(right))
            case ast.Call(ast.Name("max" | "min" | "Max" | "Min" as name), args) if args:
                join = extents.larger if name.lower() == "max" else extents.smaller
                joint = self.size(args[0])
                for a in args[1:]:
                    joint = join(joint, self.size(a))
                return joint
            case ast.Subscript(
                ast.Call(ast.Attribute(of, "size"), []), ast.Constant(value=int(axis))
            ):
                held = self._names.get(_name(of))
                if isinstance(held, Value) and axis < held.type.rank:
                    return held.type.shape[axis]
            case ast.Subscript():
                held = self._names.get(_name(node))
                if isinstance(held, int):
                    return held
        raise _OtherError


def _name(node: ast.expr) -> str:
    """The name of an input of the program: L['more']['b'][0] is more_b_0."""
    keys: list[str] = []
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        keys.append(re.sub(r"\W", "_", str(node.slice.value)))
        node = node.value
    if not isinstance(node, ast.Name) or not keys:
        raise _OtherError
    return "_".join(reversed(keys))


def _is_usual(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """Whether a condition is one that PyTorch adds for broadcasting."""
    if isinstance(left, (ast.Subscript, ast.Name)) or not isinstance(right, ast.Constant):
        return False
    if any(isinstance(n, ast.Mod) for n in ast.walk(left)):
        return False
    is_apart = isinstance(operator, ast.NotEq) and right.value in (0, 1)
    return is_apart or (isinstance(operator, ast.Eq) and right.value == 1)


def _above(a: Dim, b: Dim, more: int = 0) -> Dim:
    """max(a - b + more, 0)."""
    return extents.larger(extents.total((extents.difference(a, b), more)), 0)


def _apart(a: Dim, b: Dim) -> Dim:
    return extents.larger(extents.difference(a, b), extents.difference(b, a))


def _same(a: Dim, b: Dim) -> Dim:
    """1 if both are equal, else 0."""
    return extents.difference(1, extents.smaller(_apart(a, b), 1))


_EXCESS: Mapping[type[ast.cmpop], Callable[[Dim, Dim], Dim]] = {
    ast.LtE: lambda a, b: _above(a, b),
    ast.Lt: lambda a, b: _above(a, b, 1),
    ast.GtE: lambda a, b: _above(b, a),
    ast.Gt: lambda a, b: _above(b, a, 1),
    ast.Eq: _apart,
    ast.NotEq: _same,
}

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: extents.total((a, b)),
    ast.Sub: extents.difference,
    ast.Mult: lambda a, b: extents.product((a, b)),
    ast.FloorDiv: lambda a, b: as_dim(as_expr(a) // as_expr(b)),
    ast.Mod: lambda a, b: as_dim(as_expr(a) % as_expr(b)),
}
