"""Features of candidates: symbols against numbers, footprints against counting, any workload."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from templates import convolution, counting, gemm, partial_sums

from tilesmith import driver, te
from tilesmith.codegen.targets import target
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Const, Expr, Var, const, substitute
from tilesmith.ir.simplify import simplify
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import TensorType
from tilesmith.loop.text import print_func
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import LayerNorm, Softmax
from tilesmith.ops.pool import GlobalAvgPool, MaxPool
from tilesmith.ops.shape import Flatten, Transpose
from tilesmith.search_space.groups import GroupSpace
from tilesmith.search_space.space import Space
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.knobs import Config
from tilesmith.te.relations import axis_values
from tilesmith.te.schedule import Schedule
from tilesmith.tuning.features import FEATURES, features_of, prior
from tilesmith.tuning.features.footprint import SymbolicFootprints
from tilesmith.tuning.features.nest import SymbolicNest

TARGET = target("x86-64-v3")


@pytest.mark.parametrize(
    ("template", "symbols"),
    [
        (gemm, "all numbers"),
        (convolution, "all numbers"),
        (partial_sums, "all numbers"),
        (counting, "numbers on a path"),
    ],
)
def test_symbols_and_numbers_give_the_same_features(
    template: Callable[[Config], Any], symbols: str
) -> None:
    space = Space(template)
    f = features_of(space, TARGET, threads=4)
    rng = random.Random(7)
    candidates = [space.random(rng) for _ in range(40)]
    found = np.stack([f.structure(c).features(f.structure(c).encode([c]))[0] for c in candidates])
    expected = np.stack([f.concrete(c) for c in candidates])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(f(candidates), expected, rtol=1e-5, atol=1e-5)
    fresh = features_of(space, TARGET, threads=4)
    np.testing.assert_allclose(fresh(candidates), expected, rtol=1e-5, atol=1e-5)
    assert f.symbolic == symbols
    assert len(np.unique(expected, axis=0)) > len(candidates) / 4


def product() -> Schedule:
    """Rows and columns of whole cache lines, a tile of each."""
    s, (_, _, c) = gemm(Config({"i": (3,), "j": (2, 16), "k": (2,)}), m=6, n=64, depth=4)
    s[c].unroll("ii")
    return s


def windows() -> Schedule:
    """A strided convolution along one axis, whose windows overlap, and one that skips elements."""
    x, w = te.placeholder((17, 16), "f32", "x"), te.placeholder((3, 16), "f32", "w")
    u = te.reduce_axis(3, "u")
    y = te.compute((8, 16), lambda i, c: te.sum(x[2 * i + u, c] * w[u, c], axis=u), "y")
    s = te.create_schedule(y.op)
    s[y].split(s[y].axis[0], factor=4)
    return s


def scattered() -> Schedule:
    """A transposition, a gap between elements, and loops fused and split again."""
    x = te.placeholder((40, 12), "f32", "x")
    y = te.compute((12, 10), lambda i, j: x[4 * j + 1, i] + x[4 * j + 2, i], "y")
    s = te.create_schedule(y.op)
    both = s[y].fuse(*s[y].axis)
    s[y].split(both, factor=10)
    return s


@pytest.mark.parametrize("make", [product, windows, scattered])
def test_footprints_are_what_counting_finds(make: Callable[[], Schedule]) -> None:
    nest = SymbolicNest(make().state)
    prints = SymbolicFootprints(nest)
    (s,) = nest.statements.values()
    for access, p in itertools.product(s.accesses, range(len(s.path) + 1)):
        elements = touched(nest, access, p)
        assert prints.elements(s, access, p) == len(elements), (access, p)
        if make is not scattered:  # there columns of the source begin inside of lines
            shape = nest.shape(access.tensor)
            lines = {int(np.ravel_multi_index(e, shape)) * 4 // LINE_BYTES for e in elements}
            assert prints.bytes(s, access, p) == len(lines) * LINE_BYTES, (access, p)


def touched(nest: SymbolicNest, access: Any, p: int) -> set[tuple[int, ...]]:
    """The elements that an access touches in the loops from `p` on, one by one."""
    (s,) = nest.statements.values()
    found = set()
    extents = s.stage.extents()
    for at in itertools.product(*(range(int(loop.extent)) for loop in s.path[p:])):
        values: dict[str, Expr] = {loop.axis: const(0) for loop in s.path[:p]}
        values.update({loop.axis: const(n) for loop, n in zip(s.path[p:], at, strict=True)})
        axes = axis_values(s.stage.relations, extents, values).values
        point = {a.var: axes[r] for r, a in zip(s.stage.roots, s.stage.root_axes, strict=True)}
        base = [simplify(substitute(i, point)) for i in access.indices]  # type: ignore[arg-type]
        first = access.offsets[0]
        for offset in access.offsets:
            index = [
                int(b.value) + o - f
                for b, o, f in zip(base, offset, first, strict=True)
                if isinstance(b, Const)
            ]
            assert len(index) == len(base)
            found.add(tuple(index))
    return found


def test_a_working_set_counts_what_all_statements_inside_touch() -> None:
    s, _ = convolution(Config({"padding": "row", "columns": (4,)}), channels=16, size=8)
    nest = SymbolicNest(s.state)
    prints = SymbolicFootprints(nest)
    conv, pad = nest.statements["conv"], nest.statements["pad"]
    row = next(loop for loop in pad.path if loop.axis == "y")
    assert pad.path[-4:][0].stage == "pad" and row in conv.path
    # three rows of ten columns of the border's copy, written and read, and of x at most eight
    assert [nest.extents("pad")[r] for r in pad.stage.roots] == [1, 3, 10, 16]
    whole = prints.working_set(row)
    copy, weights = 3 * 10 * 16 * 4, 9 * 16 * 16 * 4
    assert (
        copy + weights < whole < copy + weights + 3 * 8 * 16 * 4 + 2 * 8 * 16 * 4 + 8 * LINE_BYTES
    )


@pytest.mark.parametrize(("row", "needed"), [(14, 18), (28, 5 * 28 + 14)])
def test_fused_axes_make_up_their_number_again(row: int, needed: int) -> None:
    """18 pixels in rows of 14 need 18 numbers; where rows lie apart, all of them may be needed."""
    x = te.placeholder((6 * 28,), "f32", "X")
    p = te.compute((6 * 28,), lambda t: x[t] * 2.0, "P")
    y = te.compute((24, 56), lambda i, j: p[i // 4 * row + j // 4], "Y")
    s = te.create_schedule(y.op)
    i, j = s[y].axis
    (rows, i), (columns, j) = s[y].split(i, factor=4), s[y].split(j, factor=4)
    s[y].reorder(rows, columns, i, j)
    block, _ = s[y].split(s[y].fuse(rows, columns), factor=18)
    s[p].compute_at(s[y], block)
    (axis,) = s.state.stages["P"].roots
    assert SymbolicNest(s.state).extents("P")[axis] == needed


@pytest.mark.parametrize(
    ("columns", "block", "needed"),
    [(64, 16, (1, 16)), (48, 16, (1, 16)), (16, 32, (2, 16)), (40, 16, (12, 40)), (13, 1, (1, 1))],
)
def test_blocks_of_fused_axes_need_what_lowering_computes(
    columns: int, block: int, needed: tuple[int, int]
) -> None:
    """Blocks that begin anywhere in a row need the whole tensor: their rows are not known."""
    x = te.placeholder((12, columns), "f32", "X")
    p = te.compute((12, columns), lambda i, j: x[i, j] * 2.0, "P")
    y = te.compute((12, columns), lambda i, j: p[i, j] + 1.0, "Y")
    s = te.create_schedule(y.op)
    outer, _ = s[y].split(s[y].fuse(*s[y].axis), factor=block)
    s[p].compute_at(s[y], outer)
    stage = s.state.stages["P"]
    assert tuple(SymbolicNest(s.state).extents("P")[r] for r in stage.roots) == needed
    assert f"alloc P: f32{list(needed)} " in print_func(te.lower(s, [x, y]))


def test_less_traffic_and_time_for_tiles() -> None:
    f = features_of(gemm_of(512), TARGET)
    plain, tiled = f([{}, {"i": (4,), "j": (4, 16), "k": (8,), "ji": "vectorize", "ii": "unroll"}])
    by_name = dict(zip(FEATURES, tiled - plain, strict=True))
    assert by_name["kernel_seconds"] < 0 and by_name["kernel_traffic_l1"] < 0
    assert by_name["s0_fma"] == 0 and by_name["s0_points"] == 0
    assert prior(np.stack([plain, tiled]))[1] < prior(np.stack([plain, tiled]))[0] / 4


def gemm_of(n: int) -> Callable[[Config], Any]:
    return lambda cfg: gemm(cfg, n, n, n)


def test_tails_are_wasted_points() -> None:
    f = features_of(gemm, TARGET)
    exact, tail = f([{"i": (4,)}, {"i": (32,)}])  # of 60 rows
    at = FEATURES.index("s0_tail_waste")
    assert exact[at] == 0 and tail[at] == pytest.approx(math.log(64 / 60))


@pytest.mark.parametrize(("tail", "points"), [("peel", 60), ("roundup", 64)])
def test_tails_that_are_peeled_take_the_time_of_their_part(tail: Any, points: int) -> None:
    def rows(cfg: Config) -> te.Schedule:
        a = te.placeholder((60, 64), "f32", "A")
        b = te.compute((60, 64), lambda i, j: a[i, j] * 2.0, "B")
        c = te.compute((60, 64), lambda i, j: b[i, j] + 1.0, "C")
        s = te.create_schedule(c.op)
        cfg.split("rows", s[b], s[b].axis[0], tail=tail)
        return s

    (found,) = features_of(rows, TARGET)([{"rows": (16,)}])
    s0, s1 = (math.expm1(found[FEATURES.index(f"s{n}_points")]) for n in range(2))
    assert sorted((round(s0), round(s1))) == [60 * 64, points * 64]


def test_part_of_a_vector_costs_more_than_its_share() -> None:
    def columns(width: int, factor: int) -> float:
        a = te.placeholder((64, width), "f32", "A")
        b = te.compute((64, width), lambda i, j: te.exp(a[i, j]), "B")
        s = te.create_schedule(b.op)
        s[b].vectorize(s[b].split(s[b].axis[1], factor=factor)[1])
        (found,) = features_of(lambda _: s, TARGET)([{}])
        return math.expm1(found[FEATURES.index("s0_arithmetic")])

    whole, part, more = (columns(n, 16) for n in (64, 68, 80))
    assert whole < part < more
    assert part - whole > (more - whole) / 4


def test_what_the_analytic_schedule_has_not() -> None:
    space = Space(gemm)
    f = features_of(space, TARGET)
    for many in (False, True):  # with numbers, with symbols
        rows = f([space.start, *([{"i": (4,)}] * 9 if many else [])])
        more = [n for n, name in enumerate(FEATURES) if name.startswith("more_")]
        of = [FEATURES.index(FEATURES[n].removeprefix("more_")) for n in more]
        assert not rows[0, more].any()
        np.testing.assert_array_equal(rows[:, more], rows[:, of] - rows[0, of])


def test_busiest_thread() -> None:
    at = FEATURES.index("s0_parallel_share")
    for threads, share in ((1, 1.0), (2, 8 / 15), (4, 4 / 15), (16, 1 / 15)):
        f = features_of(gemm, TARGET, threads)
        assert f([{"i": (4,), "share": True}])[0, at] == pytest.approx(share)  # of 15 tiles


def network() -> Graph:
    """A little of everything that networks for images and texts are made of."""
    b = Builder("net")
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return b.constant(rng.standard_normal(shape, np.float32))

    x = b.input("x", TensorType(f32, (1, 3, 16, 16)))
    y = b.add(Relu(), b.add(Conv(pads=(1, 1, 1, 1)), x, weight(16, 3, 3, 3)))
    y = b.add(Add(), y, b.add(Conv(pads=(1, 1, 1, 1), groups=16), y, weight(16, 1, 3, 3)))
    y = b.add(MaxPool((2, 2), strides=(2, 2)), y)
    y = b.add(Conv(), y, weight(24, 16, 1, 1))
    image = b.add(MatMul(), b.add(Flatten(1), b.add(GlobalAvgPool(), y)), weight(24, 10))
    t = b.input("t", TensorType(f32, (2, 12, 32)))
    t = b.add(LayerNorm(), t, weight(32), weight(32))
    q, k, v = (b.add(MatMul(), t, weight(32, 32)) for _ in range(3))
    scores = b.add(Softmax(-1), b.add(MatMul(), q, b.add(Transpose((0, 2, 1)), k)))
    text = b.add(MatMul(), scores, v)
    return b.finish([image, text], ["image", "text"])


def kernels(graph: Graph) -> list[tuple[Node, GroupSpace]]:
    session = driver.Session.of(None, target="x86-64-v3")
    fused = driver.optimise(graph, session)
    found = []
    for node in fused.nodes:
        assert isinstance(node.op, Fused)
        constants = [i for i, v in enumerate(node.inputs) if v in fused.constant]
        body = driver.canonical(node.op.body)
        found.append((node, session.group(body, tuple(constants))))
    return found


def test_every_kernel_has_all_features() -> None:
    rows = []
    for _, group in kernels(network()):
        space = group.space()
        f = features_of(space, TARGET, threads=2)
        rng = random.Random(0)
        candidates = [space.start, *(space.random(rng) for _ in range(4))]
        found = f(candidates)
        assert found.shape == (5, len(FEATURES)) and found.dtype == np.float32
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found, features_of(space, TARGET, threads=2)(candidates))
        assert (prior(found) > 0).all()
        rows.append(found[0])
    assert len(rows) >= 8
    assert len(np.unique(rows, axis=0)) >= 7  # two products of the same shape


def test_strategies_are_run_once_for_candidates_that_differ_in_numbers() -> None:
    for node, space in kernels(network()):
        plain = Space(space.schedule, {"schedule": "strategy"})
        rng = random.Random(3)
        drawn = {str(c): c for c in (plain.random(rng) for _ in range(120))}.values()
        runs = 0

        def counted(cfg: Config, space: GroupSpace = space) -> Any:
            nonlocal runs
            runs += 1
            return space.schedule(cfg)

        f = features_of(counted, TARGET, threads=2)
        candidates = list(drawn)
        found = f(candidates)
        np.testing.assert_array_equal(f(candidates), found)
        if len(candidates) >= 60:
            assert f.symbolic == "numbers on a path", node
            assert runs < 1.2 * len(candidates)
        expected = np.stack([f.concrete(c) for c in candidates[:20]])
        np.testing.assert_allclose(found[:20], expected, rtol=1e-5, atol=1e-5)


def test_a_matrix_of_knobs() -> None:
    f = features_of(gemm, TARGET)
    like = {"order": (1, 0, 2), "ji": "vectorize"}
    s = f.structure(like)
    assert [(c.knob, c.part, c.default) for c in s.columns] == [
        ("i", 0, 1), ("j", 0, 1), ("j", 1, 1), ("k", 0, 4),
    ]  # fmt: skip
    candidates = [{**like, "i": (4,), "j": (2, 16)}, {**like, "k": (2,)}]
    knobs = s.encode(candidates)
    assert knobs.tolist() == [[4, 2, 16, 4], [1, 1, 1, 2]]
    expected = np.stack([f.concrete(c) for c in candidates])
    np.testing.assert_allclose(f.matrix(knobs, like), expected, rtol=1e-5)
    many = np.repeat(knobs, 3000, axis=0)  # more than one block
    np.testing.assert_allclose(f.matrix(many, like), expected.repeat(3000, axis=0), rtol=1e-5)
    assert f.matrix(knobs[:0], like).shape == (0, len(FEATURES))
    with pytest.raises(UsageError, match=r"a matrix with 4 columns .* of shape \(2, 3\)"):
        f.matrix(knobs[:, :3], like)


def test_names_are_unique() -> None:
    assert len(set(FEATURES)) == len(FEATURES)


def test_an_impossible_candidate_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="knob order"):
        features_of(gemm, TARGET)([{"order": (0, 0, 0)}])


def test_a_schedule_of_symbols_is_not_lowered() -> None:
    a = te.placeholder((64,), "f32", "A")
    b = te.compute((64,), lambda i: a[i] + 1.0, "B")
    s = te.create_schedule(b.op)
    s[b].split(s[b].axis[0], factor=Var("f"))
    assert s.text() == "s['B'].split('i', factor=f)"
    with pytest.raises(ScheduleError, match="B: loop i is split by f, which has no value yet"):
        te.lower(s, [a, b])
    with pytest.raises(ScheduleError, match="only steps with numbers can be written as JSON"):
        s.to_json()
    with pytest.raises(ScheduleError, match="needs a factor of at least 1"):
        s[b].split("io", factor=Var("x", f32))  # no whole number
