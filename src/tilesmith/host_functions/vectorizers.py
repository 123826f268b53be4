"""Counts of the n-grams in texts, and decoding of images."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Literal

import numpy as np

from tilesmith.support.errors import ModelError

from .native import WithNative
from .table import Function, host_function


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
    """Number of occurrences of each n-gram of a pool in each row.

    starts: for n = 1, 2, ..., the position in the pool where the n-grams begin.
    indexes: for each n-gram, its index in the result.
    weights: weights of the elements of the result.
    shortest, longest: lengths of the n-grams that are counted.
    skips: upper bound on the elements skipped between two elements of an n-gram.
    """
    if problem := misplaced_grams(starts, len(pool)):
        raise ModelError(problem)
    grams = _Grams()
    number = 0
    for n, (begin, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        for first in range(begin, end, n):
            if shortest <= n <= longest:
                grams.add(pool[first : first + n], indexes[number])
            number += 1
    find = grams.finish()
    size = max(indexes, default=-1) + 1
    scale = np.ones(size, np.float32) if weights is None else np.array(weights, np.float32)

    def run(x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2):
            raise ModelError(f"expected shape [C] or [N, C], found {list(x.shape)}")
        words = find.words(x.reshape(1, -1) if x.ndim == 1 else x)
        counts = np.zeros((words.shape[0], size), np.float32)
        firsts = np.arange(words.shape[0])[:, None] * size
        for distance in range(1, min(skips + 2, max(words.shape[1], 2))):
            least = shortest if distance == 1 else max(shortest, 2)
            for n, places in find.places(words, distance, longest):
                if n >= least:
                    hits = (places + firsts)[places >= 0]
                    np.add.at(counts.reshape(-1), hits, np.float32(1))
        if mode == "IDF":
            counts = np.minimum(counts, 1)
        if mode != "TF":
            counts *= scale
        return counts.reshape((*x.shape[:-1], size))

    tables = (a.tobytes() for a in (find.keys, find.nodes, find.place[:-1]))
    scales = None if mode == "TF" or weights is None else scale.tobytes()
    ends = shortest, longest, skips, mode == "IDF"
    return WithNative(run, ("Grams", find.numbers, *tables, scales, size, *ends))


def misplaced_grams(starts: Sequence[int], count: int) -> str:
    """The error in the positions of n-grams in a pool of `count` words (see `tf_idf`), or ""."""
    for n, (begin, end) in enumerate(pairwise([*starts, count]), 1):
        if not 0 <= begin <= end <= count or (end - begin) % n:
            return f"ngram_counts: expected whole {n}-grams from {begin} to {end} of {count} words"
    return ""


class _Grams:
    """A tree of sequences of words, one node per prefix.  A sequence's `place` is its index."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.after: dict[tuple[int, int], int] = {}
        self.place = [-1]  # by node, the index of the sequence that ends there; node 0 is the root

    def add(self, words: list[Any], place: int) -> None:
        node = 0
        for word in words:
            step = node, self.numbers.setdefault(word, len(self.numbers) + 1)
            if step not in self.after:
                self.after[step] = len(self.place)
                self.place.append(-1)
            node = self.after[step]
        self.place[node] = place

    def finish(self) -> _Finder:
        width, count = len(self.numbers) + 1, len(self.place)
        keys = np.array([a * width + b for a, b in self.after], np.int64)
        nodes = np.array([*self.after.values()], np.int64)
        table = None
        if (count + 1) * width <= TABLE:
            table = np.full((count + 1) * width, -1, np.int64)
            table[keys] = nodes
        order = np.argsort(keys)
        place = np.array([*self.place, -1], np.int64)
        return _Finder(self.numbers, keys[order], nodes[order], table, place)


TABLE = 1 << 18
"""Upper bound on the entries of the table of next nodes by node and word: 2 MB."""


@dataclass(frozen=True, slots=True)
class _Finder:
    """A tree of sequences as tables.

    numbers: the number of each word, from 1; 0 stands for other words.
    keys: node * (words + 1) + the number of a word that may follow, in ascending order.
    nodes: the node that each key leads to.  From the root, node 0, unknown words lead to node -1,
        which is no node.
    table: the node for each possible key, including those of node -1; None for a tree that is too
        large.
    place: for each node, the index of the sequence that ends there; -1 if none does.  The last
        entry, -1, is for node -1.
    """

    numbers: dict[Any, int]
    keys: np.ndarray
    nodes: np.ndarray
    table: np.ndarray | None
    place: np.ndarray

    def words(self, x: np.ndarray) -> np.ndarray:
        """The number of each word in `x`, as an array of the same shape."""
        texts = x.reshape(-1).tolist()
        return np.fromiter(map(self.numbers.get, texts, repeat(0)), np.int64, x.size).reshape(
            x.shape
        )

    def places(
        self, words: np.ndarray, distance: int, longest: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield for n = 1, 2, ... the index of the sequence of n words that begins at each position
        of a row, -1 if there is none.  The words are `distance` positions apart.
        """
        nodes = np.zeros_like(words)
        for n in range(1, longest + 1):
            following = words[:, (n - 1) * distance :]
            if not following.size or not len(self.keys):
                return
            nodes = self._after(nodes[:, : following.shape[1]], following)
            yield n, self.place[nodes]

    def _after(self, nodes: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The nodes to which words lead; -1 for words that may not follow."""
        wanted = nodes * (len(self.numbers) + 1) + words
        if self.table is not None:
            return self.table[wanted]
        wanted[nodes < 0] = -1
        positions = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[positions] == wanted, self.nodes[positions], -1)


@host_function("decode_image")
def decode_image(encoded: np.ndarray, pixel_format: str) -> np.ndarray:
    """The pixels u8[height, width, channels] of an encoded image.

    Raises ModelError for bytes that are not an image, and without the package Pillow.
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
