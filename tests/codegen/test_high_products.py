"""The middle bits of products of 32-bit integers."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import elementwise, lanes_at, serial

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.targets import target
from tilesmith.ir.dtypes import i32, i64
from tilesmith.ir.expr import Broadcast, Expr, Load, Var, cast, const
from tilesmith.loop.nodes import Buffer, Func, Store


def middle(a: Expr, b: Expr, added: int, bits: int) -> Expr:
    """i32(a * b + added >> bits)."""

    def number(n: int) -> Expr:
        return const(n) if a.lanes == 1 else Broadcast(const(n), a.lanes)

    return cast((cast(a, i64) * cast(b, i64) + number(added)) >> number(bits), i32)


@pytest.mark.parametrize(("added", "bits"), [(1 << 30, 31), (0, 1), (-5, 32), (1 << 40, 17)])
@pytest.mark.parametrize("lanes", [1, 2, 4, 6, 8, 16, 32])
@pytest.mark.parametrize("name", ["native", "x86-64-v2", "x86-64"])
def test_values(added: int, bits: int, lanes: int, name: str) -> None:
    rng = np.random.default_rng(0)
    edges = np.array([-(2**31), -(2**31) + 1, -1, 0, 1, 2**30, 2**31 - 1], np.int32)
    a, b = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    more = rng.integers(-(2**31), 2**31, (2, 96 * 2 - len(a)), dtype=np.int32)
    a, b = np.concatenate([a, more[0]]), np.concatenate([b, more[1]])
    with np.errstate(over="ignore"):
        wanted = (a.astype(np.int64) * b.astype(np.int64) + added >> bits).astype(np.int32)
    found = elementwise(lambda x, y: middle(x, y, added, bits), [a, b], i32, name, lanes)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_no_lane_is_widened(name: str) -> None:
    t, i = target(name), Var("i")
    lanes = t.vector_lanes(4)
    a, b, y = (Buffer(n, i32, (1024,)) for n in "aby")
    at = lanes_at(i * lanes, lanes)
    body = Store(y, (at,), middle(Load(a, (at,)), Load(b, (at,)), 1 << 30, 31))
    text = assembly(emit(Func("f", (a, b, y), (y,), serial(i, 1024 // lanes, body)), t).text, t)
    assert text.count("pmuldq") == 2
    assert "pmovsx" not in text and "pmovqd" not in text
