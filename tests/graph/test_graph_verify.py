"""The verifier finds each kind of broken graph and names the pass that made it."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import conv_net

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Constant, Data, Fused, Graph, Node, Value
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f16, f32
from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Cast, Exp
from tilesmith.support.errors import VerifyError

TYPE = TensorType(f32, (2, 3))
SYMBOLIC = Value("c", TensorType(f32, (Var("n"),)))
X, Y, Z = Value("x", TYPE), Value("y", TYPE), Value("z", TYPE)


def graph(
    *nodes: Node,
    inputs: tuple[Value, ...] = (X,),
    constants: tuple[Constant, ...] = (),
    outputs: tuple[Value, ...] = (Y,),
    names: tuple[str, ...] = ("y",),
) -> Graph:
    return Graph("g", inputs, constants, nodes, outputs, names)


EXP = Node(Exp(), (X,), (Y,), "the exp")


def test_good_graphs_pass() -> None:
    verify(graph(EXP))
    verify(conv_net())


def test_the_message_names_pass_and_node() -> None:
    bad = graph(Node(Add(), (X, Z), (Y,), "here"))
    with pytest.raises(
        VerifyError,
        match=r"after fusion: graph 'g': input <%z.*before it is defined, in\n.*# \"here\"",
    ):
        verify(bad, "fusion")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (graph(), r"output 'y' is value <%y.*not defined"),
        (graph(EXP, EXP), "defined again as a result"),
        (graph(EXP, inputs=(X, X)), "an input is named 'x' like another one"),
        (graph(EXP, names=("",)), "an output has no name"),
        (graph(EXP, outputs=(Y, X), names=("y", "y")), "an output is named 'y' like another"),
        (graph(EXP, outputs=(Y, X)), "2 outputs and 1 names"),
        (graph(Node(Cast(f16), (X,), (Y,))), r"expected results of type \(f16\[2,3\]\), found"),
        (graph(Node(Add(), (X,), (Y,))), "do not fit the operator"),
        (
            graph(EXP, inputs=(X, Value("a", TYPE, Layout.row_major(3)))),
            "rank 2, but its layout '0 1 2' is for rank 3",
        ),
        (
            graph(EXP, constants=(Constant(Z, Data.of(np.zeros((3, 2), np.float32))),)),
            r"expected contents of type float32\[2, 3\], found float32\[3, 2\]",
        ),
        (
            graph(EXP, constants=(Constant(SYMBOLIC, Data.of(np.zeros(1))),)),
            "has a symbolic dimension",
        ),
    ],
)  # fmt: skip
def test_broken_graphs_are_found(bad: Graph, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(bad)


def test_packed_constants_are_checked_in_their_physical_shape() -> None:
    value = Value("w", TYPE, Layout.parse("0/4 1 0%4"))
    verify(graph(EXP, constants=(Constant(value, Data.of(np.zeros((1, 3, 4), np.float32))),)))
    with pytest.raises(VerifyError, match=r"float32\[1, 3, 4\]"):
        verify(graph(EXP, constants=(Constant(value, Data.of(np.zeros((2, 3), np.float32))),)))


def test_verifying_reads_no_weights() -> None:
    def load() -> np.ndarray:
        raise AssertionError("read")

    verify(graph(EXP, constants=(Constant(Z, Data(load)),)))


def test_bodies_must_agree_with_their_node() -> None:
    b = Builder("body")
    a = b.input("a", TYPE)
    body = b.finish(b.add(Exp(), a))
    verify(graph(Node(Fused(body), (X,), (Y,))))
    with pytest.raises(VerifyError, match="the body has 1 inputs, the node 2"):
        verify(graph(Node(Fused(body), (X, X), (Y,))))
    other = Value("x", TYPE, Layout.parse("1 0"))
    with pytest.raises(VerifyError, match=r"inputs of body and node differ: .*'1 0' outside"):
        verify(graph(Node(Fused(body), (other,), (Y,)), inputs=(other,)))
    broken = Graph("body", body.inputs, (), (), body.outputs, body.output_names)
    with pytest.raises(VerifyError, match="not defined"):
        verify(graph(Node(Fused(broken), (X,), (Y,))))
