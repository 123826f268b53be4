"""Passes as text in, text out; on random graphs: the same answers from a verified graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs import conv_net, random_graphs, random_inputs
from hypothesis import given, settings

from tilesmith.graph.builder import Builder
from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Relayout, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.algebra import algebra
from tilesmith.graph.passes.cse import cse
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.fold import fold
from tilesmith.graph.passes.fold_batch_norm import fold_batch_norm
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.dtypes import f32
from tilesmith.ir.layout import Layout
from tilesmith.ir.types import TensorType
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Add, Div, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Expand

Pass = Callable[[Graph], Graph]
PIPELINE: tuple[Pass, ...] = (decompose, fold, algebra, fold, fold_batch_norm, cse, dce)


def program(body: str, inputs: str, result: str = "%y") -> Graph:
    return parse_graph(f'graph g({inputs}) {{\n{body}\nreturn {result} as "y"\n}}')


def kinds(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# Each case: inputs, body, body after `algebra` (None: unchanged).  All return %y.
M = "%x: f32[2,3]"
ALGEBRA = {
    "identity": (
        M,
        "%a: f32[2,3] = identity(%x)\n%y: f32[2,3] = exp(%a)",
        "%y: f32[2,3] = exp(%x)",
    ),
    "add -0.0": (
        M,
        "const %c: f32[] = [-0.0]\n%a: f32[2,3] = add(%x, %c)\n%y: f32[2,3] = exp(%a)",
        "%y: f32[2,3] = exp(%x)",
    ),
    "add 0.0 may change -0.0": (M, "const %c: f32[] = [0.0]\n%y: f32[2,3] = add(%x, %c)", None),
    "add 0.0 to a sum": (
        M,
        "const %c: f32[] = [0.0]\n%a: f32[2] = reduce_sum(%x) {axes=(1,), keepdims=False}\n"
        "%b: f32[2] = add(%a, %c)\n%y: f32[2] = exp(%b)",
        "%a: f32[2] = reduce_sum(%x) {axes=(1,), keepdims=False}\n%y: f32[2] = exp(%a)",
    ),
    "a neutral constant that broadcasts stays": (
        M,
        "const %c: f32[2,1,1] = [1.0, 1.0]\n%y: f32[2,2,3] = mul(%x, %c)",
        None,
    ),
    "add a negation": (
        "%x: f32[2], %z: f32[2]",
        "%a: f32[2] = neg(%z)\n%y: f32[2] = add(%a, %x)",
        "%y: f32[2] = sub(%x, %z)",
    ),
    "div by a power of two": (
        M,
        "const %c: f32[] = [8.0]\n%y: f32[2,3] = div(%x, %c)",
        "const %c: f32[] = [0.125]\n%y: f32[2,3] = mul(%x, %c)",
    ),
    "div by three stays": (M, "const %c: f32[] = [3.0]\n%y: f32[2,3] = div(%x, %c)", None),
    "div by zero stays": (M, "const %c: f32[] = [0.0]\n%y: f32[2,3] = div(%x, %c)", None),
    "square": (
        M,
        "const %c: f32[] = [2.0]\n%y: f32[2,3] = pow(%x, %c)",
        "%y: f32[2,3] = mul(%x, %x)",
    ),
    "integer chain": (
        "%x: i32[2]",
        "const %c: i32[] = [3]\nconst %d: i32[] = [4]\n"
        "%a: i32[2] = add(%x, %c)\n%y: i32[2] = add(%d, %a)",
        "const %c: i32[] = [7]\n%y: i32[2] = add(%x, %c)",
    ),
    "an integer sum after a difference": (
        "%x: i32[2]",
        "const %c: i32[] = [3]\nconst %d: i32[] = [-4]\n"
        "%a: i32[2] = sub(%x, %c)\n%y: i32[2] = add(%d, %a)",
        "const %c: i32[] = [-7]\n%y: i32[2] = add(%x, %c)",
    ),
    "float chain stays": (
        M,
        "const %c: f32[] = [3.0]\nconst %d: f32[] = [4.0]\n"
        "%a: f32[2,3] = add(%x, %c)\n%y: f32[2,3] = add(%a, %d)",
        None,
    ),
    "casts": (
        "%x: f16[2]",
        "%a: f32[2] = cast(%x) {to=f32}\n%y: i32[2] = cast(%a) {to=i32}",
        "%y: i32[2] = cast(%x) {to=i32}",
    ),
    "lossy cast stays": (
        "%x: f32[2]",
        "%a: f16[2] = cast(%x) {to=f16}\n%y: f32[2] = cast(%a) {to=f32}",
        None,
    ),
    "relu then clip": (
        M,
        "%a: f32[2,3] = relu(%x)\n%y: f32[2,3] = clip(%a) {max=6.0}",
        "%y: f32[2,3] = clip(%x) {min=0, max=6.0}",
    ),
    "clips that do not meet stay": (
        M,
        "%a: f32[2,3] = clip(%x) {min=3.0}\n%y: f32[2,3] = clip(%a) {max=2.0}",
        None,
    ),
    "reshapes": (
        M,
        "%a: f32[6] = reshape(%x) {shape=(-1,)}\n%y: f32[3,2] = reshape(%a) {shape=(3, -1)}",
        "%y: f32[3,2] = reshape(%x) {shape=(3, 2)}",
    ),
    "transposes cancel": (
        M,
        "%a: f32[3,2] = transpose(%x) {perm=(1, 0)}\n%b: f32[2,3] = transpose(%a) {perm=(-1, 0)}\n"
        "%y: f32[2,3] = exp(%b)",
        "%y: f32[2,3] = exp(%x)",
    ),
    "a transpose of extents 1 is a reshape": (
        "%x: f32[2,1,3]",
        "%y: f32[1,2,3] = transpose(%x) {perm=(1, 0, 2)}",
        "%y: f32[1,2,3] = reshape(%x) {shape=(1, 2, 3)}",
    ),
    "matmul takes a transpose": (
        "%x: f32[2,3], %z: f32[4,3]",
        "%a: f32[3,4] = transpose(%z) {perm=(1, 0)}\n%y: f32[2,4] = matmul(%x, %a)",
        "%y: f32[2,4] = matmul(%x, %z) {transpose_b=True}",
    ),
    "matmul takes the inner part of a transpose": (
        "%x: f32[2,5,7,4], %z: f32[2,6,5,4]",
        "%a: f32[2,5,4,6] = transpose(%z) {perm=(0, 2, 3, 1)}\n%y: f32[2,5,7,6] = matmul(%x, %a)",
        "%a: f32[2,5,6,4] = transpose(%z) {perm=(0, 2, 1, 3)}\n"
        "%y: f32[2,5,7,6] = matmul(%x, %a) {transpose_b=True}",
    ),
    "expand before a binary": (
        "%x: f32[3], %z: f32[2,3]",
        "%a: f32[2,3] = expand(%x) {shape=(2, 3)}\n%y: f32[2,3] = add(%a, %z)",
        "%y: f32[2,3] = add(%x, %z)",
    ),
    "two expands": (
        "%x: f32[3], %z: f32[]",
        "%a: f32[2,3] = expand(%x) {shape=(2, 3)}\n%b: f32[2,3] = expand(%z) {shape=(2, 3)}\n"
        "%y: f32[2,3] = add(%a, %b)",
        "%b: f32[2,3] = expand(%z) {shape=(2, 3)}\n%y: f32[2,3] = add(%x, %b)",
    ),
    "a number after a transpose": (
        M,
        "const %c: f32[1] = [3.0]\n%a: f32[3,2] = transpose(%x) {perm=(1, 0)}\n"
        "%y: f32[3,2] = mul(%a, %c)",
        "const %c: f32[] = [3.0]\n%a: f32[2,3] = mul(%x, %c)\n"
        "%y: f32[3,2] = transpose(%a) {perm=(1, 0)}",
    ),
    "slice of a transpose": (
        M,
        "%a: f32[3,2] = transpose(%x) {perm=(1, 0)}\n"
        "%y: f32[1,2] = slice(%a) {starts=(1,), ends=(2,), axes=(-2,), steps=(1,)}",
        "%a: f32[2,1] = slice(%x) {starts=(1,), ends=(2,), axes=(1,), steps=(1,)}\n"
        "%y: f32[1,2] = reshape(%a) {shape=(1, 2)}",
    ),
    "unsqueeze of a transpose": (
        M,
        "%a: f32[3,2] = transpose(%x) {perm=(1, 0)}\n"
        "%b: f32[3,1,2] = reshape(%a) {shape=(3, 1, 2)}\n%y: f32[3,1,2] = exp(%b)",
        "%a: f32[2,3] = exp(%x)\n%b: f32[1,2,3] = reshape(%a) {shape=(1, 2, 3)}\n"
        "%y: f32[3,1,2] = transpose(%b) {perm=(2, 0, 1)}",
    ),
    "pad into conv": (
        "%x: f32[1,2,4,4], %w: f32[3,2,3,3]",
        "%a: f32[1,2,6,7] = pad(%x) {pads=(0, 0, 1, 1, 0, 0, 1, 2)}\n"
        "%y: f32[1,3,6,7] = conv(%a, %w) {pads=(1, 1, 1, 1)}",
        "%y: f32[1,3,6,7] = conv(%x, %w) {pads=(2, 2, 2, 3)}",
    ),
    "taps that meet only padding": (
        "%x: f32[1,2,4,5], %w: f32[3,2,3,3]",
        "%y: f32[1,3,4,5] = conv(%x, %w) {pads=(4, 4, 4, 4), dilations=(4, 4)}",
        "%a: f32[3,2,1,3] = slice(%w) {starts=(1, 0), ends=(2, 3), axes=(2, 3), steps=(1, 1)}\n"
        "%y: f32[1,3,4,5] = conv(%x, %a) "
        "{strides=(1, 1), pads=(0, 4, 0, 4), dilations=(4, 4)}",
    ),
    "pad of ones stays": (
        "%x: f32[1,2,4], %w: f32[3,2,3]",
        "%a: f32[1,2,6] = pad(%x) {pads=(0, 0, 1, 0, 0, 1), value=1.0}\n"
        "%y: f32[1,3,4] = conv(%a, %w)",
        None,
    ),
    "gather at a known index": (
        M,
        "const %i: i64[] = [-1]\n%y: f32[2] = gather(%x, %i) {axis=1}",
        "%a: f32[2,1] = slice(%x) {starts=(2,), ends=(3,), axes=(1,), steps=(1,)}\n"
        "%y: f32[2] = reshape(%a) {shape=(2,)}",
    ),
    "where of a known condition": (
        "%x: f32[2], %z: f32[2]",
        "const %c: bool[2] = [False, False]\n%a: f32[2] = where(%c, %x, %z)\n%y: f32[2] = exp(%a)",
        "%y: f32[2] = exp(%z)",
    ),
    "where of a negation": (
        "%c: bool[2], %x: f32[2], %z: f32[2]",
        "%a: bool[2] = logical_not(%c)\n%y: f32[2] = where(%a, %x, %z)",
        "%y: f32[2] = where(%c, %z, %x)",
    ),
    "scatter to rows in order": (
        "%x: f32[5,2], %u: f32[2,2]",
        "const %i: i64[2,1] = [1, 2]\n%s: f32[5,2] = scatter_nd(%x, %i, %u) {reduction=\"none\"}\n"
        "%y: f32[5,2] = exp(%s)",
        "%a: f32[1,2] = slice(%x) {starts=(0,), ends=(1,), axes=(0,), steps=(1,)}\n"
        "%b: f32[2,2] = slice(%x) {starts=(3,), ends=(5,), axes=(0,), steps=(1,)}\n"
        "%s: f32[5,2] = concat(%a, %u, %b) {axis=0}\n%y: f32[5,2] = exp(%s)",
    ),
    "scatter to rows that sums": (
        "%x: f32[5,2], %u: f32[2,2]",
        "const %i: i64[2,1] = [1, 2]\n%y: f32[5,2] = scatter_nd(%x, %i, %u) {reduction=\"add\"}",
        None,
    ),
    "concat drops empty inputs": (
        "%x: f32[2], %z: f32[0]",
        "%a: f32[2] = concat(%x, %z) {axis=0}\n%y: f32[2] = exp(%a)",
        "%y: f32[2] = exp(%x)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ALGEBRA.values(), ids=ALGEBRA)
def test_algebra(case: tuple[str, str, str | None]) -> None:
    inputs, before, after = case
    graph = program(before, inputs)
    verify(graph)
    result = algebra(graph)
    verify(result, "algebra")
    if after is None:
        assert result is graph
    else:
        assert_structural_equal(result, program(after, inputs))
    same_answers(graph, result, exact=True)


def same_answers(before: Graph, after: Graph, *, exact: bool = False) -> None:
    inputs = random_inputs(before)
    expected, found = evaluate(before, inputs), evaluate(after, inputs)
    assert list(expected) == list(found)
    for name, e in expected.items():
        if exact:
            np.testing.assert_array_equal(found[name], e)
        else:
            np.testing.assert_allclose(found[name], e, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(60))
def test_convolutions_without_dead_taps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        size, taps = (tuple(map(int, rng.integers(1, 7, 2))) for _ in range(2))
        strides, dilations = (tuple(map(int, rng.integers(1, high, 2))) for high in (4, 9))
        pads = tuple(map(int, rng.integers(0, 12, 4)))
        reach = [(t - 1) * d + 1 for t, d in zip(taps, dilations, strict=True)]
        if all(s + pads[a] + pads[a + 2] >= reach[a] for a, s in enumerate(size)):
            break
    b = Builder()
    x = b.input("x", TensorType(f32, (1, 2, *size)))
    w = b.input("w", TensorType(f32, (3, 2, *taps)))
    graph = b.finish([b.add(Conv(strides, pads, dilations), x, w)], ["y"])
    result = algebra(graph)
    verify(result, "algebra")
    assert algebra(result) is result
    same_answers(graph, result)


def test_layouts_are_left_alone() -> None:
    x = Value("x", TensorType(f32, (2, 3)), Layout.parse("1 0"))
    y = Value("y", x.type)
    node = Node(Relayout(Layout.row_major(2)), (x,), (y,))
    graph = Graph("g", (x,), (), (node,), (y,), ("y",))
    assert algebra(graph) is graph


# Decompose, fold, cse, dce


def test_decompose_keeps_results_and_locs() -> None:
    graph = conv_net()
    result = decompose(graph)
    verify(result, "decompose")
    assert not any(n.op.is_composite() for n in result.nodes)
    assert {n.loc for n in result.nodes} >= {"conv0", "bn0", "conv1"}
    assert result.outputs == graph.outputs
    assert decompose(result) is result
    same_answers(graph, result)


def test_decompose_goes_down_to_primitives() -> None:
    graph = program("%a: f32[2,1] = silu(%x)\n%y: f32[2] = squeeze(%a) {axes=(1,)}", "%x: f32[2,1]")
    assert kinds(decompose(graph)) == ["sigmoid", "mul", "reshape"]


def test_fold_runs_what_is_known() -> None:
    graph = program(
        "const %a: f32[2] = [1.0, 2.0]\nconst %b: f32[2] = [10.0, 20.0]\n"
        "%c: f32[2] = add(%a, %b)\n%d: f32[2] = softmax(%c)\n%y: f32[2] = mul(%x, %c)",
        "%x: f32[2]",
    )
    result = fold(graph)
    verify(result, "fold")
    assert kinds(result) == ["mul"]
    assert "const %c: f32[2] = [11.0, 22.0]" in print_graph(result)
    assert fold(result) is result


def test_fold_does_not_blow_up_broadcasts() -> None:
    b = Builder()
    one = b.constant(np.float32(1))
    wide = b.add(Expand((1 << 20,)), one)
    graph = b.finish(b.add(Add(), b.input("x", wide.type), wide))
    assert fold(graph) is graph
    assert kinds(fold(graph, limit=1 << 22)) == ["add"]


def test_fold_packs_into_the_layout_of_the_result() -> None:
    layout = Layout.parse("0/4 1 0%4")
    array = np.arange(15, dtype=np.float32).reshape(5, 3)
    w, packed = Value("w", TensorType(f32, (5, 3))), Value("p", TensorType(f32, (5, 3)), layout)
    constant = Constant(w, Data.of(array))
    graph = Graph(
        "g", (), (constant,), (Node(Relayout(layout), (w,), (packed,)),), (packed,), ("y",)
    )
    result = fold(graph, limit=0)
    verify(result, "fold")
    assert not result.nodes
    np.testing.assert_array_equal(result.constants[0].data.array, layout.pack(array))
    same_answers(graph, result, exact=True)


def test_cse_shares_nodes_and_constants() -> None:
    graph = program(
        "const %a: f32[2] = [1.0, 2.0]\nconst %b: f32[2] = [1.0, 2.0]\n"
        "%c: f32[2] = add(%x, %a)\n%d: f32[2] = add(%b, %x)\n"
        "%e: f32[2] = clip(%c) {min=0.0}\n%f: f32[2] = clip(%d) {min=-0.0}\n"
        "%y: f32[2] = sub(%e, %f)",
        "%x: f32[2]",
    )
    result = cse(graph)
    verify(result, "cse")
    assert kinds(result) == ["add", "clip", "clip", "sub"]
    assert len(result.constants) == 1
    assert cse(result) is result


def test_dce_keeps_inputs() -> None:
    graph = program(
        "const %a: f32[2] = [1.0, 2.0]\n%c: f32[2] = add(%x, %a)\n%y: f32[2] = exp(%x)",
        "%x: f32[2], %unused: f32[1]",
    )
    result = dce(graph)
    assert kinds(result) == ["exp"]
    assert not result.constants
    assert len(result.inputs) == 2
    assert dce(result) is result


# Batch normalisation


def anchors() -> dict[str, tuple[object, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Operator, shapes of input, weights and factor."""
    return {
        "conv": (Conv(pads=(1, 1, 1, 1)), (1, 2, 5, 5), (4, 2, 3, 3), (4, 1, 1)),
        "grouped": (Conv(groups=2), (1, 4, 5, 5), (6, 2, 3, 3), (1, 6, 1, 1)),
        "depthwise 1-D": (Conv(groups=3), (2, 3, 7), (3, 1, 3), (3, 1)),
        "transposed": (ConvTranspose(groups=2), (1, 4, 3, 3), (4, 3, 2, 2), (6, 1, 1)),
        "matmul": (MatMul(), (5, 4), (4, 3), (3,)),
        "matmul transpose_b": (MatMul(transpose_b=True), (2, 5, 4), (3, 4), (3,)),
        "scalar": (MatMul(), (5, 4), (4, 3), ()),
    }  # fmt: skip


@pytest.mark.parametrize("case", anchors().values(), ids=anchors())
def test_scales_and_shifts_fold_into_weights(case: tuple) -> None:
    op, x_shape, w_shape, f_shape = case
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> Value:
        return b.constant(np.asarray(rng.uniform(0.5, 2, shape), np.float32))

    b = Builder()
    y = b.add(op, b.input("x", TensorType(f32, x_shape)), constant(*w_shape))
    for step in (Mul(), Add(), Sub(), Div(), Add()):
        y = b.add(step, y, constant(*f_shape))
    graph = b.finish(y)
    result = fold_batch_norm(graph)
    verify(result, "fold_batch_norm")
    assert kinds(result) == [op.name, "add"]
    assert fold_batch_norm(result) is result
    same_answers(graph, result)


def test_a_bias_in_front_of_the_scale_is_scaled() -> None:
    graph = fold(decompose(conv_net()))
    result = fold_batch_norm(graph)
    verify(result, "fold_batch_norm")
    assert kinds(result)[:4] == ["conv", "add", "relu", "conv"]
    before = kinds(result)[: kinds(result).index("reduce_max")]
    assert "mul" not in before  # the scale before the softmax went into w2
    same_answers(graph, result)


@pytest.mark.parametrize(
    ("before", "inputs"),
    [
        # the unscaled product is read elsewhere
        (
            "%a: f32[2,2] = matmul(%x, %w)\n%b: f32[2,2] = mul(%a, %c)\n%y: f32[2,2] = add(%a, %b)",
            "",
        ),
        # a factor per row
        ("%a: f32[2,2] = matmul(%x, %w)\n%y: f32[2,2] = mul(%a, %r)", ""),
        # weights that are not known
        ("%a: f32[2,2] = matmul(%x, %v)\n%y: f32[2,2] = mul(%a, %c)", ", %v: f32[2,2]"),
        # weights would become infinite
        ("%a: f32[2,2] = matmul(%x, %w)\n%y: f32[2,2] = mul(%a, %huge)", ""),
        ("%a: f32[2,2] = matmul(%x, %w)\n%y: f32[2,2] = div(%a, %zero)", ""),
    ],
)
def test_what_does_not_fold(before: str, inputs: str) -> None:
    constants = (
        "const %w: f32[2,2] = [1.0, 2.0, 3.0, 1e20]\nconst %c: f32[2] = [2.0, 3.0]\n"
        "const %r: f32[2,1] = [2.0, 3.0]\nconst %huge: f32[] = [1e30]\nconst %zero: f32[] = [0.0]\n"
    )
    graph = dce(program(constants + before, "%x: f32[2,2]" + inputs))
    assert fold_batch_norm(graph) is graph


# All of them


def test_the_pipeline_on_a_network() -> None:
    graph = conv_net()
    result = graph
    for step in PIPELINE:
        result = step(result)
        verify(result, step.__name__)
    same_answers(graph, result)
    assert not {"mul", "sub"} & set(kinds(result)[:5])


@settings(max_examples=150, deadline=None)
@given(random_graphs())
def test_passes_keep_the_answers_of_random_graphs(graph: Graph) -> None:
    inputs = random_inputs(graph)
    expected = evaluate(graph, inputs)
    for step in PIPELINE:
        after = step(graph)
        verify(after, step.__name__)
        found = evaluate(after, inputs)
        for name, e in expected.items():
            np.testing.assert_allclose(
                found[name],
                e,
                rtol=1e-4,
                atol=1e-5,
                err_msg=f"{step.__name__}\n{print_graph(graph)}",
            )
        if step in (decompose, fold, cse, dce):
            assert step(after) is after
        graph = after
