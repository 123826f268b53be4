"""Tensor intrinsics of AArch64.

| name | result | operands | instruction |
|---|---|---|---|
| `sdot`, `udot`, `usdot` | i32[4] | i8 and i8, u8 and u8, u8 and i8 | the same |
| `smmla`, `ummla`, `usmmla` | i32[2, 2] | i8 and i8, u8 and u8, u8 and i8 | the same |
| `bfdot` | f32[4] | bf16, bf16 | the same |
| `bfmmla` | f32[2, 2] | bf16, bf16 | the same |

The integer instructions are exact modulo 2^32.
"""

from __future__ import annotations

from typing import Any

from tilesmith.ir.tensor_intrinsics import TensorIntrinsic

from .dots import lane_dot, matrix_dot

_UNIT_ROUNDOFF = 2.0**-24  # unit roundoff of f32
_TYPES = {"s": ("i8", "i8", "i32"), "u": ("u8", "u8", "i32"), "us": ("u8", "i8", "i32")}


def _call(function: str) -> Any:
    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        return code.call(f"llvm.aarch64.neon.{function}", old.type, old, a, w)

    return emit


def _integer(sign: str, form: str) -> TensorIntrinsic:
    name, mixed = f"{sign}{form}", sign == "us" or form == "mmla"
    emit = _call(f"{name}.v4i32.v16i8")
    features = ("i8mm",) if mixed else ("dotprod",)
    if form == "mmla":
        return matrix_dot(name, 8, _TYPES[sign], emit, features)
    return lane_dot(name, 4, 4, _TYPES[sign], emit, features)


def _bf16(form: str) -> TensorIntrinsic:
    function = "bfdot.v4f32.v8bf16" if form == "dot" else "bfmmla"

    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        pair = code.bitcast(a, "<8 x bfloat>"), code.bitcast(w, "<8 x bfloat>")
        return code.call(f"llvm.aarch64.neon.{function}", old.type, old, *pair)

    types, features, tolerance = ("bf16", "bf16", "f32"), ("bf16",), 2 * _UNIT_ROUNDOFF
    if form == "mmla":
        return matrix_dot("bfmmla", 4, types, emit, features, tolerance=tolerance)
    return lane_dot("bfdot", 4, 2, types, emit, features, tolerance=tolerance)


INTRINSICS: tuple[TensorIntrinsic, ...] = (
    *(_integer(sign, form) for form in ("dot", "mmla") for sign in ("s", "u", "us")),
    _bf16("dot"),
    _bf16("mmla"),
)
