"""Random bits as a pure function of a counter and a key: Threefry-2x32 with 20 rounds.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  The
    algorithm needs additions, rotations and exclusive ors of 32-bit words, which vectors of every
    width have.  The same rounds serve arrays and expressions (`codegen.math`), which differ in how
    words are added and mixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

W = TypeVar("W")

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Rotations by round modulo 8, in groups of four; the key is added after each group."""
PARITY = 0x1BD11BDA
"""The third word of the key is the exclusive or of this number and the other two words."""
ROUNDS = 20


def threefry(
    counter: tuple[W, W],
    key: tuple[W, W, W],
    add: Callable[[W, W | int], W],
    mix: Callable[[W, W, int], W],
) -> tuple[W, W]:
    """The two words of a block.

    key: three words, the third as `PARITY` says.
    add: sum of words modulo 2^32.
    mix: `mix(a, b, n)` is `a` rotated left by `n` bits, exclusive or `b`.
    """
    x, y = add(counter[0], key[0]), add(counter[1], key[1])
    for group in range(ROUNDS // 4):
        for turn in ROTATIONS[group % 2]:
            x = add(x, y)
            y = mix(y, x, turn)
        x = add(x, key[(group + 1) % 3])
        y = add(add(y, key[(group + 2) % 3]), group + 1)
    return x, y


def threefry_word(c0: Any, c1: Any, k0: Any, k1: Any) -> np.ndarray:
    """The meaning of the intrinsic: the first word of the block, for arrays of `uint32`."""
    words = np.broadcast_arrays(*(np.asarray(w, np.uint32) for w in (c0, c1, k0, k1)))
    x, y, k, m = (w.reshape(-1) for w in words)  # NumPy warns when scalars overflow

    def rotated(a: np.ndarray, b: np.ndarray, n: int) -> np.ndarray:
        return ((a << np.uint32(n)) | (a >> np.uint32(32 - n))) ^ b

    key = (k, m, k ^ m ^ np.uint32(PARITY))
    word, _ = threefry((x, y), key, lambda a, b: a + np.asarray(b, np.uint32), rotated)
    return word.reshape(words[0].shape)
