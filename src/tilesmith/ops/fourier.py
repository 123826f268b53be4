"""Fourier transforms.  The last axis holds the real and the imaginary part of a complex number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.support.errors import UnsupportedError

from . import rules
from .base import GraphBuilder, Op
from .conv import Conv
from .matmul import MatMul
from .slicing import Pad, Slice

_LIMIT = 1 << 24
"""Upper bound on the elements of a transform's matrix: length 2048 for complex numbers."""


@dataclass(frozen=True)
class Dft(Op):
    """The discrete Fourier transform along `axis` of x [...,1] (real) or [...,2] (complex).

    The transform is one product with a matrix of sines and cosines.

    length: length to which x is first cut, or padded with zeros; 0: no change.
    inverse: whether to compute the inverse transform.
    onesided: whether only the first half of the frequencies is returned, which determines a real
        signal.  With `inverse` this half is the input, and the result is a real signal of `length`
        (0: the even length).
    """

    heavy_reference = True

    axis: int
    length: int = 0
    inverse: bool = False
    onesided: bool = False

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        x = rules.only(self.name, inputs)
        rank = x.type.rank
        axis = rules.normalize_axis(self.name, self.axis, rank)
        parts = x.type.shape[-1]
        if not x.type.dtype.is_float or parts not in (1, 2) or axis == rank - 1:
            rules.reject(self.name, "floats [...,1] or [...,2], an axis before the last", x.type)
        extent = rules.static(self.name, x.type.shape[axis], "the axis of the transform")
        real = self.inverse and self.onesided
        n = self.length or (2 * (extent - 1) if real else extent)
        taken, count = (n // 2 + 1 if real else n), (n // 2 + 1 if self.onesided else n)
        if real and parts != 2:
            rules.reject(self.name, "complex frequencies [...,2]", x.type)
        _check_length(self.name, n, parts)
        if taken < extent:
            x = b.add(Slice((0,), (taken,), (axis,), (1,)), x)
        elif taken > extent:
            pads = [0] * (2 * rank)
            pads[rank + axis] = taken - extent
            x = b.add(Pad(tuple(pads)), x)
        order = (*(a for a in range(rank) if a != axis and a != rank - 1), axis, rank - 1)
        moved = x.transpose(*order)
        lead = moved.type.shape[:-2]
        matrix = self._real_matrix(n) if real else _matrix(n, parts, count, self.inverse)
        flat = moved.reshape(*lead, taken * parts)
        product = b.add(MatMul(), flat, b.constant(matrix.astype(x.type.dtype.numpy)))
        shaped = product.reshape(*lead, *(n, 1) if real else (count, 2))
        return shaped.transpose(*(int(a) for a in np.argsort(order)))

    def _real_matrix(self, n: int) -> np.ndarray:
        """The matrix [(n // 2 + 1) * 2, n] that maps the real and imaginary parts of frequencies to
        real samples.
        """
        count = n // 2 + 1
        angle = _angles(n, count, n)
        twice = np.full((count, 1), 2.0)
        twice[0] = 1.0
        if n % 2 == 0:
            twice[-1] = 1.0
        return np.stack([np.cos(angle), -np.sin(angle)], 1).reshape(count * 2, n) * (
            np.repeat(twice, 2, 0) / n
        )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        x = rules.exact(inputs[0])
        axis = self.axis % x.ndim
        signal = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
        if self.inverse and self.onesided:
            return np.fft.irfft(signal, self.length or None, axis)[..., None].astype(
                inputs[0].dtype
            )
        n = self.length or x.shape[axis]
        y = (np.fft.ifft if self.inverse else np.fft.fft)(signal, n, axis)
        if self.onesided:
            y = np.take(y, range(n // 2 + 1), axis)
        return np.stack([y.real, y.imag], -1).astype(inputs[0].dtype)


def _matrix(n: int, parts: int, count: int, inverse: bool = False) -> np.ndarray:
    """The matrix [n * parts, count * 2] that maps (sample, part) to (frequency, part)."""
    angle = _angles(n, n, count)
    sign, scale = (1, 1 / n) if inverse else (-1, 1)
    real, imaginary = np.cos(angle) * scale, sign * np.sin(angle) * scale
    rows = [[real, imaginary], [-imaginary, real]][:parts]
    return np.transpose(rows, (2, 0, 3, 1)).reshape(n * parts, count * 2)


def _check_length(op: str, n: int, parts: int) -> None:
    if n * n * 2 * parts > _LIMIT:
        raise UnsupportedError(f"{op}: a transform of length {n}, expected at most 2048")


def _angles(n: int, rows: int, columns: int) -> np.ndarray:
    return 2 * np.pi / n * (np.outer(np.arange(rows), np.arange(columns)) % n)


@dataclass(frozen=True)
class Stft(Op):
    """Fourier transforms of frames of a signal [N,samples,1 or 2]: [N,frames,frequencies,2].

    The transform is a convolution, so no frames are copied.  The channels are the parts of a
    sample, and the filters are sines and cosines times the window.  Filters are packed at compile
    time.  If the window is known only at run time, a transform of frames is faster.

    Inputs: the signal and the window [frame length], by which each frame is multiplied.

    step: samples between the starts of frames.
    onesided: whether only the first half of the frequencies is returned.
    """

    heavy_reference = True

    step: int
    onesided: bool = True

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        rules.check_count(self.name, inputs, 2)
        signal, window = inputs
        if signal.type.rank != 3 or window.type.rank != 1 or self.step < 1:
            rules.reject(
                self.name, "a signal [N,samples,parts], a window and a step of at least 1",
                f"{signal.type}, {window.type} and {self.step}",
            )  # fmt: skip
        n, samples, parts = signal.type.shape
        length = rules.static(self.name, window.type.shape[0], "the length of the window")
        if length < 1 or (isinstance(samples, int) and length > samples):
            rules.reject(self.name, f"a window of 1..{samples}", length)
        if not signal.type.dtype.is_float or parts not in (1, 2):
            rules.reject(self.name, "floats [N,samples,1] or [N,samples,2]", signal.type)
        _check_length(self.name, length, parts)
        count = length // 2 + 1 if self.onesided else length
        matrix = _matrix(length, parts, count).reshape(length, parts, 2 * count)
        filters = np.transpose(matrix, (2, 1, 0)).astype(signal.type.dtype.numpy)
        weighted = b.constant(filters) * window
        y = b.add(Conv((self.step,)), signal.transpose(0, 2, 1), weighted)
        return y.transpose(0, 2, 1).reshape(n, y.type.shape[2], count, 2)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        signal, window = map(rules.exact, inputs)
        begins = range(0, signal.shape[1] - len(window) + 1, self.step)
        frames = [signal[:, begin : begin + len(window)] * window[:, None] for begin in begins]
        y = Dft(2, onesided=self.onesided).reference(np.stack(frames, 1))
        return y.astype(inputs[0].dtype)
