"""Rounded and clipped floats as narrow integers."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import elementwise

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.targets import target
from tilesmith.ir.dtypes import DType, f32, i8, i16, i64, u8
from tilesmith.ir.expr import Broadcast, Cast, Expr, Load, Ramp, Var, const, maximum, minimum
from tilesmith.ir.intrinsics import call
from tilesmith.loop.nodes import Buffer, For, Func, Store

LIMITS = [
    (i8, -128, 127, 0),
    (u8, 0, 255, 0),
    (i16, -100, 155, 0),
    (i8, -20, 30, 0),
    (i16, -32768, 32767, 0),
    (u8, 0, 255, 131),
    (i8, -128, 127, -7),
    (i8, -20, 30, 3),
    (i16, -32768, 32767, -32768),
]
"""Types, limits, and what is added to the rounded number."""


def clipped(x: Expr, low: float, high: float, offset: int = 0) -> Expr:
    """`x` rounded, and with a number added, between limits."""

    def limit(value: float) -> Expr:
        return const(value, f32) if x.lanes == 1 else Broadcast(const(value, f32), x.lanes)

    whole = call("round", x) + limit(offset) if offset else call("round", x)
    return minimum(maximum(whole, limit(low)), limit(high))


def floats() -> np.ndarray:
    """Ties, their neighbours, numbers beyond 8, 16, 32 and 64 bits, and NaN."""
    rng = np.random.default_rng(0)
    ties = (np.arange(-600, 600) / 2).astype(np.float32)
    near = np.nextafter(ties, np.float32(np.inf))
    far = [np.inf, -np.inf, 2.0**31, -(2.0**31), 2.0**63, 32767.5, -32768.5, -0.0, 1e-45, np.nan]
    wide = rng.normal(size=1000) * 2.0 ** rng.integers(-5, 70, 1000)
    found = np.concatenate([ties, near, far, wide]).astype(np.float32)
    return np.resize(found, -(-len(found) // 32) * 32)


@pytest.mark.parametrize(("to", "low", "high", "offset"), LIMITS)
@pytest.mark.parametrize("lanes", [1, 8, 16, 32])
@pytest.mark.parametrize("name", ["native", "x86-64"])
def test_values(to: DType, low: int, high: int, offset: int, lanes: int, name: str) -> None:
    x = floats()
    wanted = np.where(np.isnan(x), 0, np.clip(np.rint(x) + np.float32(offset), low, high))

    def number(v: Expr) -> Expr:
        return Cast(clipped(v, low, high, offset), to)

    found = elementwise(number, [x], to, name, lanes)
    np.testing.assert_array_equal(found, wanted.astype(to.numpy))
    back = elementwise(lambda v: Cast(number(v), f32), [x], f32, name, lanes)
    np.testing.assert_array_equal(back, wanted)


@pytest.mark.parametrize(
    ("to", "low", "high", "offset", "instructions"),
    [
        (i8, -128, 127, 0, ["vmaxps", "vminps", "vcvtps2dq", "vpackssdw", "vpacksswb"]),
        (u8, 0, 255, 0, ["vminps", "vcvtps2dq", "vpackssdw", "vpackuswb"]),
        (i16, -100, 155, 0, ["vmaxps", "vminps", "vcvtps2dq", "vpackssdw"]),
        (u8, 0, 255, 9, ["vmaxps", "vminps", "vcvtps2dq", "vpaddd", "vpackssdw", "vpackuswb"]),
        (i8, -128, 127, -9, ["vmaxps", "vminps", "vcvtps2dq", "vpaddd", "vpacksswb"]),
    ],
)
def test_instructions(to: DType, low: int, high: int, offset: int, instructions: list[str]) -> None:
    """Nothing is rounded apart, and integers are clipped by packing them."""
    x, y, i = Buffer("x", f32, (1024,)), Buffer("y", to, (1024,)), Var("i", i64)
    at = Ramp(i * 32, const(1), 32)
    body = Store(y, (at,), Cast(clipped(Load(x, (at,)), low, high, offset), to))
    t = target("x86-64-v3")
    func = Func("f", (x, y), (y,), For(i, const(0), const(32), "serial", body))
    text = assembly(emit(func, t).text, t)
    assert all(word in text for word in instructions)
    assert not any(word in text for word in ("vround", "vpmax", "vpmin", "vcvttps2dq", "vaddps"))
