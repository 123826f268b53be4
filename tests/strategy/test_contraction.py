"""Register tiles: what decides their width, and that odd shapes give right answers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Relayout
from tilesmith.ir.dtypes import f32
from tilesmith.ir.tensor_intrinsics import tensor_intrinsic
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Erf
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Transpose
from tilesmith.ops.structure import stages
from tilesmith.strategy.cpu import schedule
from tilesmith.strategy.cpu.contraction import (
    IDLE,
    MAX_VECTORS,
    analyse,
    best_tile,
    column_span,
    excess,
    fusable_rows,
    resident_rows,
    row_distance,
    single_row_vectors,
)
from tilesmith.support.options import Options


def product(x: tuple[int, ...], w: tuple[int, ...]) -> Graph:
    b = Builder("m")
    weight = np.ones(w, np.float32)
    y = b.add(MatMul(), b.input("x", TensorType(f32, x)), b.constant(weight, name="w"))
    return b.finish([y], ["y"])


def compiled_and_expected(op: Op, x: tuple[int, ...], w: tuple[int, ...], constant: bool = True):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(w).astype(np.float32)
    b = Builder("m")
    given = b.input("x", TensorType(f32, x))
    other = b.constant(weight, name="w") if constant else b.input("w", TensorType(f32, w))
    graph = b.finish([b.add(op, given, other)], ["y"])
    inputs = {"x": rng.standard_normal(x).astype(np.float32)}
    if not constant:
        inputs["w"] = weight
    exe = driver.compile(graph, options=Options(use_cache=False))
    return exe.run(inputs)["y"], evaluate(graph, inputs)["y"]


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1000), (3136, 64), (49, 512), (7, 24), (640, 640)]
)
def test_accumulators_and_operands_fit_the_registers(level: str, rows: int, columns: int) -> None:
    machine = target(level)
    tile, _ = best_tile(rows, columns, machine)
    assert tile.rows * tile.vectors + tile.vectors + 1 <= machine.vector_registers
    assert tile.rows <= rows
    assert tile.lanes == machine.vector_lanes(4)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_tiles_keep_rows_that_share_cache_sets_in_the_cache(level: str) -> None:
    machine = target(level)
    ways = machine.model.l1_bytes // 4096
    assert resident_rows(4096, machine) == resident_rows(3 * 8192, machine) == ways
    assert resident_rows(1024, machine) == 4 * ways
    assert resident_rows(4096 + 64, machine) >= best_tile(14, 32, machine)[0].rows
    assert best_tile(14, 32, machine, row_bytes=4096)[0].rows <= ways


def test_column_blocks_come_out_even_where_that_costs_little() -> None:
    machine = target("x86-64-v4")
    for columns in (512, 1280, 2048):
        assert columns % best_tile(7, columns, machine)[0].columns == 0
    assert best_tile(7, 1000, machine)[0].columns > machine.vector_lanes(4)


@pytest.mark.parametrize(
    ("op", "x", "w", "distance"),
    [
        (Conv(), (1, 24, 5, 7), (8, 24, 1, 1), 24),
        (Conv(strides=(2, 2)), (1, 24, 5, 7), (8, 24, 3, 3), 48),
        (Conv(groups=3), (1, 24, 5, 7), (12, 8, 3, 3), 24),
        (MatMul(), (2, 5, 40), (40, 8), 40),
        (MatMul(), (1, 1, 40), (40, 8), 0),
    ],
)
def test_rows_are_as_far_apart_as_channels_last_puts_them(op, x, w, distance) -> None:
    tensors = op.tensors(TensorType(f32, x), TensorType(f32, w))
    anchor = next(s for s in stages(tensors.outputs) if s.reduce_axis)
    c = analyse(anchor, frozenset(), anchor.axis[1 if isinstance(op, Conv) else -1])
    assert c is not None
    assert row_distance(c) == distance


def test_rows_that_threads_share_are_cut_evenly() -> None:
    machine = target("x86-64-v4").with_model(fma_ports=1)  # many tiles reach the peak of one port
    few, many = (best_tile(64, 256, machine, outer=n)[0] for n in (1, 16))
    assert 64 % few.rows == 0
    assert 64 % many.rows != 0  # threads share what is outside


@pytest.mark.parametrize(
    ("x", "w", "outermost"),
    [((96, 384), (384, 128), "columns"), ((192, 256), (256, 128), "rows")],
)
def test_rows_and_few_columns_are_shared_in_one_loop(
    x: tuple[int, int], w: tuple[int, int], outermost: str
) -> None:
    exe = driver.compile(product(x, w), options=Options(use_cache=False, target="x86-64-v3"))
    (kernel,) = (k for k in exe.program.kernels.values() if "matmul" in k.operators)
    tile, _ = best_tile(x[0], w[1], exe.program.target, row_bytes=4 * x[1], outer=1)
    assert x[0] % tile.rows == w[1] % tile.columns == 0
    columns, rows = -(-w[1] // tile.columns), x[0] // tile.rows
    loops = [line for line in kernel.loops.splitlines() if "parallel" in line]
    assert len(loops) == 1 and f"parallel({columns * rows})" in loops[0]
    inner = columns if outermost == "rows" else rows
    assert f"% {inner}" in kernel.loops and f"// {inner}" in kernel.loops


def parallel_extents(threads: int) -> list[int]:
    """Iterations of the parallel loops of a product with 197 rows, a prime number."""
    options = Options(use_cache=False, target="server-64", threads=threads)
    program = driver.compile_model(driver.Request(product((197, 768), (768, 768)), options))
    (kernel,) = (k for k in program.kernels.values() if "matmul" in k.operators)
    return [int(n) for n in re.findall(r"parallel\((\d+)\)", kernel.loops)]


def test_many_threads_share_partial_tiles_and_columns_in_one_loop() -> None:
    (trips,) = parallel_extents(64)
    assert excess(trips, target("server-64").for_threads(64)) <= IDLE
    (rows,) = parallel_extents(2)
    assert rows < 64


@pytest.mark.parametrize(("rows", "columns"), [(49, 2048), (197, 768), (50, 96)])
def test_tiles_for_two_threads_do_not_depend_on_what_they_share(rows: int, columns: int) -> None:
    two, many = (target("server-64").for_threads(n) for n in (2, 64))
    alone = best_tile(rows, columns, two, outer=1)
    assert best_tile(rows, columns, two, outer=1, is_shared=True) == alone
    shared, steps = best_tile(rows, columns, many, outer=1, is_shared=True)
    assert shared.rows * shared.vectors <= alone[0].rows * alone[0].vectors and steps >= alone[1]


@pytest.mark.parametrize(
    ("rows", "columns", "asked"), [(96, 1536, True), (4, 1536, False), (96, 384, False)]
)
def test_weights_from_memory_are_asked_for_a_block_ahead(
    rows: int, columns: int, asked: bool
) -> None:
    machine = target("x86-64-v3").with_model(l2_bytes=1 << 20)
    weights = product((rows, 256), (256, columns))
    options = Options(use_cache=False, target="x86-64-v3", threads=2)
    session = driver.Session.of(options)
    fused = driver.optimise(weights, session)
    (body,) = (n.op.body for n in fused.nodes if isinstance(n.op, Fused) and len(n.inputs) == 2)
    s, _ = schedule(body, machine)
    assert (".prefetch(" in s.text()) == asked


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("columns", [512, 1000, 2048, 30522])
def test_a_single_row_reads_matrices_in_long_runs(level: str, columns: int) -> None:
    machine = target(level)
    lanes = machine.vector_lanes(4)
    vectors = single_row_vectors(columns, lanes, machine)
    if vectors is None:
        assert columns < 4 * machine.vector_registers * lanes
        return
    assert MAX_VECTORS < vectors < machine.vector_registers
    assert 4 * vectors * lanes <= columns + lanes


@pytest.mark.parametrize("columns", [512, 1000])
def test_a_single_row_times_a_matrix_that_is_an_input(columns: int) -> None:
    found, expected = compiled_and_expected(MatMul(), (1, 96), (96, columns), constant=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def packs(m: int, k: int, n: int) -> bool:
    """Whether (m, k) x (k, n), both inputs, packs the second."""
    b = Builder("m")
    given = [
        b.input(name, TensorType(f32, shape)) for name, shape in (("x", (m, k)), ("w", (k, n)))
    ]
    graph = b.finish([b.add(MatMul(), *given)], ["y"])
    s, _ = schedule(graph, target("x86-64-v4").with_model(l2_bytes=1 << 20))
    return "heap" in s.text()


def test_a_matrix_that_is_an_input_is_packed_where_many_rows_read_it() -> None:
    assert packs(2048, 512, 512) and not packs(512, 512, 512)
    assert packs(128, 2048, 2048)  # whose rows compete for the sets of L2
    assert not packs(128, 2040, 2040) and not packs(12, 2048, 2048)
    assert not packs(2048, 8192, 8192)  # a copy would take too much memory


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.parametrize(
    ("x", "w"), [((700, 37), (37, 75)), ((2, 160, 33), (2, 33, 130)), ((513, 16), (16, 1))]
)
def test_packed_or_not_the_answer_is_the_same(level: str, x, w) -> None:
    b = Builder("m")
    graph = b.finish(
        [b.add(MatMul(), b.input("x", TensorType(f32, x)), b.input("w", TensorType(f32, w)))], ["y"]
    )
    rng = np.random.default_rng(0)
    inputs = {k: rng.standard_normal(v).astype(np.float32) for k, v in (("x", x), ("w", w))}
    expected = evaluate(graph, inputs)["y"]
    for pack in (False, True):
        exe = driver.compile(
            graph,
            options=Options(use_cache=False, target=level),
            pins={"pack": pack} if w[-1] > 1 else {},
        )
        np.testing.assert_allclose(exe.run(inputs)["y"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(
    ("x", "w"), [((300, 100), (131, 100)), ((2, 160, 33), (2, 130, 33)), ((400, 16), (16, 16))]
)
def test_a_matrix_that_lies_across_is_transposed_by_blocks(
    level: str, explicit: bool, x, w
) -> None:
    b = Builder("m")
    left, right = b.input("x", TensorType(f32, x)), b.input("w", TensorType(f32, w))
    if explicit:
        axes = (*range(len(w) - 2), len(w) - 1, len(w) - 2)
        y = b.add(MatMul(), left, b.add(Transpose(axes), right))
    else:
        y = b.add(MatMul(transpose_b=True), left, right)
    graph = b.finish([y], ["y"])
    options = Options(use_cache=False, target=level)
    session = driver.Session.of(options)
    texts = []
    for node in driver.optimise(graph, session).nodes:
        assert isinstance(node.op, Fused)
        texts.append(schedule(node.op.body, session.target)[0].text())
    assert any(f"s.cache_read('{x}', 'register'" in t for t in texts for x in ("w", "in1"))
    rng = np.random.default_rng(0)
    inputs = {k: rng.standard_normal(v).astype(np.float32) for k, v in (("x", x), ("w", w))}
    found = driver.compile(graph, options=options).run(inputs)["y"]
    np.testing.assert_allclose(found, evaluate(graph, inputs)["y"], rtol=1e-4, atol=1e-4)


def grouped(channels: int, group: int):
    op = Conv(groups=channels // group)
    types = TensorType(f32, (1, channels, 5, 5)), TensorType(f32, (channels, group, 3, 3))
    anchor = next(s for s in stages(op.tensors(*types).outputs) if s.reduce_axis)
    c = analyse(anchor, frozenset(), anchor.axis[1])
    assert c is not None
    return c


@pytest.mark.parametrize(
    ("channels", "group", "span"),
    [(128, 4, 64), (256, 32, 64), (192, 24, 96), (120, 24, 24), (336, 56, 56), (96, 96, 96)],
)
def test_tiles_of_grouped_convolutions_do_not_straddle_groups(channels, group, span) -> None:
    assert column_span(grouped(channels, group), channels, 16) == span


@pytest.mark.parametrize(("channels", "group"), [(16, 4), (48, 24), (20, 5), (12, 6), (8, 1)])
def test_grouped_convolutions_are_right(channels: int, group: int) -> None:
    op = Conv(groups=channels // group, pads=(1, 1, 1, 1))
    found, expected = compiled_and_expected(op, (1, channels, 7, 6), (channels, group, 3, 3))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 3), (17, 33, 40), (6, 1, 100), (5, 70, 1)])
def test_products_of_any_shape_are_right(m, k, n, transposed, constant) -> None:
    a, b = transposed
    op = MatMul(transpose_a=a, transpose_b=b)
    found, expected = compiled_and_expected(
        op, (k, m) if a else (m, k), (n, k) if b else (k, n), constant
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_result_that_leaves_the_model_is_stored_along_memory() -> None:
    b = Builder("out")
    x = b.input("x", TensorType(f32, (1, 32, 6, 6)))
    w = b.constant(np.ones((64, 32, 1, 1), np.float32), name="w")
    session = driver.Session.of(Options(use_cache=False))
    fused = driver.optimise(b.finish([b.add(Conv(), x, w)], ["y"]), session)
    kinds = [[type(n.op) for n in g.op.body.nodes] for g in fused.nodes]
    assert kinds == [[Conv], [Relayout]]


@pytest.mark.parametrize(
    ("conv", "window", "rows"),
    [
        (Conv(), 1, 2),
        (Conv(strides=(2, 2)), 1, 1),
        (Conv(pads=(1, 1, 1, 1)), 3, 1),
    ],
)
def test_pixels_are_rows_of_one_run_where_windows_are_points(conv, window: int, rows: int) -> None:
    """A tile then runs across the ends of image rows, whose width need not divide it."""
    types = TensorType(f32, (2, 8, 9, 9)), TensorType(f32, (32, 8, window, window))
    op = next(st for st in stages(conv.tensors(*types).outputs) if st.reduce_axis)
    c = analyse(op, frozenset(op.inputs[1:]), op.axis[1])
    assert c is not None and len(fusable_rows(c)) == rows


def test_an_axis_of_one_position_is_no_row() -> None:
    types = TensorType(f32, (20, 1, 8)), TensorType(f32, (8, 16))
    anchor = stages(MatMul().tensors(*types).outputs)[0]
    c = analyse(anchor, frozenset(), anchor.axis[-1])
    assert c is not None
    assert [r.extent for r in fusable_rows(c)] == [20]


@pytest.mark.parametrize(
    ("op", "x", "w"),
    [
        (MatMul(), (13, 20), (20, 50)),
        (MatMul(), (64, 20), (20, 96)),
        (Conv(pads=(1, 1, 1, 1)), (1, 8, 9, 7), (24, 8, 3, 3)),
    ],
)
@pytest.mark.parametrize("is_long", [False, True])
def test_a_long_epilogue_is_a_loop_over_the_rows_of_a_tile(op, x, w, is_long: bool) -> None:
    rng = np.random.default_rng(0)
    b = Builder("m")
    given = b.input("x", TensorType(f32, x))
    weight = b.constant(rng.standard_normal(w).astype(np.float32), name="w")
    graph = b.finish([b.add(Erf() if is_long else Relu(), b.add(op, given, weight))], ["y"])
    inputs = {"x": rng.standard_normal(x).astype(np.float32)}
    exe = driver.compile(graph, options=Options(use_cache=False, target="x86-64-v3"))
    np.testing.assert_allclose(
        exe.run(inputs)["y"], evaluate(graph, inputs)["y"], rtol=1e-4, atol=1e-5
    )
    (kernel,) = (k for k in exe.program.kernels.values() if len(k.operators) == 2)
    assert (" stack\n" in kernel.loops) == is_long


def test_registers_that_an_instruction_needs_are_counted() -> None:
    """Accumulators, a row of weights, a broadcast and what `vpmaddwd` gives before it is added."""
    machine = target("x86-64-v3")
    dot = tensor_intrinsic("pmaddwd_8")
    tile, _ = best_tile(64, 48, machine, vectors=3, scratch=dot.scratch)
    assert tile.rows * 3 + 3 + 1 + dot.scratch <= machine.vector_registers
    assert tile.rows < best_tile(64, 48, machine, vectors=3)[0].rows
