"""Graphs, nodes and operators that hold graphs declare the roles of their fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.graph.compare import difference
from tilesmith.graph.control import If, Loop, in_bodies
from tilesmith.graph.measure import bounds_of, symbols_defined, symbols_inside
from tilesmith.graph.nodes import Constant, Graph, Node, Structure, Value, with_values
from tilesmith.graph.parse import parse_graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.grammar import Role, fields_of, items_in, mapped
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Exp
from tilesmith.ops.table import OPS

STRUCTURES = [kind for kind in OPS.values() if issubclass(kind, Structure)]

PROGRAM = parse_graph("""
graph main<m 0..64~16>(%c: bool[], %n: i64[], %x: f32[4]) {
  %y: f32[4] = if(%c, %x) {then=graph a(%x: f32[4]) {
    %0: f32[4] = exp(%x)
    return %0 as "out"
  }, otherwise=graph b(%x: f32[4]) {
    return %x as "out"
  }}
  %z: f32[m] = loop(%n, %y) {body=graph step<k 0..64~16>(%i: i64[], %a: f32[k]) {
    %0: f32[k] = tanh(%a)
    return %0 as "out"
  }, carried=1, results=(f32[m],), symbols=(`m`,), bounds=(64,), inside=(`k`,)}
  return %z as "z"
}
""")


@pytest.mark.parametrize("kind", [Graph, Node, Constant, *STRUCTURES], ids=lambda k: k.__name__)
def test_every_field_has_a_role(kind: type) -> None:
    roles = {f.name: f.role for f in fields_of(kind)}
    assert {"If", "Loop", "Fused", "Measure"} <= {k.__name__ for k in STRUCTURES}
    if issubclass(kind, Structure):
        holds = {n for n, hint in kind.__annotations__.items() if "Graph" in str(hint)}
        assert holds <= {n for n, role in roles.items() if role is Role.BODY}


def test_bodies_and_symbols_follow_from_roles() -> None:
    branch, loop = PROGRAM.nodes
    assert isinstance(branch.op, If) and isinstance(loop.op, Loop)
    assert branch.op.bodies == (branch.op.then, branch.op.otherwise)
    assert loop.op.bodies == (loop.op.body,)
    assert symbols_defined(loop) == loop.op.symbols and symbols_inside(loop) == loop.op.inside
    assert bounds_of(loop) == (64,) and symbols_defined(branch) == ()
    assert in_bodies(PROGRAM, lambda body: body) is PROGRAM
    renamed = in_bodies(PROGRAM, lambda body: replace(body, name="other"))
    assert [b.name for n in renamed.nodes for b in n.op.bodies] == ["other"] * 3
    assert difference(PROGRAM, renamed) is None


def test_items_of_nested_tuples() -> None:
    value = (1, (2, (), (3,)), 4)
    assert [*items_in(value)] == [1, 2, 3, 4] and [*items_in(5)] == [5]
    assert mapped(value, lambda n: n) is value
    assert mapped(value, lambda n: n + 1) == (2, (3, (), (4,)), 5)


def _by_roles(part: Any, new: dict[Value, Value]) -> Any:
    """A graph or node with other values, as the roles of its fields say."""
    if isinstance(part, Constant):
        return part  # the values of constants stay
    fields: dict[str, Any] = {}
    for f in fields_of(type(part)):
        value = getattr(part, f.name)
        if f.role in (Role.BINDER, Role.RESULT, Role.REFERENCE):
            fields[f.name] = mapped(value, lambda v: new.get(v, v))
        elif f.role is Role.BODY:
            fields[f.name] = mapped(value, lambda inner: _by_roles(inner, new))
    same = all(getattr(part, name) is value for name, value in fields.items())
    return part if same else replace(part, **fields)


def test_other_values_agree_with_the_roles() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, (4,)))
    y = b.add(Add(), x, b.constant(np.ones(4, np.float32), "one"))
    z = b.add(Exp(), b.add(Exp(), y))
    graph = b.finish([z, x])
    for values in ((), (x,), (y,), (z, x), tuple(v for n in graph.nodes for v in n.outputs)):
        new = {v: replace(v, name="other") for v in values}
        made, expected = with_values(graph, new), _by_roles(graph, new)
        assert (made.inputs, made.outputs) == (expected.inputs, expected.outputs)
        assert made.constants == expected.constants == graph.constants
        for n, m, old in zip(made.nodes, expected.nodes, graph.nodes, strict=True):
            assert (n.op, n.inputs, n.outputs, n.loc) == (m.op, m.inputs, m.outputs, m.loc)
            assert (n is old) == (m is old)
