"""x * 2^floor(y) in f32: the AVX-512 instruction that ends the expansion of an exponential."""

from __future__ import annotations

from .builder import Builder
from .llvm_text import shuffle_mask, vector


def scalef(b: Builder, lanes: int, x: str, y: str) -> str:
    """x * 2^floor(y), rounded once, by instructions of 4, 8 or 16 lanes."""
    here = vector("float", lanes)
    if lanes in (4, 8, 16):
        mask, rounding = ("i16", ", i32 4") if lanes == 16 else ("i8", "")
        return b.emit(
            f"call {here} @llvm.x86.avx512.mask.scalef.ps.{32 * lanes}({here} {x}, {here} {y}, "
            f"{here} zeroinitializer, {mask} -1{rounding})"
        )
    if lanes == 1:
        x, y = (b.splat("float", v, 4) for v in (x, y))
        return b.emit(f"extractelement <4 x float> {scalef(b, 4, x, y)}, i32 0")
    size = max(1 << (lanes - 1).bit_length(), 4)
    if size > lanes:
        x, y = (_picked(b, v, lanes, range(lanes), size) for v in (x, y))
        return _picked(b, scalef(b, size, x, y), size, range(lanes), lanes)
    half = size // 2
    low, high = (
        scalef(b, half, *(_picked(b, v, size, part, half) for v in (x, y)))
        for part in (range(half), range(half, size))
    )
    there, both = vector("float", half), shuffle_mask(tuple(range(size)))
    return b.emit(f"shufflevector {there} {low}, {there} {high}, {both}")


def _picked(b: Builder, value: str, lanes: int, taken: range, size: int) -> str:
    """The lanes `taken` of `value`, a vector of `lanes` lanes.  The last one is repeated to fill
    `size`.
    """
    mask = shuffle_mask((*taken, *([taken[-1]] * (size - len(taken)))))
    type_ = vector("float", lanes)
    return b.emit(f"shufflevector {type_} {value}, {type_} poison, {mask}")
