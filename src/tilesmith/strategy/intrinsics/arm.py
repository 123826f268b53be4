"""Tensor intrinsics of Arm's microcontrollers with the DSP extension (Cortex-M4 and M7).

| name | result | operands | instructions |
|---|---|---|---|
| `smlad_u8_i8` | i32 | u8, i8 | 2 UXTB16, 2 SXTB16, 2 SMLAD |

The intrinsic adds four products to a scalar, exact modulo 2^32.  UXTB16 and SXTB16 extend bytes 0
and 2 to a pair of 16-bit numbers; after a rotation, they extend bytes 1 and 3.  SMLAD adds the
products of two pairs.
"""

from __future__ import annotations

from typing import Any

from tilesmith import te
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic


def _smlad(code: Any, old: Any, a: Any, w: Any) -> Any:
    x, y = code.bitcast(a, "i32"), code.bitcast(w, "i32")
    for rotated in (False, True):
        if rotated:
            eight = code.constant("i32", 8)
            x, y = (code.call("llvm.fshr.i32", "i32", v, v, eight) for v in (x, y))
        pairs = (
            code.call("llvm.arm.uxtb16", "i32", x),
            code.call("llvm.arm.sxtb16", "i32", y),
        )
        old = code.call("llvm.arm.smlad", "i32", *pairs, old)
    return old


def _scalar_dot() -> TensorIntrinsic:
    a, w = te.placeholder((4,), "u8", "a"), te.placeholder((4,), "i8", "w")
    k = te.reduce_axis(4, "k")
    c = te.compute((), lambda: te.sum(a[k].astype("i32") * w[k].astype("i32"), axis=k), "c")
    # The instruction does two multiply-adds.  The rows and columns of a tile share the extensions.
    return te.decl_tensor_intrin("smlad_u8_i8", c, _smlad, features=("dsp",), fmas=2.5)


INTRINSICS = (_scalar_dot(),)
