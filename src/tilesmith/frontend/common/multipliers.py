"""Real factors as integers and shifts, for products of integers in fixed point."""

from __future__ import annotations

import math


def quantize_multiplier(real: float) -> tuple[int, int]:
    """A multiplier and a shift: `real` is about multiplier * 2^(shift - 31)."""
    fraction, shift = math.frexp(real)
    multiplier = math.floor(abs(fraction) * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    if multiplier == 0 or shift < -31:
        return 0, 0
    return int(math.copysign(multiplier, fraction)), shift
