"""Products of float models on operands of 16 bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.codegen import targets
from tilesmith.driver.automatic import choose_precision
from tilesmith.driver.checking import check
from tilesmith.driver.kernels import canonical
from tilesmith.driver.passes import lower_loops, optimise
from tilesmith.driver.precision import products_of
from tilesmith.driver.session import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import If, Loop, graphs_in
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.passes.low_precision import low_products
from tilesmith.graph.text import print_graph
from tilesmith.ir.dtypes import bf16, bool_, f32, i64
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv, ConvTranspose
from tilesmith.ops.elementwise import Add, Cast
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import Softmax
from tilesmith.ops.slicing import Concat, Slice
from tilesmith.ops.winograd import WinogradConv
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.options import Options
from tilesmith.support.precision import precision_text

WITH_BF16 = "x86-64-v4+avx512bf16"
EPS = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""The largest relative error of rounding to a type."""


def dense(rows: int, sizes: tuple[int, ...], seed: int = 0) -> Graph:
    """Layers `fc0`, `fc1` and so on, with biases and activations between them."""
    rng = np.random.default_rng(seed)
    b = Builder("dense")
    y = b.input("x", TensorType(f32, (rows, sizes[0])))
    for i, (k, n) in enumerate(pairwise(sizes)):
        w = b.constant(rng.standard_normal((k, n), np.float32))
        y = b.add(MatMul(), y, w, loc=f"fc{i}")
        y = b.add(Relu(), b.add(Add(), y, b.constant(rng.standard_normal(n, np.float32))))
    return b.finish([y], ["y"])


def network() -> Graph:
    """Convolutions around a residual sum, attention without weights, and a classifier."""
    rng = np.random.default_rng(1)

    def weights(*shape: int):
        return b.constant(rng.standard_normal(shape, np.float32) / 8)

    b = Builder("network")
    x = b.input("x", TensorType(f32, (1, 8, 6, 6)))
    y = b.add(Relu(), b.add(Conv(pads=(1, 1, 1, 1)), x, weights(32, 8, 3, 3), loc="conv0"))
    z = b.add(Conv(pads=(1, 1, 1, 1), groups=32), y, weights(32, 1, 3, 3), loc="depthwise")
    y = b.add(Add(), y, b.add(Conv(), z, weights(32, 32, 1, 1), loc="conv1"))
    p = b.add(Softmax(), b.add(MatMul(transpose_b=True), z, b.add(Relu(), z), loc="scores"))
    y = b.add(MatMul(), b.add(MatMul(), p, y, loc="mixed"), weights(6, 40), loc="head/fc")
    return b.finish([y], ["y"])


def types(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The types of the operands of each product, by name."""
    bodies = [n.op.body if isinstance(n.op, Fused) else graph for n in graph.nodes]
    return {
        n.loc: tuple(str(v.dtype) for v in n.inputs)
        for body in bodies
        for n in body.nodes
        if isinstance(n.op, (MatMul, Conv))
    }


def assembly(graph: Graph, target: str | Target, precision: str = "bf16") -> dict[str, str]:
    """The machine code of each kernel, by its operators."""
    session = Session.of(Options(precision=precision, threads=1))
    session = replace(session, target=targets.target(target))
    fused = optimise(graph, session)
    found: dict[str, str] = {}
    for n in fused.nodes:
        assert isinstance(n.op, Fused)
        constants = [i for i, v in enumerate(n.inputs) if v in fused.constant]
        nest = session.group(canonical(n.op.body), constants).lower("k")
        kernel = session.backend.emit(lower_loops(nest, session), session.target)
        name = "+".join(m.op.name for m in n.op.body.nodes)
        found[name] = session.backend.tools.assembly(kernel.text, session.target)
    return found


def count(text: str, instruction: str) -> int:
    return len(re.findall(rf"^\s+{instruction}", text, re.MULTILINE))


def test_what_becomes_low(golden: Callable[[str], None]) -> None:
    session = Session.of(Options(target=WITH_BF16, precision="bf16", threads=1))
    golden(print_graph(optimise(network(), session)))


def test_where_the_target_multiplies_low_types() -> None:
    session = Session.of(Options(target=WITH_BF16, precision="bf16"))
    found = types(optimise(network(), session))
    low, plain = ("bf16", "bf16"), ("f32", "f32")
    assert found == {
        "conv0": low, "depthwise": plain, "conv1": low,
        "scores": plain, "mixed": plain, "head/fc": low,
    }  # fmt: skip


def test_convolutions_that_winograd_computes_faster_stay_f32() -> None:
    """56 x 56 images of 64 channels do, 7 x 7 ones of 512 channels wait for transformed weights."""
    rng = np.random.default_rng(4)
    for channels, size, op, dtype in ((64, 56, WinogradConv, "f32"), (512, 7, Conv, "bf16")):
        b = Builder("window")
        x = b.input("x", TensorType(f32, (1, channels, size, size)))
        w = b.constant(rng.standard_normal((channels, channels, 3, 3), np.float32))
        graph = b.finish([b.add(Conv(pads=(1, 1, 1, 1)), x, w, loc="conv")], ["y"])
        session = Session.of(Options(target=WITH_BF16, precision="bf16", threads=1))
        bodies = [n.op.body for n in optimise(graph, session).nodes if isinstance(n.op, Fused)]
        (found,) = (n for body in bodies for n in body.nodes if isinstance(n.op, op))
        assert all(str(v.dtype) == dtype for v in found.inputs)
        forms = [layer.form for layer in choose_precision(graph, session).layers]
        assert forms == [None if dtype == "f32" else "operands"]


def test_weights_are_low_where_a_kernel_waits_for_them() -> None:
    session = Session.of(Options(target="x86-64-v3", precision="bf16"))
    few = types(optimise(dense(1, (2048, 2048, 2048)), session))
    many = types(optimise(dense(256, (2048, 2048, 2048)), session))
    small = types(optimise(dense(1, (64, 64)), session))
    assert few == {"fc0": ("f32", "bf16"), "fc1": ("f32", "bf16")}
    assert many == {"fc0": ("f32", "f32"), "fc1": ("f32", "f32")}
    assert small == {"fc0": ("f32", "f32")}


@pytest.mark.parametrize(
    ("low", "target"),
    [("bf16", "x86-64-v3"), ("bf16", "x86-64-v2"), ("bf16", "c"), ("f16", "x86-64-v3")],
)
@pytest.mark.parametrize("seed", range(2))
def test_answers_are_near_those_of_f64(low: str, target: str, seed: int) -> None:
    """The error of a sum of products is at most that of rounding each weight."""
    rng = np.random.default_rng(seed)
    rows, k, n = (
        int(rng.integers(1, 3)),
        int(rng.integers(1100, 1300)),
        int(rng.integers(900, 1100)),
    )
    graph = dense(rows, (k, n), seed)
    session = Session.of(Options(target=target, precision=low))
    assert types(optimise(graph, session)) == {"fc0": ("f32", low)}, (seed, rows, k, n)
    w = next(c.data.array for c in graph.constants if c.value.type.rank == 2).astype(np.float64)
    bias = next(c.data.array for c in graph.constants if c.value.type.rank == 1)
    x = rng.standard_normal((rows, k), np.float32)
    found = ts.compile(graph, target=target, precision=low)(x)
    wanted = np.maximum(x @ w + bias, 0)
    bound = EPS[low] * (np.abs(x) @ np.abs(w)) + 1e-3
    assert (np.abs(found - wanted) <= bound).all(), (seed, rows, k, n)
    assert np.abs(found - wanted).max() > 0


def test_products_of_low_operands_are_near_those_of_f32() -> None:
    """The meaning of the graph that a machine with such instructions runs."""
    graph = network()
    x = {"x": np.random.default_rng(2).standard_normal((1, 8, 6, 6), np.float32)}
    (wanted,) = evaluate(graph, x).values()
    session = Session.of(Options(target=WITH_BF16, precision="bf16"))
    (found,) = evaluate(optimise(graph, session), x).values()
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 0 < error < 8 * EPS["bf16"]


def test_every_kernel_agrees_with_its_reference() -> None:
    for low in ("bf16", "f16"):
        checks = check(dense(2, (1100, 1001)), options=Options(precision=low))
        assert all(c.passed for c in checks), checks


def test_models_of_bf16_use_the_instruction_and_no_spills() -> None:
    """The main loop of a product of 1024^3: a register tile of products for one load of weights."""
    texts = assembly(dense(1024, (1024, 1024, 1024)), WITH_BF16)
    text = texts["matmul+add+relu+cast"]
    assert count(text, "vdpbf16ps") == 40
    assert count(text, r"vmovups\s+\S*%rsp") + count(text, "vfmadd") == 0
    assert count(text, "vcvt") == count(text, "vcvtneps2bf16") == 40, "results, each once"


def test_results_are_converted_by_the_instruction() -> None:
    """Rounding in integers takes ten instructions; strict results are rounded so."""
    b = Builder("casts")
    x = b.input("x", TensorType(f32, (4, 64)))
    graph = b.finish([b.add(Cast(bf16), b.add(Relu(), x))], ["y"])
    plain = Options(target=WITH_BF16, threads=1)
    for options, instruction, other in (
        (plain, "vcvtneps2bf16", "vpsrld"),
        (replace(plain, accuracy="strict"), "vpsrld", "vcvtneps2bf16"),
    ):
        session = Session.of(options)
        (n,) = optimise(graph, session).nodes
        assert isinstance(n.op, Fused)
        nest = session.group(canonical(n.op.body), []).lower("k")
        kernel = session.backend.emit(lower_loops(nest, session), session.target)
        text = session.backend.tools.assembly(kernel.text, session.target)
        assert count(text, instruction) > 0 == count(text, other), options.accuracy


def test_tiles_multiply_both_types() -> None:
    graph = dense(64, (64, 64))
    for low, instruction in (("bf16", "tdpbf16ps"), ("f16", "tdpfp16ps")):
        features = "+amx-tile+amx-bf16+amx-fp16+avx512bf16"
        text = assembly(graph, f"x86-64-v4{features}", low)["matmul+add+relu"]
        assert count(text, instruction) == 4, low


def test_conversions_need_no_library() -> None:
    graph = dense(1, (1100, 1008))
    for target in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        (text,) = assembly(graph, target).values()
        shifts, loads = count(text, "v?pslld"), count(text, "v?pmovzxwd")
        assert shifts == loads > 0, target
        assert "__" not in text, target
    (half,) = assembly(graph, "x86-64-v3", "f16").values()
    assert count(half, "vcvtph2ps") > 0
    assert "__" not in half


def test_pins() -> None:
    pins = {"fc1": "f32", "fc*": "bf16"}
    options = Options(target="x86-64-v3", precision=precision_text(pins))
    found = types(optimise(dense(1, (2048, 2048, 2048, 2048)), Session.of(options)))
    assert found == {
        "fc0": ("f32", "bf16"), "fc1": ("f32", "f32"), "fc2": ("f32", "bf16"),
    }  # fmt: skip
    exe = ts.compile(dense(1, (64, 64, 64)), precision=pins)
    assert exe(np.ones((1, 64), np.float32)).shape == (1, 64)


def test_weights_that_a_type_can_not_hold_stay_f32() -> None:
    b = Builder("large")
    x = b.input("x", TensorType(f32, (1, 2048)))
    w = np.full((2048, 2048), 1e5, np.float32)
    graph = b.finish([b.add(MatMul(), x, b.constant(w), loc="fc")], ["y"])
    for low, wanted in (("f16", "f32"), ("bf16", "bf16")):
        session = Session.of(Options(target="x86-64-v3", precision=low))
        assert types(optimise(graph, session)) == {"fc": ("f32", wanted)}


def test_names_of_products() -> None:
    assert products_of(network()) == ("conv0", "depthwise", "conv1", "head/fc")


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("int3", r"precision must be f32, bf16, f16 or auto.*found 'int3'"),
        ("", "precision must be f32"),
        ({"fc0": "f64"}, r"found 'fc0=f64'"),
        ({}, "types by pattern"),
        ({"a,b": "f32"}, "without commas"),
        ("bf16, fc0=f32", "'bf16' stands alone"),
        ({"conv*": "bf16"}, r"no product is called 'conv\*'; the products are 'fc0'"),
    ],
)
def test_wrong_use(precision: str | dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ts.compile(dense(1, (8, 8)), precision=precision)


def test_a_model_without_products() -> None:
    b = Builder("none")
    graph = b.finish([b.add(Relu(), b.input("x", TensorType(f32, (4,))))], ["y"])
    with pytest.raises(UsageError, match="has no product or convolution of f32"):
        ts.compile(graph, precision="bf16")


def test_strict_refuses() -> None:
    with pytest.raises(UsageError, match="accuracy='strict' does not allow"):
        ts.compile(dense(1, (8, 8)), precision="bf16", accuracy="strict")


def test_strict_results_of_bf16_models_use_no_instruction_that_rounds_otherwise() -> None:
    options = Options(target=WITH_BF16, accuracy="strict")
    assert "avx512bf16" not in Session.of(options).target.features
    with pytest.raises(UsageError, match=r"unknown feature 'avx9'.*avx512bf16"):
        Session.of(Options(target="x86-64-v4+avx9"))


def test_auto_takes_what_stays_inside_the_policy() -> None:
    for target, text, low in ((WITH_BF16, "bf16", "bf16"), ("x86-64-v3", "f32", "f32")):
        chosen = choose_precision(network(), Session.of(Options(target=target)))
        assert chosen.text == text
        assert {layer.name: layer.type for layer in chosen.layers} == {
            "conv0": low, "depthwise": "f32", "conv1": low, "head/fc": low,
        }  # fmt: skip
        assert chosen.error <= chosen.bound
        measured = {layer.name: layer.error for layer in chosen.layers if layer.form}
        assert all(e is not None and 0 < e < EPS["bf16"] * 2 for e in measured.values())


def test_auto_leaves_layers_with_large_errors_in_f32() -> None:
    """Large terms cancel each other in `fc1`: what rounding leaves of them is all of its error."""
    rng = np.random.default_rng(3)
    n = 2048
    b = Builder("cancelling")
    x = b.input("x", TensorType(f32, (1, n)))
    y = b.add(MatMul(), x, b.constant(rng.standard_normal((n, n), np.float32)), loc="fc[0],a")
    w = 30 + rng.standard_normal((n, n), np.float32)
    w[n // 2 :] = -w[: n // 2] + rng.standard_normal((n // 2, n), np.float32) * 0.01
    doubled = b.add(Concat(1), *[b.add(Slice((0,), (n // 2,), (1,), (1,)), y)] * 2)
    z = b.add(MatMul(), doubled, b.constant(w), loc="fc1")
    graph = b.finish([z], ["z"])
    exe = ts.compile(graph, precision="auto", target="x86-64-v3")
    told = exe.program.metadata["precision"]
    found = {layer["name"]: (layer["type"], layer["error"]) for layer in told["layers"]}
    assert found["fc1"][0] == "f32" and found["fc1"][1] > told["bound"]
    assert found["fc[0],a"][0] == "f16"
    assert told["precision"] == "fc[[]0]?a=f16"
    again = ts.compile(graph, precision=told["precision"], target="x86-64-v3")
    sample = rng.standard_normal((1, n), np.float32)
    np.testing.assert_array_equal(exe(sample), again(sample))


def test_wrong_use_of_auto() -> None:
    graph = dense(1, (8, 8))
    sample = {"x": np.zeros((1, 8), np.float32)}
    with pytest.raises(UsageError, match="samples are for precision='auto', not 'bf16'"):
        ts.compile(graph, precision="bf16", samples=sample)
    with pytest.raises(ModelError, match="'y'"):
        ts.compile(dense(1, (2048, 2048)), precision="auto", samples={"y": sample["x"]})
    with pytest.raises(UsageError, match="decided by measuring when a model is compiled"):
        check(graph, options=Options(precision="auto"))


def test_aarch64_multiplies_pairs_of_bf16() -> None:
    """The rules are those of x86-64: the instruction is found by its behaviour."""
    features = frozenset({"neon", "fp-armv8", "bf16"})
    target = Target("arm", "aarch64-unknown-linux-gnu", "generic", features, 128, 32)
    text = assembly(dense(64, (64, 64)), target)["matmul+add+relu"]
    assert count(text, "bfmmla") > 8
    assert count(text, "fmla") == 0
    plain = replace(target, features=features - {"bf16"})
    (text,) = assembly(dense(1, (1100, 1008)), plain).values()
    assert count(text, "fmla") > 0
    assert count(text, r"(u?shll|shl|zip1)\b") > 0, "bits are moved up, by no library"


def test_all_products_of_a_training_step_get_operands_of_16_bits_and_sums_of_32() -> None:
    b = Builder()
    x, w = (b.input(name, TensorType(f32, (4, 4))) for name in "xw")
    graph = b.finish([b.add(MatMul(), x, w), b.add(Add(), x, w)], ["product", "sum"])
    low = low_products(graph, bf16)
    (product,) = (n for n in low.nodes if isinstance(n.op, MatMul))
    assert [v.dtype for v in product.inputs] == [bf16, bf16] and product.op.to is f32
    assert [v.dtype for v in low.outputs] == [f32, f32]
    assert low_products(low, bf16) is low


def test_products_of_branches_and_loops_get_operands_of_16_bits() -> None:
    kind = TensorType(f32, (4, 4))
    b = Builder()
    _, y, w = b.input("i", TensorType(i64, ())), b.input("y", kind), b.input("w", kind)
    inner = b.finish([b.add(MatMul(), y, w)], ["y"])
    b = Builder()
    y, w = b.input("y", kind), b.input("w", kind)
    steps = b.finish([b.add(Loop(inner, 1, steps=3), y, w)], ["y"])
    b = Builder()
    c, y, w = b.input("c", TensorType(bool_, ())), b.input("y", kind), b.input("w", kind)
    graph = b.finish([b.add(If(steps, steps), c, y, w)], ["y"])
    low = low_products(graph, bf16)
    products = [n for g in graphs_in(low) for n in g.nodes if isinstance(n.op, MatMul)]
    assert len(products) == 2
    assert all([v.dtype for v in n.inputs] == [bf16, bf16] for n in products)
    assert low_products(low, bf16) is low


def test_operands_of_a_transposed_convolution_are_rounded_to_16_bits() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 3, 4, 4), (3, 2, 3, 3)))
    b = Builder()
    inputs = [b.input(name, TensorType(f32, a.shape)) for name, a in (("x", x), ("w", w))]
    graph = b.finish([b.add(ConvTranspose(), *inputs)], ["y"])
    low = low_products(graph, bf16)
    assert low_products(low, bf16) is low
    rounded = [a.astype(bf16.numpy).astype(np.float32) for a in (x, w)]
    np.testing.assert_array_equal(evaluate(low, [x, w])["y"], evaluate(graph, rounded)["y"])
    assert not np.array_equal(evaluate(low, [x, w])["y"], evaluate(graph, [x, w])["y"])
