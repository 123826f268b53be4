"""The text form: canonical, complete (it parses back to the same graph), with good messages."""

from __future__ import annotations

import re

import numpy as np
import pytest
from graphs import conv_net, random_graphs
from hypothesis import given, settings

from tilesmith.graph.builder import Builder
from tilesmith.graph.compare import assert_structural_equal, difference
from tilesmith.graph.nodes import Constant, Data, Fused, Graph, Node, Relayout, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import ALL, DType, f16, f32
from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Add, Cast, Clip, Exp, Mul
from tilesmith.ops.shape import Expand
from tilesmith.support.errors import ParseError

TEXT = """\
graph main(%x: f32[1,3,8,8]) {
  const %w: f32[4,3,3,3] = @DIGEST
  const %0: f32[] = [0.5]
  %y: f32[1,4,8,8]@"0 2 3 1" = conv(%x, %w) {pads=(1, 1, 1, 1)}  # "conv1"
  %1: f32[1,4,8,8] = fused(%y, %0) {body=graph "a group"(%a: f32[1,4,8,8]@"0 2 3 1", %b: f32[]) {
    %0: f32[1,4,8,8] = mul(%a, %b)
    return %0 as "out"
  }}
  %2: f16[1,4,8,8] = cast(%1) {to=f16}  # "a \\"quoted\\" place"
  %3: f32[1,4,8,8]@"0 1/2 2 3 1%2" = relayout(%1) {layout=@"0 1/2 2 3 1%2"}
  return %2 as "y", %3 as "z"
}
"""


def weights() -> tuple[np.ndarray, str]:
    w = np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3)
    return w, TEXT.replace("DIGEST", Data.of(w).digest)


def round_trip(graph: Graph) -> Graph:
    text = print_graph(graph)
    again = parse_graph(text, constants_of(graph))
    assert_structural_equal(graph, again)
    assert print_graph(again) == text
    return again


def test_the_text_reads_and_prints_the_same() -> None:
    w, text = weights()
    graph = parse_graph(text, {Data.of(w).digest: w})
    verify(graph)
    assert print_graph(graph) == text
    assert [n.loc for n in graph.nodes] == ["conv1", "", 'a "quoted" place', ""]
    round_trip(graph)


def test_labels_are_made_unique_and_quoted_when_needed() -> None:
    b = Builder("odd names")
    x = b.input("onnx::x 1", TensorType(f32, ()))
    y = b.add(Exp(), b.add(Exp(), x, name="a"), name="a")
    z = b.add(Exp(), b.add(Exp(), y, name="7"), name="\u00e9\n%")
    text = print_graph(b.finish(z))
    assert '%"onnx::x 1"' in text
    assert "%a~1: f32[] = exp(%a)" in text
    assert '%"7": f32[] = exp(%a~1)' in text
    round_trip(b.finish(z))


def test_conv_net_at_every_stage() -> None:
    graph = conv_net()
    round_trip(graph)
    round_trip(decompose(graph))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_constants_of_every_element_type(dtype: DType) -> None:
    edges = [0, 1]
    if dtype.is_int:
        edges = [dtype.min, dtype.max, 0]  # type: ignore[list-item]
    b = Builder()
    small = np.array(edges, dtype.numpy)
    if dtype.is_float:
        small = np.array([0.1, -0.0, np.inf, -np.inf, np.nan, 1e-30], np.float64).astype(
            dtype.numpy
        )
    large = np.resize(small, 20)
    values = [b.constant(a, n) for a, n in ((small, "s"), (large, "l"), (small[0], "scalar"))]
    again = round_trip(b.finish(values))
    for c, array in zip(again.constants, (small, large, small[0])):
        assert c.data.array.tobytes() == array.tobytes()
        assert c.data.array.shape == array.shape


def test_a_nan_with_a_payload_is_kept() -> None:
    payload = np.array([0x7FC00001], np.uint32).view(np.float32)
    b = Builder()
    round_trip(b.finish(b.constant(payload, "c")))


def test_packed_constants_and_padding() -> None:
    layout = Layout.parse("0/4 1 0%4")
    logical = np.arange(10, dtype=np.float32).reshape(5, 2)
    value = Value("w", TensorType(f32, (5, 2)), layout)
    constant = Constant(value, Data.of(layout.pack(logical)))
    graph = Graph("g", (), (constant,), (), (value,), ("w",))
    verify(graph)
    assert round_trip(graph).constants[0].data.array.shape == (2, 2, 4)


def test_symbolic_dimensions_are_shared_by_name() -> None:
    n, other = Var("n"), Var("n")
    b = Builder()
    x = b.input("x", TensorType(f32, (n, 3)))
    y = b.input("y", TensorType(f32, (other, 3)))
    wide = b.add(Expand((n * 3, n, 3)), b.add(Exp(), x))
    graph = b.finish([wide, y])
    text = print_graph(graph)
    assert "%y: f32[n_1,3]" in text
    assert "%1: f32[n * 3,n,3] = expand(%0) {shape=(`n * 3`, `n`, 3)}" in text
    again = round_trip(graph)
    assert again.inputs[0].shape[0] is again.nodes[0].outputs[0].shape[0]
    assert again.inputs[0].shape[0] is not again.inputs[1].shape[0]
    with pytest.raises(ParseError, match=r"line 1, column \d+: bad dimension 'n \*'"):
        parse_graph(text.replace("f32[n,3]", "f32[n *,3]", 1))


def test_dimensions_are_divided_outside_parentheses() -> None:
    text = """
graph g(%x: f32[n,min(n, max(m, 3)),4]) {  # "no place of a node"
  # a comment
  %y: f32[n,min(n, max(m, 3)),4] = exp(%x)  # "layer \\"1\\""
  return %y as "y"
}"""
    graph = parse_graph(text)
    assert [str(d) for d in graph.inputs[0].shape] == ["n", "min(n, max(m, 3))", "4"]
    assert graph.nodes[0].loc == 'layer "1"'
    round_trip(graph)


@pytest.mark.parametrize(
    "text",
    [
        'graph g(%x: f32[2] %y: f32[2]) { return %x as "x" }',
        'graph g(%x: f32[2],) { return %x as "x" }',
        'graph g(%x: f32[2]) { %a: f32[1] %b: f32[1] = split(%x) return %a as "a" }',
        'graph g(%x: f32[2]) { %a: f32[1], = exp(%x) return %a as "a" }',
        'graph g(%x: f32[,2]) { return %x as "x" }',
        'graph g(%x: f32[2]) { %a: f32[2] = exp(%x,) return %a as "a" }',
    ],
)
def test_commas_stand_between_items(text: str) -> None:
    with pytest.raises(ParseError, match=r"line 1, column \d+"):
        parse_graph(text)


def test_only_attributes_that_differ_from_their_default_are_printed() -> None:
    b = Builder()
    x = b.input("x", TensorType(f32, ()))
    text = print_graph(b.finish(b.add(Clip(min=-0.0), b.add(Clip(), x))))
    assert "clip(%x)\n" in text
    assert "{min=-0.0}" in text


@settings(max_examples=40, deadline=None)
@given(random_graphs())
def test_random_graphs_round_trip(graph: Graph) -> None:
    verify(round_trip(graph))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("f32[1,3,8,8]", "q8[1]", r"line 1, column 16: unknown element type"),
        ("conv(", "convolve(", r"line 4.*unknown operator, found 'convolve"),
        ("pads=", "pad=", r"conv has attributes strides, .*, groups, to, found 'pad'"),
        ("cast(%1) {to=f16}", "cast(%1)", r"cannot make operator cast"),
        ("mul(%a, %b)", "mul(%a, %c)", r"line 6.*undefined value, found '%c"),
        ("%2: f16", "%1: f16", r"line 9.*defined already"),
        ('@"0 2 3 1" = conv', '@"0 2 3 x" = conv', r"bad layout"),
        ("[0.5]", "[0.5, 1.0]", r"expected the elements of f32\[\]"),
        ("return %2", "return", r"expected '%'"),
        ('as "y"', 'as y', r"expected the output's name"),
        ("(1, 1, 1, 1)", "(1, 1, 1, @)", r"expected an attribute's value, found '@"),
    ],
)  # fmt: skip
def test_parse_errors_say_where(old: str, new: str, message: str) -> None:
    w, text = weights()
    assert old in text
    with pytest.raises(ParseError, match=message):
        parse_graph(text.replace(old, new, 1), {Data.of(w).digest: w})


def test_every_truncation_is_a_parse_error() -> None:
    w, text = weights()
    for end in range(len(text) - 1):
        with pytest.raises(ParseError, match=r"line \d+, column \d+"):
            parse_graph(text[:end], {Data.of(w).digest: w})


def test_missing_contents_and_trailing_text() -> None:
    w, text = weights()
    with pytest.raises(ParseError, match=r"line 2, column 28: the contents .* were not given"):
        parse_graph(text)
    with pytest.raises(ParseError, match="expected the end of the text, found 'x'"):
        parse_graph(text + "x", {Data.of(w).digest: w})


def test_structural_equality_sees_what_matters() -> None:
    def graph(op: object = None, name: str = "x", loc: str = "", label: str = "") -> Graph:
        b = Builder()
        x = b.input(name, TensorType(f32, (2,)))
        return b.finish(b.add(op or Clip(0.0, 1.0), x, loc=loc, name=label), ["y"])  # type: ignore[arg-type]

    assert difference(graph(), graph(loc="elsewhere", label="other")) is None
    assert re.search("attribute 'min'", str(difference(graph(), graph(Clip(-0.0, 1.0)))))
    assert re.search("operators", str(difference(graph(), graph(Exp()))))
    assert re.search("inputs", str(difference(graph(), graph(name="z"))))


def test_structural_equality_compares_constants_by_content() -> None:
    def graph(first: float, second: float) -> Graph:
        b = Builder()
        x = b.input("x", TensorType(f32, ()))
        y = b.add(Mul(), x, b.constant(np.float32(first), "a"))
        return b.finish(b.add(Add(), y, b.constant(np.float32(second), "b")), ["y"])

    assert difference(graph(1, 2), graph(1, 2)) is None
    assert difference(graph(1, 2), graph(2, 1)) is not None


def test_bodies_are_compared_too() -> None:
    def graph(op: object) -> Graph:
        inner = Builder("body")
        a = inner.input("a", TensorType(f32, ()))
        body = inner.finish(inner.add(op, a))  # type: ignore[arg-type]
        x, y = Value("x", TensorType(f32, ())), Value("y", body.outputs[0].type)
        return Graph("g", (x,), (), (Node(Fused(body), (x,), (y,)),), (y,), ("y",))

    assert difference(graph(Exp()), graph(Exp())) is None
    assert difference(graph(Exp()), graph(Cast(f16))) is not None
    assert difference(graph(Cast(f16)), graph(Cast(f32))) is not None
    relayout = Relayout(Layout.row_major(0))
    assert difference(graph(relayout), graph(relayout)) is None
