"""Structural equality of graphs: the same program up to labels, `loc` and the graph's own name.

The order of nodes matters, since a graph is a list of statements.  Names of inputs and outputs
matter, since users see them.  Contents of constants are compared by digest.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.text import attribute_text, node_text, print_graph, type_text


def structural_equal(a: Graph, b: Graph) -> bool:
    """True if `a` and `b` are the same program."""
    return difference(a, b) is None


def difference(a: Graph, b: Graph) -> str | None:
    """Where `a` and `b` first differ, in words; None if they are equal."""
    return None if a is b else _Comparison(a, b, _Numbered(), _Numbered()).run()


def assert_structural_equal(a: Graph, b: Graph) -> None:
    """Raises AssertionError that shows the first difference and both texts."""
    found = difference(a, b)
    if found is not None:
        raise AssertionError(f"graphs differ: {found}\n{print_graph(a)}\n{print_graph(b)}")


class _Numbered:
    """Names symbolic dimensions by order of first use, so that equal programs get equal names."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}

    def __call__(self, item: Any) -> str:
        return self.names.setdefault(item, f"d{len(self.names)}")


def _defaults(graph: Graph) -> list[tuple[int, str]]:
    """The inputs with a default, by number, and digests of the contents."""
    return [(i, data.digest) for i, data in graph.defaults]


class _Comparison:
    def __init__(self, a: Graph, b: Graph, dims_a: _Numbered, dims_b: _Numbered) -> None:
        self.a, self.b = a, b
        self.dims_a, self.dims_b = dims_a, dims_b
        self.match: dict[Value, Value] = {}  # value of a -> value of b
        self.taken: set[Value] = set()  # values of b that are matched

    def run(self) -> str | None:
        a, b = self.a, self.b
        names = [v.name for v in a.inputs], [v.name for v in b.inputs]
        if names[0] != names[1]:
            return f"inputs {names[0]} and {names[1]}"
        for v, w in zip(a.inputs, b.inputs):
            if found := self.bind(v, w):
                return found
        if len(a.constants) != len(b.constants):
            return f"{len(a.constants)} and {len(b.constants)} constants"
        for n, m in zip_longest(a.nodes, b.nodes):
            if n is None:
                return f"only the second graph has {node_text(m)}"
            if m is None:
                return f"only the first graph has {node_text(n)}"
            if found := self.nodes(n, m):
                return f"{found}\n  {node_text(n)}\n  {node_text(m)}"
        if a.output_names != b.output_names:
            return f"outputs {a.output_names} and {b.output_names}"
        if a.in_place != b.in_place:
            return f"outputs in place {a.in_place} and {b.in_place}"
        if _defaults(a) != _defaults(b):
            return f"defaults {_defaults(a)} and {_defaults(b)}"
        for name, v, w in zip(a.output_names, a.outputs, b.outputs):
            if found := self.same(v, w):
                return f"output {name!r}: {found}"
        return None

    def bind(self, v: Value, w: Value) -> str | None:
        """Match two values that are being defined."""
        types = type_text(v.type, self.dims_a), type_text(w.type, self.dims_b)
        if types[0] != types[1] or v.layout != w.layout:
            return f"{v.type} '{v.layout or ''}' and {w.type} '{w.layout or ''}'"
        self.match[v] = w
        self.taken.add(w)
        return None

    def same(self, v: Value, w: Value) -> str | None:
        """True if two values that are being used are the same."""
        if v in self.match:
            return None if self.match[v] is w else f"{v!r} does not correspond to {w!r}"
        c, d = self.a.constant.get(v), self.b.constant.get(w)
        # Constants are matched where they are first used: the order of their list is free.
        if c is None or d is None or w in self.taken:
            return f"{v!r} does not correspond to {w!r}"
        if found := self.bind(v, w):
            return found
        return None if c.data.digest == d.data.digest else f"contents of {v!r} and {w!r}"

    def nodes(self, n: Node, m: Node) -> str | None:
        if type(n.op) is not type(m.op):
            return f"operators {n.op.name} and {m.op.name}"
        for key, x in n.op.attributes.items():
            if found := self.attribute(x, m.op.attributes[key]):
                return f"attribute '{key}': {found}"
        if len(n.inputs) != len(m.inputs) or len(n.outputs) != len(m.outputs):
            return "numbers of inputs or results"
        for v, w in zip(n.inputs, m.inputs):
            if found := self.same(v, w):
                return found
        for v, w in zip(n.outputs, m.outputs):
            if found := self.bind(v, w):
                return found
        return None

    def attribute(self, x: Any, y: Any) -> str | None:
        if isinstance(x, Graph) and isinstance(y, Graph):
            return _Comparison(x, y, self.dims_a, self.dims_b).run()
        texts = attribute_text(x, self.dims_a), attribute_text(y, self.dims_b)
        return None if texts[0] == texts[1] else f"{x!r} and {y!r}"
