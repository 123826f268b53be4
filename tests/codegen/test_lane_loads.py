"""Elements at known distances are picked from whole vectors, which neighbours share."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import TARGETS, against_a_wall, lanes_at, run

from tilesmith.codegen.emit import emit
from tilesmith.codegen.lane_loads import cover, known_lanes, reach
from tilesmith.codegen.targets import target as target_named
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Binary, Broadcast, Load, Ramp, Select, Var, const
from tilesmith.loop.nodes import Buffer, Func, Store, seq


def ramp(start: int, lanes: int, stride: int = 1) -> Ramp:
    return Ramp(const(start), const(stride), lanes)


@pytest.mark.parametrize(
    ("offsets", "low", "high", "found"),
    [
        (range(0, 16, 2), 0, 14, (8, [0, 7])),
        (range(0, 16, 2), 0, 15, (8, [0, 8])),
        (range(1, 17, 2), 0, 16, (8, [0, 8])),
        ((0, 1, 2), 0, 2, (2, [0, 1])),
        ((3,), 3, 3, (1, [3])),
        ((0, 100, 1, 101), 0, 101, (8, [0, 94])),
        ((-5, 2), -5, 2, (8, [-5])),
    ],
)
def test_cover(offsets, low: int, high: int, found: tuple[int, list[int]]) -> None:
    width, starts = cover(offsets, low, high, 8)
    assert (width, starts) == found
    assert all(low <= s and s + width - 1 <= high for s in starts)
    assert all(any(s <= o < s + width for s in starts) for o in offsets)


def test_known_lanes() -> None:
    p = Var("p")
    assert known_lanes(ramp(0, 4) < Broadcast(const(3), 4)) == (True, True, True, False)
    assert known_lanes(Broadcast(const(1), 4) <= ramp(0, 4)) == (False, True, True, True)
    assert known_lanes(Ramp(p, const(1), 4) < Broadcast(p + 2, 4)) == (True, True, False, False)
    assert known_lanes(Ramp(p, const(1), 4) < Broadcast(const(2), 4)) is None
    assert known_lanes(None) is None


def test_what_may_not_run_is_not_within_reach() -> None:
    p, x, y = Var("p"), Buffer("x", f32, (64,)), Buffer("y", f32, (8,))

    def taken(start: int, mask=None) -> Load:
        return Load(x, (Ramp(p * 2 + start, const(2), 8),), mask)

    first = ramp(0, 8) < Broadcast(const(7), 8)
    unknown = ramp(0, 8) < Broadcast(p, 8)
    both = Store(y, (ramp(0, 8),), Binary("max", taken(0), taken(1)))
    assert list(reach([both]).values()) == [(0, 15)]
    assert list(reach([Store(y, (ramp(0, 8),), taken(0, first))]).values()) == [(0, 12)]
    assert not reach([Store(y, (ramp(0, 8),), taken(0, unknown))])
    assert not reach([Store(y, (ramp(0, 8),), Select(unknown, taken(0), taken(1)))])
    assert not reach([Store(y, (ramp(0, 8),), taken(0), unknown)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("active", (1, 5, 8, 11, 16))
@pytest.mark.parametrize("stride", (2, 3, 4, 7))
def test_masked_strides_touch_only_active_elements(stride: int, active: int, target: str) -> None:
    n, lanes = (active - 1) * stride + 1, 16
    source = against_a_wall(np.arange(1, n + 1, dtype=np.float32))
    x, y = Buffer("x", f32, (n,)), Buffer("y", f32, (lanes,))
    mask = ramp(0, lanes) < Broadcast(const(active), lanes)
    out = np.full(lanes, -1, np.float32)
    load = Load(x, (ramp(0, lanes, stride),), mask)
    run(Func("masked", (x, y), (y,), Store(y, (ramp(0, lanes),), load)), [source, out], target)
    want = np.zeros(lanes, np.float32)
    want[:active] = source[::stride]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", (2, 3, 5, 7))
def test_elements_of_several_rows(channels: int, target: str) -> None:
    """What puts rows of an image side by side."""
    lanes, row = 16, 50
    source = against_a_wall(np.arange(channels * row, dtype=np.float32))
    x, y = Buffer("x", f32, (channels * row,)), Buffer("y", f32, (lanes,))
    by, start = Broadcast(const(channels), lanes), row - -(-lanes // channels)
    index = ramp(0, lanes) % by * Broadcast(const(row), lanes) + ramp(0, lanes) // by
    load = Load(x, (index + Broadcast(const(start), lanes),))
    func = Func("rows", (x, y), (y,), Store(y, (ramp(0, lanes),), load))
    out = np.empty(lanes, np.float32)
    run(func, [source, out], target)
    want = source.reshape(channels, row)[:, start:].T.ravel()[:lanes]
    np.testing.assert_array_equal(out, want)
    if target == "x86-64-v3":
        assert "gather" not in emit(func, target_named("native")).text


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_share_their_vectors(target: str) -> None:
    lanes = 8
    source = against_a_wall(np.arange(2 * lanes, dtype=np.float32))
    x, y = Buffer("x", f32, (2 * lanes,)), Buffer("y", f32, (2, lanes))
    y = Buffer("y", f32, (2 * lanes,))
    stores = [
        Store(y, (lanes_at(k * lanes, lanes),), Load(x, (ramp(k, lanes, 2),))) for k in range(2)
    ]
    func = Func("pairs", (x, y), (y,), seq(*stores))
    out = np.empty(2 * lanes, np.float32)
    run(func, [source, out], target)
    np.testing.assert_array_equal(out, source.reshape(lanes, 2).T.ravel())
    text = emit(func, target_named(target)).text
    assert len({line.split(" = ")[1] for line in text.splitlines() if "= load <" in line}) == 2
