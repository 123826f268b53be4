"""Tensor intrinsics of x86-64.

| name | result | operands | instruction |
|---|---|---|---|
| `fma_f32_{4,8,16}` | f32 | f32 | vfmadd |
| `pmaddwd_{4,8,16}` | i32 | i16, i16 | vpmaddwd, vpaddd |
| `pmaddwd_i8_{4,8,16}` | i32 | i16, i8 | vpmovsxbw, vpmaddwd, vpaddd |
| `vpdpwssd_{4,8,16}` | i32 | i16, i16 | vpdpwssd (VNNI) |
| `vpdpwssd_lanes_{4,8,16}` | i32 | i16, i16, both with a number for each lane | vpdpwssd (VNNI) |
| `vpdpbusd_{4,8,16}` | i32 | u8, i8 | vpdpbusd (VNNI) |
| `vdpbf16ps_{4,8,16}` | f32 | bf16, bf16 | vdpbf16ps |
| `tdpb{u,s}{u,s}d` | i32[16, 16] | bytes, unsigned or signed | the same (AMX) |
| `tdpbf16ps`, `tdpfp16ps` | f32[16, 16] | bf16 or f16 | the same (AMX) |

The number in a name is the number of the result's lanes.  All integer instructions are exact modulo
2^32.  AMX multiplies tiles of at most 16 rows of 64 bytes; rows may have any stride.  LLVM keeps
the tiles in tile registers, and configures these outside of loops.
"""

from __future__ import annotations

from typing import Any

from tilesmith import te
from tilesmith.ir.tensor_intrinsics import KeepAlive, TensorIntrinsic, declare_family

from .dots import lane_dot

_WIDTHS = (4, 8, 16)
_BYTES = {"u": "u8", "s": "i8"}
_UNIT_ROUNDOFF = 2.0**-24  # unit roundoff of f32


def _fma(lanes: int) -> TensorIntrinsic:
    a = te.placeholder((), "f32", "a")
    b = te.placeholder((lanes,), "f32", "b")
    c = te.compute((lanes,), lambda n: a[()] * b[n], "c")

    def emit(code: Any, old: Any, a: Any, b: Any) -> Any:
        return code.call(f"llvm.fma.v{lanes}f32", old.type, code.repeated(a, lanes), b, old)

    return te.decl_tensor_intrin(
        f"fma_f32_{lanes}", c, emit, accumulates=True, tolerance=_UNIT_ROUNDOFF,
        features=("fma", "avx512f") if lanes == 16 else ("fma",),
    )  # fmt: skip


def _pmaddwd(lanes: int, weights: str = "i16") -> TensorIntrinsic:
    """Declare pmaddwd: products of 16-bit pairs.  Byte weights are widened when loaded, once for
    all rows.
    """
    suffix = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
    feature = {4: "sse2", 8: "avx2", 16: "avx512bw"}[lanes]

    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        wide = w if weights == "i16" else code.widened(w, "i16", True)
        return code.add(old, code.call(f"llvm.x86.{suffix}", old.type, a, wide))

    # The addition takes a second instruction, which also uses the multiplication ports.
    name = "pmaddwd" if weights == "i16" else f"pmaddwd_{weights}"
    if weights != "i16" and lanes == 4:
        feature = "sse4.1"
    return lane_dot(
        f"{name}_{lanes}", lanes, 2, ("i16", weights, "i32"), emit, (feature,), fmas=4 / 3,
        scratch=1,
    )  # fmt: skip


def _vnni(name: str, lanes: int, depth: int, types: tuple[str, str, str]) -> TensorIntrinsic:
    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        return code.call(f"llvm.x86.avx512.{name}.{32 * lanes}", old.type, old, a, w)

    features = ("avx512vnni",) if lanes == 16 else ("avx512vnni", "avx512vl")
    return lane_dot(f"{name}_{lanes}", lanes, depth, types, emit, features)


def _vnni_lanes(lanes: int) -> TensorIntrinsic:
    """Declare vpdpwssd for one product per lane: its second product has a factor zero.  A separate
    multiplication and addition would take one and a half times as long.
    """
    a = te.placeholder((lanes,), "i16", "a")
    w = te.placeholder((lanes,), "i16", "w")
    c = te.compute((lanes,), lambda n: a[n].astype("i32") * w[n].astype("i32"), "c")

    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        pairs = f"<{2 * lanes} x i16>"
        wide = code.widened(a, "i32", True), code.widened(w, "i32", False)
        operands = (code.bitcast(v, pairs) for v in wide)
        return code.call(f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", old.type, old, *operands)

    features = ("avx512vnni",) if lanes == 16 else ("avx512vnni", "avx512vl")
    return te.decl_tensor_intrin(
        f"vpdpwssd_lanes_{lanes}", c, emit, accumulates=True, features=features, scratch=2
    )


def _bf16(lanes: int) -> TensorIntrinsic:
    def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
        kind = f"<{2 * lanes} x bfloat>"
        pair = code.bitcast(a, kind), code.bitcast(w, kind)
        return code.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", old.type, old, *pair)

    features = ("avx512bf16",) if lanes == 16 else ("avx512bf16", "avx512vl")
    # The instruction rounds to odd between the two products and flushes denormals to zero.
    return lane_dot(
        f"vdpbf16ps_{lanes}", lanes, 2, ("bf16", "bf16", "f32"), emit, features,
        tolerance=2 * _UNIT_ROUNDOFF, fmas="bf16_dot_fmas",
    )  # fmt: skip


_ROWS = 16
"""Rows of an AMX tile, and 4-byte lanes of each row."""

_BUSY_ROWS = 11
"""Rows of the first factor below which an instruction gets no faster."""

_AWAKE_FMAS = 3200.0
"""Upper bound on the multiply-adds between two tile stores.  After 2,000 cycles of products without
a store, the next store takes some 900 cycles longer (measured on a Granite Rapids).
"""

_LANE_BYTES = 4
_TILES = 8
"""AMX tile registers."""


def _amx(
    name: str, types: tuple[str, str, str], feature: str, tolerance: float = 0.0
) -> TensorIntrinsic:
    """Declare `c[i, j] += sum over k and q of a[i, k, q] * w[k, j, q]`, where q counts numbers in a
    lane of 4 bytes.  Smaller tiles are declared, too: `name_ROWS` with 2 rows or more, and
    `name_ROWS_STEPS` with fewer steps k.
    """
    of_a, of_w, of_c = types
    depth = 4 if of_c == "i32" else 2

    def of_size(rows: int, steps: int = _ROWS) -> TensorIntrinsic | None:
        if not (2 <= rows <= _ROWS and 2 <= steps <= _ROWS):
            return None
        full_name = name if rows == steps == _ROWS else f"{name}_{rows}"
        full_name += "" if steps == _ROWS else f"_{steps}"
        a = te.placeholder((rows, steps, depth), of_a, "a")
        w = te.placeholder((steps, _ROWS, depth), of_w, "w")
        k, q = te.reduce_axis(steps, "k"), te.reduce_axis(depth, "q")
        c = te.compute(
            (rows, _ROWS),
            lambda i, j: te.sum(a[i, k, q].astype(of_c) * w[k, j, q].astype(of_c), axis=[k, q]),
            "c",
        )
        lanes = rows * _ROWS

        def emit(code: Any, old: Any, a: Any, w: Any) -> Any:
            height, width, deep = (
                code.constant("i16", n) for n in (rows, _ROWS * _LANE_BYTES, steps * _LANE_BYTES)
            )
            bits = code.bitcast(old, f"<{lanes} x i32>")
            tile = code.call(f"llvm.x86.cast.vector.to.tile.v{lanes}i32", "x86_amx", bits)
            made = code.call(
                f"llvm.x86.{name}.internal", "x86_amx", height, width, deep, tile, a, w
            )
            bits = code.call(f"llvm.x86.cast.tile.to.vector.v{lanes}i32", bits.type, made)
            return code.bitcast(bits, old.type)

        def touch(code: Any) -> None:
            shape = code.constant("i16", rows), code.constant("i16", steps * _LANE_BYTES)
            place = code.scratch(rows * steps * _LANE_BYTES), code.constant("i64", steps * 4)
            # The contents don't matter.  An instruction that makes a tile of zeros would need one
            # more tile register.
            tile = code.call("llvm.x86.tileloadd64.internal", "x86_amx", *shape, *place)
            code.run("llvm.x86.tilestored64.internal", *shape, *place, tile)

        # Each row occupies the only AMX unit for a cycle, in which two vector multiply-adds could
        # start.
        return te.decl_tensor_intrin(
            full_name, c, emit, load=_load_tile, features=("amx-tile", feature),
            fmas=2.0 * max(rows, _BUSY_ROWS), first_fmas=2.0 * steps, registers=_TILES,
            tolerance=tolerance, keep_alive=KeepAlive(touch, _AWAKE_FMAS),
        )  # fmt: skip

    declare_family(name, of_size)
    full_tile = of_size(_ROWS)
    assert full_tile is not None
    return full_tile


def _load_tile(code: Any, operand: Any, pointer: Any, distance: int) -> Any:
    rows, width = operand.shape[0], operand.size // operand.shape[0] * operand.dtype.bytes
    shape = code.constant("i16", rows), code.constant("i16", width)
    stride = code.constant("i64", distance)
    return code.call("llvm.x86.tileloadd64.internal", "x86_amx", *shape, pointer, stride)


INTRINSICS: tuple[TensorIntrinsic, ...] = (
    *map(_fma, _WIDTHS),
    *map(_pmaddwd, _WIDTHS),
    *(_pmaddwd(n, "i8") for n in _WIDTHS),
    *(_vnni("vpdpwssd", n, 2, ("i16", "i16", "i32")) for n in _WIDTHS),
    *map(_vnni_lanes, _WIDTHS),
    *(_vnni("vpdpbusd", n, 4, ("u8", "i8", "i32")) for n in _WIDTHS),
    *map(_bf16, _WIDTHS),
    *(
        _amx(f"tdpb{a}{w}d", (_BYTES[a], _BYTES[w], "i32"), "amx-int8")
        for a in _BYTES
        for w in _BYTES
    ),
    _amx("tdpbf16ps", ("bf16", "bf16", "f32"), "amx-bf16", tolerance=2 * _UNIT_ROUNDOFF),
    _amx("tdpfp16ps", ("f16", "f16", "f32"), "amx-fp16", tolerance=2 * _UNIT_ROUNDOFF),
)
