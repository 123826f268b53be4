"""Products by instructions on whole tiles: the code where no machine here has them, and its
meaning.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from assembly_loops import innermost_loops
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesmith as ts
from tilesmith import driver
from tilesmith.codegen import targets
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.targets import host
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import DType, bf16, f16, f32, i8, i16, i32, u8
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import tensor_intrinsic
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul
from tilesmith.support.options import Options

AMX = "x86-64-v4+avx512bf16+avx512vnni+amx-tile+amx-bf16+amx-fp16+amx-int8"


def arm(*features: str) -> Target:
    known = frozenset({"neon", "fp-armv8", *features})
    return Target("arm", "aarch64-unknown-linux-gnu", "generic", known, 128, 32)


MATRICES = arm("dotprod", "i8mm", "bf16")
PRODUCT = {bf16: "tdpbf16ps", f16: "tdpfp16ps", i8: "tdpbssd"}


def graph_of(
    op: Op, x: tuple[int, ...], w: tuple[int, ...], d: DType, of_w: DType | None = None
) -> tuple[Graph, np.ndarray]:
    """`op` with constant weights of small whole numbers, of type `of_w` or `d`, and these."""
    weights = np.random.default_rng(3).integers(-8, 9, w).astype((of_w or d).numpy)
    b = Builder()
    return b.finish(
        [b.add(op, b.input("x", TensorType(d, x)), b.constant(weights))], ["y"]
    ), weights


def kernel(graph: Graph, target: str | Target = AMX) -> tuple[Fused, Func, driver.Session]:
    """The kernel of the graph's product, as a loop nest."""
    session = driver.Session.of(Options(threads=2, use_records=False))
    session = replace(session, target=targets.target(target))
    nodes = driver.optimise(graph, session).nodes
    op = next(n.op for n in nodes if isinstance(n.op, Fused) and len(n.op.body.inputs) == 2)
    return op, session.group(driver.canonical(op.body)).lower("k"), session


def code(graph: Graph, target: str | Target = AMX) -> str:
    _, nest, session = kernel(graph, target)
    final = driver.run_loop_passes(nest, session)
    return assembly(emit(final, session.target).text, session.target)


CASES = {
    "bf16": (MatMul(to=f32), (128, 96), (96, 64), bf16, (2, 2)),
    "f16": (MatMul(to=f32), (128, 96), (96, 64), f16, (2, 2)),
    "int8": (MatMul(to=i32), (128, 192), (192, 64), i8, (2, 2)),
    "rows that 16 does not divide": (MatMul(to=f32), (104, 96), (96, 64), bf16, (2, 2)),
    "a tail of rows": (MatMul(to=f32), (37, 96), (96, 64), bf16, (1, 2)),
    "1x1": (Conv(to=f32), (1, 64, 14, 14), (96, 64, 1, 1), bf16, (1, 2)),
    "3x3": (Conv(to=i32, pads=(1, 1, 1, 1)), (1, 64, 14, 14), (96, 64, 3, 3), i8, (1, 3)),
    "stride 2": (Conv(to=f32, strides=(2, 2)), (1, 32, 13, 13), (32, 32, 3, 3), bf16, (1, 2)),
    "half a tile of steps": (MatMul(to=f32), (128, 48), (48, 64), bf16, (2, 2)),
    "a tail of columns": (MatMul(to=f32), (128, 96), (96, 40), bf16, (2, 1)),
    "channels and columns of a window": (
        Conv(to=f32, strides=(2, 2)), (1, 4, 37, 37), (32, 4, 7, 7), bf16, (1, 2),
    ),
}  # fmt: skip
"""An operator, its shapes and type, and the tiles of a block."""


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_tiles_stay_in_registers(case: str) -> None:
    op, x, w, d, (rows, columns) = CASES[case]
    text = code(graph_of(op, x, w, d)[0])
    loops = [loop for loop in innermost_loops(text) if PRODUCT[d] in loop]
    for loop in loops:
        assert loop.count(PRODUCT[d]) == rows * columns
        assert loop.count("tileloadd") == rows + columns, "each tile is loaded once"
        assert not re.search(r"tilestored|tilezero|ldtilecfg|%[xyz]mm", loop), loop
    assert len(loops) == 1 + ("a tail of" in case)
    assert (
        text.count("ldtilecfg")
        == text.count("tilerelease")
        == len(loops) - (case == "a tail of rows")
    ), "outside of all loops"
    assert not re.search("vdpbf16ps|vpdp|vfmadd", text), "tails have an instruction, too"


PADDED = Conv(to=i32, pads=(1, 1, 1, 1))
VECTORS: dict[str, tuple[Op, tuple[int, ...], DType, DType, str | Target, str]] = {
    "vpdpbusd": (MatMul(to=i32), (64, 64), u8, i8, "x86-64-v4+avx512vnni", "vpdpbusd"),
    "vpdpbusd, 3x3": (PADDED, (1, 64, 14, 14), u8, i8, "x86-64-v4+avx512vnni", "vpdpbusd"),
    "vpdpwssd": (MatMul(to=i32), (64, 64), i16, i16, "x86-64-v4+avx512vnni", "vpdpwssd"),
    "vpdpwssd, 3x3": (PADDED, (1, 64, 14, 14), i16, i16, "x86-64-v4+avx512vnni", "vpdpwssd"),
    "vdpbf16ps": (MatMul(to=f32), (64, 64), bf16, bf16, "x86-64-v4+avx512bf16", "vdpbf16ps"),
    "vdpbf16ps, 3x3": (
        replace(PADDED, to=f32), (1, 64, 14, 14), bf16, bf16, "x86-64-v4+avx512bf16", "vdpbf16ps",
    ),
    "sdot": (MatMul(to=i32), (64, 64), i8, i8, arm("dotprod"), "sdot"),
    "udot": (MatMul(to=i32), (64, 64), u8, u8, arm("dotprod"), "udot"),
    "usdot": (MatMul(to=i32), (63, 64), u8, i8, arm("i8mm"), "usdot"),
    "bfdot": (MatMul(to=f32), (63, 64), bf16, bf16, arm("bf16"), "bfdot"),
    "smmla": (MatMul(to=i32), (64, 64), i8, i8, MATRICES, "smmla"),
    "ummla": (MatMul(to=i32), (64, 64), u8, u8, MATRICES, "ummla"),
    "usmmla": (MatMul(to=i32), (64, 64), u8, i8, MATRICES, "usmmla"),
    "smmla, 3x3": (PADDED, (1, 64, 14, 14), i8, i8, MATRICES, "smmla"),
    "bfmmla": (MatMul(to=f32), (64, 64), bf16, bf16, MATRICES, "bfmmla"),
}  # fmt: skip
"""An operator, the shape of its first factor, the types of both, a target, and the instruction."""


@pytest.mark.parametrize("case", VECTORS)
def test_main_loops_multiply_in_registers(case: str) -> None:
    op, x, d, of_w, target, instruction = VECTORS[case]
    w = (64, 64, 3, 3) if isinstance(op, Conv) else (64, 64)
    text = code(graph_of(op, x, w, d, of_w)[0], target)
    loops = [loop for loop in innermost_loops(text) if instruction in loop]
    assert loops
    assert max(loop.count(f"\t{instruction}\t") for loop in loops) >= 12
    for loop in loops:
        assert not re.search(r"\(%rsp\).*%[xyz]mm|%[xyz]mm.*\(%rsp\)|q\d+.*\[(sp|x29)", loop), loop


@pytest.mark.parametrize(
    ("op", "x", "w", "d", "instruction"),
    [
        (MatMul(to=f32), (21, 64), (64, 16), bf16, "tdpbf16ps"),
        (MatMul(to=i32), (20, 64), (64, 32), i8, "tdpbssd"),
        (MatMul(to=i32), (6, 16), (16, 8), i8, "smmla"),
        (MatMul(to=f32), (6, 16), (16, 8), bf16, "bfmmla"),
        (
            Conv(to=f32, pads=(1, 1, 0, 0), strides=(2, 2)),
            (1, 32, 5, 5),
            (16, 32, 2, 2),
            f16,
            "tdpfp16ps",
        ),
    ],
)
def test_the_interpreter_agrees(
    op: Op, x: tuple[int, ...], w: tuple[int, ...], d: DType, instruction: str
) -> None:
    """Before and after the loops became calls; machine code where this machine can run it."""
    graph, weights = graph_of(op, x, w, d)
    numbers = np.random.default_rng(4).integers(-8, 9, x).astype(d.numpy)
    wanted = op.reference(numbers, weights)
    nest, final = check(
        graph, numbers, weights, wanted, AMX if instruction.startswith("tdp") else MATRICES
    )
    assert f"tensor {instruction}" in str(nest) and f"tensor_{instruction}" in str(final)
    if tensor_intrinsic(instruction).features <= host().features:
        np.testing.assert_array_equal(ts.compile(graph)(numbers), wanted)


def check(
    graph: Graph, numbers: np.ndarray, weights: np.ndarray, wanted: np.ndarray, target: str | Target
) -> tuple[Func, Func]:
    """The kernel before and after the loop passes, both of which give what is wanted."""
    fused, nest, session = kernel(graph, target)
    final = driver.run_loop_passes(nest, session)
    layouts = [v.layout for v in fused.body.inputs]
    arrays = [
        a if lay is None else lay.pack(a)
        for a, lay in zip((numbers, weights), layouts, strict=True)
    ]
    layout = fused.body.outputs[0].layout
    for func in (nest, final):
        shapes = [tuple(n for n in b.shape if isinstance(n, int)) for b in func.buffers]
        found = np.zeros(shapes[-1], wanted.dtype)
        interpret(func, [*(a.reshape(s) for a, s in zip(arrays, shapes)), found])
        plain = found.reshape(list(shapes[-1]))
        if layout is not None:
            plain = layout.unpack(plain.reshape(layout.physical_shape(wanted.shape)), wanted.shape)
        np.testing.assert_array_equal(plain.reshape(wanted.shape), wanted)
    return nest, final


@pytest.mark.parametrize(("terms", "extra"), [(512, 0), (2048, 1)])
def test_units_stay_awake_in_long_loops(terms: int, extra: int) -> None:
    """A block of 2 x 2 tiles is stored at the end, and one tile more in a loop that is long."""
    text = code(graph_of(MatMul(to=f32), (128, terms), (terms, 64), bf16)[0])
    assert text.count("tilestored") == 4 + extra


@pytest.mark.parametrize("fmas", [1.0, 4.0])
def test_one_row_takes_vectors(fmas: float) -> None:
    """Dot products of vectors, where they are faster than multiply-adds of f32."""
    target = targets.target(AMX).with_model(bf16_dot_fmas=fmas)
    text = code(graph_of(MatMul(to=f32), (1, 96), (96, 64), bf16)[0], target)
    assert "tdpbf16ps" not in text and ("vdpbf16ps" in text) == (fmas == 1.0)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_any_shape_on_tiles(data: st.DataObject) -> None:
    """Tails of rows, steps and columns, windows, strides and borders; machine code, too, where this
    machine can run it.
    """
    draw = data.draw
    d = draw(st.sampled_from([bf16, f16, i8]))
    to = i32 if d is i8 else f32
    depth = 4 if d is i8 else 2
    k, n = draw(st.integers(1, 24)) * depth, draw(st.integers(2, 50))
    if draw(st.booleans()):
        op: Op = MatMul(to=to)
        x, w = (draw(st.integers(2, 70)), k), (k, n)
    else:
        kh, kw = draw(st.integers(1, 3)), draw(st.integers(1, 4))
        pads = tuple(draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)))
        strides = tuple(draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)))
        op = Conv(to=to, pads=pads, strides=strides)
        size = draw(st.integers(4, 9)), draw(st.integers(4, 19))
        x, w = (1, k, *size), (n, k, kh, kw)
    graph, weights = graph_of(op, x, w, d)
    numbers = np.random.default_rng(4).integers(-8, 9, x).astype(d.numpy)
    check(graph, numbers, weights, op.reference(numbers, weights), AMX)
    if tensor_intrinsic(PRODUCT[d]).features <= host().features:
        np.testing.assert_array_equal(ts.compile(graph)(numbers), op.reference(numbers, weights))


def test_targets_without_tiles() -> None:
    text = code(graph_of(MatMul(to=f32), (128, 96), (96, 64), bf16)[0], "x86-64-v4+avx512bf16")
    assert "tdpbf16ps" not in text and "vdpbf16ps" in text
