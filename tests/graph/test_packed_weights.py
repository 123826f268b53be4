"""Weights of few bits that stay packed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilesmith as ts
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.frontend.load import load
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import nodes_in
from tilesmith.graph.nodes import Fused, Graph, Value
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.packed_weights import packed_weights
from tilesmith.ir.dtypes import BY_NAME, f32
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Add, Cast, Mul, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.packed import DequantizeBlocks, PackedMatMul, packed_words, unpacked_words
from tilesmith.ops.shape import Transpose
from tilesmith.support.options import Options

DTYPES = {2: ("int2", "uint2"), 4: ("int4", "uint4"), 8: ("i8", "u8")}
PACKED = {"packed": True}
SHAPES = (("x", 80), ("y", 24))


class Weights:
    """A quantised matrix [K, N] in blocks along K, and what it stands for in float64."""

    def __init__(
        self, seed: int, inner: int, columns: int, block: int, dtype: str, zeros: str
    ) -> None:
        rng = np.random.default_rng(seed)
        d, blocks = BY_NAME[dtype], -(-inner // block)
        self.block = block
        self.q = rng.integers(int(d.min), int(d.max) + 1, (inner, columns)).astype(d.numpy)
        self.scale = rng.uniform(0.01, 0.05, (blocks, columns)).astype(np.float32)
        self.zero: np.ndarray | None = None
        if zeros == "each":
            self.zero = rng.integers(int(d.min), int(d.max) + 1, (blocks, columns)).astype(d.numpy)
        elif zeros == "one":
            self.zero = np.full((1, 1), 1, d.numpy)
        elif zeros == "floats":
            self.zero = rng.uniform(0, 2, (blocks, columns)).astype(np.float32)
        number = self.q.astype(np.float64)
        at = np.arange(inner) // block
        if self.zero is not None:
            number -= np.broadcast_to(self.zero, self.scale.shape).astype(np.float64)[at]
        self.matrix = number * self.scale[at].astype(np.float64)

    def add_to(self, b: Builder, turned: bool) -> Value:
        """`dequantize` of the matrix, or of its transpose."""

        def of(array: np.ndarray) -> Value:
            return b.constant(np.ascontiguousarray(array.T if turned else array))

        given = [of(v) for v in (self.scale, self.zero) if v is not None]
        return b.add(DequantizeBlocks(int(turned), self.block), of(self.q), *given)


def product(weights: Weights, rows: tuple[Dim, ...], form: str = "plain") -> Graph:
    """x times the matrix, whose transpose is stored unless `form` is "plain"."""
    b = Builder()
    x = b.input("x", TensorType(f32, (*rows, weights.q.shape[0])))
    w = weights.add_to(b, form != "plain")
    if form == "transpose":
        w = b.add(Transpose((1, 0)), w)
    return b.finish(b.add(MatMul(transpose_b=form == "transpose_b"), x, w), ["y"])


def operators(graph: Graph) -> list[Op]:
    found: list[Op] = []
    for _, node in nodes_in(graph):
        found += [n.op for n in (node.op.body.nodes if isinstance(node.op, Fused) else (node,))]
    return found


def is_packed(graph: Graph) -> bool:
    return any(
        isinstance(op, PackedMatMul) for op in operators(packed_weights(graph, lambda *_: True))
    )


def check(exe: ts.Executable, weights: Weights, rows: tuple[int, ...], seed: int) -> None:
    """Within a few roundings of the sums' terms, which is what a product of floats keeps, too."""
    x = np.random.default_rng(seed).standard_normal((*rows, len(weights.q))).astype(np.float32)
    found = exe.run({"x": x})["y"]
    largest = np.abs(weights.matrix).max(0) + 2 * weights.scale.max(0)
    limit = 4e-7 * np.abs(x).astype(np.float64).sum(-1, keepdims=True) * largest
    assert (np.abs(found - x.astype(np.float64) @ weights.matrix) <= limit).all()


@pytest.mark.parametrize("seed", range(24))
def test_answers_are_those_of_dequantised_weights(seed):
    rng = np.random.default_rng(1000 + seed)
    bits = int(rng.choice([2, 4, 8]))
    block = int(rng.choice([8, 16, 24, 32, 64, 128, 160, 256, 1000]))
    inner, columns = int(rng.integers(8, 300)), int(rng.integers(1, 150))
    rows = tuple(map(int, rng.integers(1, 8, rng.integers(1, 3))))
    zeros = str(rng.choice(["none", "one", "each", "floats"]))
    dtype, form = (
        str(rng.choice(DTYPES[bits])),
        str(rng.choice(["plain", "transpose", "transpose_b"])),
    )
    print(
        f"seed {seed}: {dtype} [{inner}, {columns}] block {block} zeros {zeros} {form} rows {rows}"
    )
    weights = Weights(seed, inner, columns, block, dtype, zeros)
    graph = product(weights, rows, form)
    assert is_packed(graph)
    check(ts.compile(graph, pins=PACKED), weights, rows, seed)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("chunk", [5, 16, 128])
def test_words_hold_every_number(bits, chunk):
    q = np.random.default_rng(bits).integers(0, 1 << bits, (77, 9)).astype(np.uint8)
    words = packed_words(q, bits, chunk)
    back = unpacked_words(words, bits)[:, :chunk].reshape(-1, 9)[:77]
    np.testing.assert_array_equal(back, q)


def test_scales_of_channels_as_importers_write_them():
    weights = Weights(3, 96, 40, 96, "i8", "none")
    b = Builder()
    x = b.input("x", TensorType(f32, (2, 96)))
    number = b.add(
        Sub(), b.add(Cast(BY_NAME["i32"]), b.constant(weights.q)), b.constant(np.int32(0))
    )
    w = b.add(Mul(), b.add(Cast(f32), number), b.constant(weights.scale[0]))
    graph = b.finish(b.add(MatMul(), x, w), ["y"])
    assert is_packed(graph)
    check(ts.compile(graph, pins=PACKED), weights, (2,), 3)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_models_with_scales_of_channels(turned, has_zeros):
    """`DequantizeLinear` with a scale for each column, against ONNX's reference evaluator."""
    rng = np.random.default_rng(9)
    numbers = rng.integers(-128, 128, (24, 80) if turned else (80, 24)).astype(np.int8)
    operands = {"q": numbers, "s": rng.uniform(0.01, 0.05, 24).astype(np.float32)}
    if has_zeros:
        operands["z"] = rng.integers(-9, 9, 24).astype(np.int8)
    nodes = [helper.make_node("DequantizeLinear", [*operands], ["w"], axis=int(not turned))]
    if turned:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "w"], ["y"]))
    rows = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in SHAPES]
    constants = [numpy_helper.from_array(a, n) for n, a in operands.items()]
    made = helper.make_graph(nodes, "g", rows[:1], rows[1:], constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.standard_normal((3, 80)).astype(np.float32)
    wanted = np.asarray([*ReferenceEvaluator(model).run(None, {"x": x})])
    assert is_packed(decompose(load(model)))
    np.testing.assert_allclose(ts.compile(model, pins=PACKED)(x), wanted[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["INT4", "UINT4", "INT8"])
@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
def test_models_with_blocks_of_weights(dtype, kind):
    """`DequantizeLinear` with a block size, against ONNX's reference evaluator."""
    rng = np.random.default_rng(9)
    low, high = (0, 16) if dtype == "UINT4" else (-8, 8)
    numbers = rng.integers(low, high, (80, 24))
    zeros = rng.integers(low, high, (5, 24))
    scales = rng.uniform(0.01, 0.05, (5, 24)).astype(np.float32)
    code = getattr(TensorProto, dtype)
    constants = [
        helper.make_tensor("q", code, numbers.shape, numbers.flatten()),
        numpy_helper.from_array(scales, "s"),
        helper.make_tensor("z", code, zeros.shape, zeros.flatten()),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=16),
        helper.make_node(kind, ["x", "w"], ["y"]),
    ]
    rows = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in SHAPES]
    made = helper.make_graph(nodes, "g", rows[:1], rows[1:], constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.standard_normal((3, 80)).astype(np.float32)
    wanted = np.asarray([*ReferenceEvaluator(model).run(None, {"x": x})])
    assert is_packed(decompose(load(model)))
    np.testing.assert_allclose(ts.compile(model, pins=PACKED)(x), wanted[0], rtol=1e-4, atol=1e-4)


def test_an_epilogue_joins_the_product():
    weights = Weights(4, 64, 80, 32, "uint4", "each")
    b = Builder()
    x = b.input("x", TensorType(f32, (3, 64)))
    bias = np.random.default_rng(0).standard_normal(80).astype(np.float32)
    y = b.add(Add(), b.add(MatMul(), x, weights.add_to(b, False)), b.constant(bias))
    graph = b.finish(y, ["y"])
    packed = packed_weights(graph, lambda *_: True)
    assert len(optimise(packed, Session.of(Options())).nodes) == 1
    values = np.ones((3, 64), np.float32)
    found = ts.compile(graph, pins=PACKED).run({"x": values})["y"]
    np.testing.assert_allclose(found, values @ weights.matrix + bias, 1e-4, 1e-4)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9, 130])
def test_one_program_for_any_number_of_rows(rows):
    weights = Weights(5, 160, 72, 32, "int4", "none")
    graph = product(weights, (symbol("n"),))
    check(ts.compile(graph, pins=PACKED), weights, (rows,), rows)


def test_what_is_no_product_of_rows_stays():
    weights = Weights(6, 32, 8, 8, "u8", "none")
    b = Builder()
    x = b.input("x", TensorType(f32, (2, 8)))
    graph = b.finish(b.add(MatMul(transpose_b=True), x, weights.add_to(b, False)))
    assert packed_weights(graph, lambda *_: True) is graph  # blocks lie along the result's columns


@pytest.mark.parametrize(
    ("rows", "expected"), [((1,), True), ((4,), True), ((4096,), False), ((symbol("n"),), True)]
)
def test_few_rows_read_packed_weights(rows, expected):
    """4-bit weights that caches hold as floats or not: 1024 x 1024."""
    weights = Weights(7, 1024, 1024, 128, "uint4", "none")
    session = Session.of(Options(target="server-64"))
    found = operators(optimise(product(weights, rows), session))
    assert any(isinstance(op, PackedMatMul) for op in found) == expected


def test_strict_accuracy_multiplies_floats():
    weights = Weights(8, 1024, 1024, 128, "uint4", "none")
    session = Session.of(Options(accuracy="strict"))
    found = operators(optimise(product(weights, (1,)), session))
    assert not any(isinstance(op, PackedMatMul) for op in found)
