"""Structural equality of graphs: equal except for labels, `loc` and the graph's own name.

The order of nodes matters, since a graph is a list of statements.  Names of inputs and outputs
matter, since users see them.  Contents of constants are compared by digest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.text import attribute_text, node_text, print_graph, type_text
from tilesmith.ir.grammar import Role, fields_of
from tilesmith.ops.base import Op


def structural_equal(a: Graph, b: Graph) -> bool:
    """True if `a` and `b` are the same program."""
    return difference(a, b) is None


def difference(a: Graph, b: Graph) -> str | None:
    """The first difference between `a` and `b` in words; None if they are equal."""
    return None if a is b else _Comparison(a, b, _Numbered(), _Numbered()).run()


def assert_structural_equal(a: Graph, b: Graph) -> None:
    """Raises AssertionError that shows the first difference and both texts."""
    words = difference(a, b)
    if words is not None:
        raise AssertionError(f"graphs differ: {words}\n{print_graph(a)}\n{print_graph(b)}")


class _Numbered:
    """Names symbolic dimensions by order of first use, so that equal programs get equal names."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}

    def __call__(self, item: Any) -> str:
        return self.names.setdefault(item, f"d{len(self.names)}")


_FREE = ("name", "loc", "constants")
"""Fields that `fields` does not compare.  Constants are compared where they are first used."""


class _Comparison:
    def __init__(self, a: Graph, b: Graph, dims_a: _Numbered, dims_b: _Numbered) -> None:
        self.a, self.b = a, b
        self.dims_a, self.dims_b = dims_a, dims_b
        self.match: dict[Value, Value] = {}  # value of a -> value of b
        self.taken: set[Value] = set()  # values of b that are matched
        self.by_role: dict[Role, Callable[[Any, Any], str | None]] = {
            Role.BINDER: self.define, Role.RESULT: self.define, Role.REFERENCE: self.use,
            Role.BODY: self.node,
        }  # fmt: skip

    def run(self) -> str | None:
        a, b = self.a, self.b
        names = [v.name for v in a.inputs], [v.name for v in b.inputs]
        if names[0] != names[1]:
            return f"inputs {names[0]} and {names[1]}"
        if len(a.constants) != len(b.constants):
            return f"{len(a.constants)} and {len(b.constants)} constants"
        return self.fields(a, b)

    def fields(self, x: Graph | Node, y: Graph | Node) -> str | None:
        """The first difference between the fields of two graphs or of two nodes."""
        for f in fields_of(type(x)):
            v, w = getattr(x, f.name), getattr(y, f.name)
            if f.name in _FREE:
                continue
            if f.role is Role.LABEL:
                difference = self.label(v, w)
            else:
                differences = filter(None, map(self.by_role[f.role], v, w))
                counts = None if len(v) == len(w) else f"{len(v)} and {len(w)}"
                difference = next(differences, counts)
            if difference:
                return f"{f.name}: {difference}"
        return None

    def define(self, v: Value, w: Value) -> str | None:
        """Match two values at their definitions.  Returns the difference between their types or
        layouts; None if there is none.
        """
        types = type_text(v.type, self.dims_a), type_text(w.type, self.dims_b)
        if types[0] != types[1] or v.layout != w.layout:
            return f"{v.type} '{v.layout or ''}' and {w.type} '{w.layout or ''}'"
        self.match[v] = w
        self.taken.add(w)
        return None

    def use(self, v: Value, w: Value) -> str | None:
        """The difference between two values that are used in the same place; None if they match."""
        if v in self.match:
            return None if self.match[v] is w else f"{v!r} does not correspond to {w!r}"
        c, d = self.a.constant.get(v), self.b.constant.get(w)
        if c is None or d is None or w in self.taken:
            return f"{v!r} does not correspond to {w!r}"
        return self.define(v, w) or self.label(c.data, d.data)

    def node(self, n: Node, m: Node) -> str | None:
        difference = self.fields(n, m)
        return difference and f"{difference}\n  {node_text(n)}\n  {node_text(m)}"

    def label(self, x: Any, y: Any) -> str | None:
        if isinstance(x, Op):
            return self.operator(x, y)
        if isinstance(x, Graph) and isinstance(y, Graph):
            return _Comparison(x, y, self.dims_a, self.dims_b).run()
        texts = attribute_text(x, self.dims_a), attribute_text(y, self.dims_b)
        return None if texts[0] == texts[1] else f"{x!r} and {y!r}"

    def operator(self, x: Op, y: Op) -> str | None:
        if type(x) is not type(y):
            return f"operators {x.name} and {y.name}"
        for name, value in x.attributes.items():
            if difference := self.label(value, y.attributes[name]):
                return f"attribute '{name}': {difference}"
        return None
