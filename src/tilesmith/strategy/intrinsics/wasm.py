"""Tensor intrinsics of WebAssembly.

| name | result | operands | instruction |
|---|---|---|---|
| `dot_i16` | i32[4] | i16, i16 | i32x4.dot_i16x8_s, i32x4.add |
| `dot_i16_i8` | i32[4] | i16, i8 | i16x8.load8x8_s, i32x4.dot_i16x8_s, i32x4.add |

The intrinsics are exact modulo 2^32.  Byte weights are widened when loaded, once for all rows.
"""

from __future__ import annotations

from typing import Any

from tilesmith.ir.tensor_intrinsics import TensorIntrinsic

from .dots import lane_dot


def _dot(name: str, weights: str) -> TensorIntrinsic:
    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        wide = w if weights == "i16" else code.widened(w, "i16", True)
        return code.add(old, code.call("llvm.wasm.dot", old.type, a, wide))

    # The addition takes a second instruction.
    return lane_dot(name, 4, 2, ("i16", weights, "i32"), emit, ("simd128",), fmas=4 / 3, scratch=1)


INTRINSICS = (_dot("dot_i16", "i16"), _dot("dot_i16_i8", "i8"))
