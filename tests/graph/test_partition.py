"""Graphs divided between a device and the CPU: the same answers, and no copy too many."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Constant, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.parts import Download, Part, Upload, verify_places
from tilesmith.graph.passes.partition import partition
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Var
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise import Add, Exp, Neg, Tanh
from tilesmith.ops.shape import Expand, Reshape
from tilesmith.support.errors import VerifyError

HOST = (Exp, Tanh)
"""Operators that the device of these tests can't run."""


def divided(graph: Graph, light: tuple[type, ...] = ()) -> Graph:
    on_host = {n for n in graph.nodes if isinstance(n.op, HOST)}
    found = partition(graph, on_host, lambda n: isinstance(n.op, light))
    assert found is not None
    verify_places(found)
    verify(found)
    return found


def copies(graph: Graph) -> tuple[int, int]:
    """Numbers of copies to the device and back."""
    return tuple(sum(isinstance(n.op, t) for n in graph.nodes) for t in (Upload, Download))  # type: ignore[return-value]  # two


def parts(graph: Graph) -> list[str]:
    """The operators of each part, those of the device in capitals."""
    found = []
    for n in graph.nodes:
        if isinstance(n.op, Part):
            names = " ".join(m.op.name for m in n.op.body.nodes)
            found.append(names.upper() if n.op.on_device else names)
    return found


def test_parts_and_copies(golden):
    b = Builder("g")
    x = b.input("x", TensorType(f32, (4,)))
    y = b.add(Relu(), x)
    z = b.add(Exp(), y)
    w = b.add(Add(), b.add(Neg(), z), y)  # y is still there
    graph = b.finish([w, z])
    found = divided(graph)
    assert parts(found) == ["RELU", "exp", "NEG ADD"] and copies(found) == (2, 2)
    text = print_graph(found)
    golden(text)
    assert print_graph(parse_graph(text, constants_of(found))) == text


@pytest.mark.parametrize(
    ("light", "found", "copied"),
    [((), ["exp", "NEG", "tanh"], (1, 1)), ((Neg,), ["exp neg tanh"], (0, 0))],
)
def test_light_nodes_between_the_cpu_go_there(light, found, copied):
    b = Builder("g")
    x = b.add(Neg(), b.add(Exp(), b.input("x", TensorType(f32, (4,)))))
    made = divided(b.finish([b.add(Tanh(), x)]), light)
    assert (parts(made), copies(made)) == (found, copied)


def test_light_nodes_far_from_the_cpu_stay():
    b = Builder("g")
    x = b.add(Neg(), b.input("x", TensorType(f32, (4,))))
    y = b.add(Exp(), b.input("y", TensorType(f32, (4,))))
    made = divided(b.finish([x, y]), (Neg,))
    assert parts(made) == ["NEG", "exp"] and copies(made) == (1, 1)


def test_one_value_is_copied_instead_of_two_views():
    b = Builder("g")
    x = b.add(Relu(), b.input("x", TensorType(f32, (4,))))
    views = [b.add(Exp(), b.add(Reshape(s), x)) for s in ((2, 2), (4, 1))]
    made = divided(b.finish(views), (Reshape,))
    assert parts(made) == ["RELU", "reshape exp reshape exp"] and copies(made) == (1, 1)


def test_a_part_takes_the_input_that_has_its_extents():
    """No node reads it: each of them only asks for its size."""
    rows = Var("rows")
    b = Builder("g")
    b.input("x", TensorType(f32, (rows, 4)))
    y = b.add(Exp(), b.input("y", TensorType(f32, (1, 4))))
    graph = b.finish([b.add(Expand((rows, 4)), y)])
    found = partition(graph, graph.nodes, lambda _: False)
    assert found is not None
    verify(found)
    (part,) = (n for n in found.nodes if isinstance(n.op, Part))
    assert [v.name for v in part.inputs] == ["y", "x"]


def test_outputs_that_no_node_computes():
    b = Builder("g")
    x = b.input("x", TensorType(f32, (2,)))
    c = b.constant(np.array([1.5, 2.5], np.float32))
    graph = b.finish([b.add(Exp(), x)])
    constant = next(iter(b.finish([b.add(Relu(), c)]).constants))
    held = Constant(replace(constant.value, name="c"), constant.data)
    graph = replace(
        graph,
        constants=(held,),
        outputs=(*graph.outputs, x, held.value),
        output_names=("y", "same", "fixed"),
    )
    given = np.array([0.5, -1.0], np.float32)
    for found, wanted in zip(
        evaluate(divided(graph), [given]).values(), evaluate(graph, [given]).values(), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed):
    """The same answers; a value is copied at most once each way, and only where it is read."""
    rng = random.Random(seed)
    b = Builder("g")
    values = [b.input(f"x{i}", TensorType(f32, (3,))) for i in range(2)]
    values.append(b.constant(np.arange(3, dtype=np.float32)))
    for _ in range(rng.randint(1, 14)):
        op = rng.choice([Relu(), Neg(), Add(), Exp(), Tanh()])
        count = 2 if isinstance(op, Add) else 1
        values.append(b.add(op, *(rng.choice(values[-6:]) for _ in range(count))))
    graph = b.finish([values[-1]])
    made = divided(graph, rng.choice([(), (Neg,), (Neg, Add, Relu)]))
    given = [np.random.default_rng(seed).random(3, np.float32) for _ in range(2)]
    (found,), (wanted,) = (evaluate(g, given).values() for g in (made, graph))
    np.testing.assert_array_equal(found, wanted)
    sources = [(type(n.op), n.inputs) for n in made.nodes if not isinstance(n.op, Part)]
    assert len(sources) == len({*sources})
    computed = [n for p in made.nodes if isinstance(p.op, Part) for n in p.op.body.nodes]
    assert len(computed) == len(graph.nodes)
    for n in made.nodes:
        if not isinstance(n.op, Part):
            (copied,) = n.outputs
            assert copied in made.outputs or made.consumers[copied]


def test_values_of_the_other_place_are_found():
    b = Builder("g")
    graph = divided(b.finish([b.add(Relu(), b.input("x", TensorType(f32, (4,))))]))
    upload, part, download = graph.nodes
    wrong = replace(part, inputs=(graph.inputs[0],))
    with pytest.raises(VerifyError, match="part reads %x: expected a value on the device, found o"):
        verify_places(replace(graph, nodes=(upload, wrong, download)))
    with pytest.raises(VerifyError, match=r"output '.*' is left on the device"):
        verify_places(replace(graph, nodes=(upload, part), outputs=part.outputs))
