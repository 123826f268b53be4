"""The blocks of GGUF's quantised tensors, and the numbers that they stand for.

Each type is the layout of a block and a formula.  The formulas are those of ggml's reference
dequantisation, in the same order of operations and in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_HALF, _LARGE = 32, 256
"""Number of elements in a small block, and in a block with several scales."""


@dataclass(frozen=True, slots=True)
class Block:
    """A type of quantised elements.

    name: its name in ggml.
    elements: number of elements in a block.
    stored: the layout of a block.
    decode: the elements of blocks as f32, [blocks, elements].
    """

    name: str
    elements: int
    stored: np.dtype
    decode: Callable[[np.ndarray], np.ndarray]


def _parts(codes: np.ndarray, run: int, shifts: Sequence[int], bits: int) -> np.ndarray:
    """Numbers of `bits` bits from bytes [blocks, n]; the result is [blocks, n * len(shifts)].

    Each byte holds one number at each bit position in `shifts`.  The result has, for each `run`
    bytes, their numbers at the first shift, then their numbers at the next shift.
    """
    runs = codes.reshape(len(codes), -1, 1, run)
    by = np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (runs >> by & ((1 << bits) - 1)).reshape(len(codes), -1)


def _f32(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).reshape(len(x), -1)


def _nibbles(b: np.ndarray) -> np.ndarray:
    return _parts(b["q"], 16, (0, 4), 4)


def _fifth_bits(b: np.ndarray) -> np.ndarray:
    """Numbers of 5 bits, whose highest bits are stored in the field `high`."""
    high = np.unpackbits(b["high"], axis=1, bitorder="little")
    return _nibbles(b) | high << 4


def _symmetric(numbers: Callable[[np.ndarray], np.ndarray], zero: int) -> Callable[..., Any]:
    return lambda b: (numbers(b).astype(np.int8) - np.int8(zero)) * _f32(b["d"])


def _offset(numbers: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    return lambda b: numbers(b) * _f32(b["d"]) + _f32(b["m"])


def _spread(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Products of numbers [blocks, n] and scales [blocks, m]; n / m neighbours share a scale."""
    count = scales.shape[1]
    return (scales[:, :, None] * numbers.reshape(len(numbers), count, -1)).reshape(numbers.shape)


def _q2(b: np.ndarray) -> np.ndarray:
    low, high = b["scales"] & 15, b["scales"] >> 4
    numbers = _parts(b["q"], 32, (0, 2, 4, 6), 2)
    least = np.repeat(_f32(b["m"]) * high, 16, 1)
    return _spread(numbers, _f32(b["d"]) * low) - least


def _q3(b: np.ndarray) -> np.ndarray:
    low = _parts(b["scales"][:, :8], 8, (0, 4), 4)
    high = _parts(b["scales"][:, 8:], 4, (0, 2, 4, 6), 2)
    scales = (low | high << 4).astype(np.int8) - np.int8(32)
    numbers = _parts(b["q"], 32, (0, 2, 4, 6), 2).astype(np.int8)
    is_low = _parts(b["high"], 32, range(8), 1) ^ 1
    return _spread(numbers - (is_low << 2).astype(np.int8), _f32(b["d"]) * scales)


def _scales_and_least(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """8 scales and 8 offsets of 6 bits, in 12 bytes."""
    first, second, rest = (b["scales"][:, i : i + 4] for i in (0, 4, 8))
    scales = np.hstack([first & 63, rest & 15 | first >> 2 & 48])
    least = np.hstack([second & 63, rest >> 4 | second >> 2 & 48])
    return _f32(b["d"]) * scales, _f32(b["m"]) * least


def _q4_large(b: np.ndarray, high: np.ndarray | int = 0) -> np.ndarray:
    scales, least = _scales_and_least(b)
    numbers = _parts(b["q"], 32, (0, 4), 4) | high
    return _spread(numbers, scales) - np.repeat(least, 32, 1)


def _q5_large(b: np.ndarray) -> np.ndarray:
    return _q4_large(b, _parts(b["high"], 32, range(8), 1) << 4)


def _q6(b: np.ndarray) -> np.ndarray:
    numbers = _parts(b["q"], 64, (0, 4), 4) | _parts(b["high"], 32, (0, 2, 4, 6), 2) << 4
    return _spread(numbers.astype(np.int8) - np.int8(32), _f32(b["d"]) * b["scales"])


_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""The numbers that the codes of IQ4 types stand for."""


def _iq4_large(b: np.ndarray) -> np.ndarray:
    low = _parts(b["low"], 1, (0, 4), 4)
    high = b["high"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = (low | high << 4).astype(np.int8) - np.int8(32)
    return _spread(_VALUES[_nibbles(b)], _f32(b["d"]) * scales)


_TYPES: dict[int, tuple[str, int, str, Callable[[np.ndarray], np.ndarray]]] = {
    2: ("Q4_0", _HALF, "d:f2 q:16", _symmetric(_nibbles, 8)),
    3: ("Q4_1", _HALF, "d:f2 m:f2 q:16", _offset(_nibbles)),
    6: ("Q5_0", _HALF, "d:f2 high:4 q:16", _symmetric(_fifth_bits, 16)),
    7: ("Q5_1", _HALF, "d:f2 m:f2 high:4 q:16", _offset(_fifth_bits)),
    8: ("Q8_0", _HALF, "d:f2 q:32", lambda b: b["q"].view(np.int8) * _f32(b["d"])),
    10: ("Q2_K", _LARGE, "scales:16 q:64 d:f2 m:f2", _q2),
    11: ("Q3_K", _LARGE, "high:32 q:64 scales:12 d:f2", _q3),
    12: ("Q4_K", _LARGE, "d:f2 m:f2 scales:12 q:128", _q4_large),
    13: ("Q5_K", _LARGE, "d:f2 m:f2 scales:12 high:32 q:128", _q5_large),
    14: ("Q6_K", _LARGE, "q:128 high:64 scales:i16 d:f2", _q6),
    20: ("IQ4_NL", _HALF, "d:f2 q:16", lambda b: _VALUES[_nibbles(b)] * _f32(b["d"])),
    23: ("IQ4_XS", _LARGE, "d:f2 high:u2 low:4 q:128", _iq4_large),
}


def _layout(text: str) -> np.dtype:
    """The layout of a block, from fields `name:kind`.  A kind is a number of bytes, i16 for 16
    signed bytes, or the type of a single number.
    """
    fields: list[Any] = []
    for field in text.split():
        name, kind = field.split(":")
        if kind.isdigit():
            fields.append((name, "u1", int(kind)))
        elif kind == "i16":
            fields.append((name, "i1", 16))
        else:
            fields.append((name, f"<{kind}"))
    return np.dtype(fields)


BLOCKS = {
    number: Block(name, elements, _layout(text), decode)
    for number, (name, elements, text, decode) in _TYPES.items()
}
"""The types of blocks by their numbers."""
