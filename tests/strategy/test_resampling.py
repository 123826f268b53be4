"""Resizes and borders: right for every scale and vector width, without a gather in the interior."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from resamplings import TARGETS, check, graph_of

from tilesmith import driver
from tilesmith.graph.nodes import Fused
from tilesmith.ir.expr import Binary, Load, Ramp, free_vars, post_order
from tilesmith.loop.nodes import For, Func, Stmt, Store
from tilesmith.loop.visit import exprs, walk
from tilesmith.ops.base import Op
from tilesmith.ops.resize import Resize
from tilesmith.ops.slicing import Pad
from tilesmith.strategy.cpu import lower_by_rule
from tilesmith.support.options import Options

SIZES = (
    ((20, 40), (40, 80)),
    ((12, 37), (24, 74)),
    ((8, 64), (12, 96)),
    ((9, 70), (25, 41)),
    ((4, 3), (7, 9)),
    ((6, 160), (9, 352)),
)


def resized(shape: tuple[int, ...], size: tuple[int, int], mode: str, **more: object) -> Resize:
    return Resize((*shape[:2], *size), mode=mode, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.parametrize("size,to", SIZES)
def test_resize(size: tuple[int, int], to: tuple[int, int], mode: str, target: str) -> None:
    shape = (2, 3, *size)
    check(graph_of(resized(shape, to, mode), shape), target)


@pytest.mark.parametrize("coordinates", ("align_corners", "asymmetric", "pytorch_half_pixel"))
@pytest.mark.parametrize("channels", (5, 24, 40))
def test_resize_of_channels_last(channels: int, coordinates: str) -> None:
    shape = (2, 10, 14, channels)
    op = Resize((2, channels, 20, 28), mode="cubic", coordinates=coordinates, exclude_outside=True)
    check(graph_of(op, shape, (0, 3, 1, 2)), "native")


@settings(max_examples=30, deadline=None, print_blob=True)
@given(
    size=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    to=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    channels=st.sampled_from((1, 17, 400, 960)),
    mode=st.sampled_from(("nearest", "linear")),
    channels_last=st.booleans(),
)
@example(size=(3, 3), to=(7, 7), channels=960, mode="nearest", channels_last=True)
def test_resize_of_any_size(
    size: tuple[int, int], to: tuple[int, int], channels: int, mode: str, channels_last: bool
) -> None:
    op = Resize((2, channels, *to), mode=mode)
    shape = (2, *size, channels) if channels_last else (2, channels, *size)
    check(graph_of(op, shape, (0, 3, 1, 2) if channels_last else ()), "native")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ("reflect", "edge", "wrap"))
@pytest.mark.parametrize("width", (3, 4, 16, 37, 70))
def test_borders(width: int, mode: str, target: str) -> None:
    shape = (2, 3, 6, width)
    check(graph_of(Pad((0, 0, 2, 3, 0, 0, 1, 2), mode), shape), target)
    check(graph_of(Pad((0, 0, 0, 40, 0, 0, 0, 0), mode), shape), target)


def loops_of(op: Op, shape: tuple[int, ...]) -> Func:
    session = driver.Session.of(Options(use_cache=False), target="x86-64-v3")
    (node,) = driver.optimise(graph_of(op, shape), session).nodes
    assert isinstance(node.op, Fused)
    return driver.run_loop_passes(lower_by_rule(node.op.body, session.target, "k"), session)


def innermost(func: Func) -> list[Stmt]:
    """The stores in the innermost loops."""
    loops = [s for s in walk(func.body) if isinstance(s, For)]
    inner = [s for s in loops if not any(isinstance(x, For) for x in walk(s.body))]
    return [x for s in inner for x in walk(s.body) if isinstance(x, Store)]


def clamped(stmt: Stmt) -> bool:
    return any(
        isinstance(n, Binary) and n.op in ("min", "max") and n.lanes > 1
        for e in exprs(stmt)
        for n in post_order(e)
    )


@pytest.mark.parametrize("mode", ("reflect", "edge"))
def test_the_interior_of_a_border_is_a_plain_copy(mode: str) -> None:
    stores = innermost(loops_of(Pad((0, 0, 3, 3, 0, 0, 3, 3), mode), (1, 2, 20, 200)))
    assert stores
    for s in stores:
        assert isinstance(s, Store) and isinstance(s.value, Load)
        assert isinstance(s.value.indices[0], Ramp)


def test_rows_are_resized_once_for_all_columns() -> None:
    shape = (1, 2, 20, 200)
    func = loops_of(resized(shape, (40, 400), "cubic"), shape)
    assert "compute_at" in "".join(str(line) for _, line in func.attrs)
    stores = innermost(func)
    assert stores and not any(map(clamped, stores))
    for s in stores:  # four taps of a row or of a column, not sixteen
        loads = {n for e in exprs(s) for n in post_order(e) if isinstance(n, Load)}
        assert len(loads) == 4


@pytest.mark.parametrize("width", (360, 528))  # 3/2 and 11/5
def test_weights_of_a_cycle_are_numbers(width: int) -> None:
    shape = (1, 2, 20, 240)
    func = loops_of(resized(shape, (20, width), "linear"), shape)
    for s in innermost(func):
        divided = [
            n
            for e in exprs(s)
            for n in post_order(e)
            if isinstance(n, Binary) and n.op in ("floordiv", "floormod")
        ]
        assert divided and not any(map(free_vars, divided))
