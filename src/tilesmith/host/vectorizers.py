"""Texts as counts of n-grams, and files as images."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from tilesmith.support.errors import ModelError

from .functions import Function, host_function


@host_function("tf_idf", prepared=True)
def tf_idf(
    mode: Literal["TF", "IDF", "TFIDF"],
    pool: list[Any],
    starts: list[int],
    indexes: list[int],
    weights: list[float] | None,
    shortest: int,
    longest: int,
    skips: int,
) -> Function:
    """How often each n-gram of a pool stands in each row.

    starts: for n = 1, 2, ..., where the n-grams begin in the pool.
    indexes: for each n-gram, its place in the result.
    weights: of the places of the result.
    shortest, longest: the n-grams that are counted.
    skips: most elements that are left out between two of an n-gram.
    """
    places: dict[tuple[Any, ...], int] = {}
    number = 0
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for at in range(begin, end, n):
            if shortest <= n <= longest:
                places[tuple(pool[at : at + n])] = indexes[number]
            number += 1
    size = max(indexes, default=-1) + 1
    scale = np.ones(size, np.float32) if weights is None else np.array(weights, np.float32)

    def grams(row: list[Any]) -> Iterator[tuple[Any, ...]]:
        for distance in range(1, skips + 2):
            for n in range(shortest if distance == 1 else max(shortest, 2), longest + 1):
                for at in range(len(row) - (n - 1) * distance):
                    yield tuple(row[at : at + (n - 1) * distance + 1 : distance])

    def run(x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2):
            raise ModelError(f"expected shape [C] or [N, C], found {list(x.shape)}")
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        counts = np.zeros((rows.shape[0], size), np.float32)
        for row, count in zip(rows.tolist(), counts, strict=True):
            for gram in grams(row):
                place = places.get(gram)
                if place is not None:
                    count[place] += 1
        if mode == "IDF":
            counts = np.minimum(counts, 1)
        found = counts if mode == "TF" else counts * scale
        return found.reshape((*x.shape[:-1], size))

    return run


@host_function("decode_image")
def decode_image(encoded: np.ndarray, pixel_format: str) -> np.ndarray:
    """The pixels u8[height, width, channels] of an encoded image.

    Raises ModelError for bytes that are no image, and without the package Pillow.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ModelError(
            "to decode images the package Pillow is needed; install it: pip install pillow"
        ) from None
    try:
        image = Image.open(io.BytesIO(encoded.tobytes()))
        if pixel_format == "Grayscale":
            return np.asarray(image.convert("L"))[:, :, None]
        pixels = np.asarray(image.convert("RGB"))
    except (OSError, ValueError, UnidentifiedImageError) as e:
        raise ModelError(f"expected an encoded image ({e})") from None
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
