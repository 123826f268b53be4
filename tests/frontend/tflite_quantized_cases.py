"""Operators of quantised tensors of random integers, run by LiteRT and by Tilesmith."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tflite_oracle import check, one_graph

from tflite_models import GraphWriter

NONE, RELU, RELU_N1_TO_1, RELU6 = range(4)
I8, U8, I16 = np.int8, np.uint8, np.int16
Quantized = tuple[Any, float, int]
"""The element type, scale and zero point of a tensor."""


def integers(seed: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Random integers of the whole range of a type, its limits among them."""
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, shape, endpoint=True)
    flat = x.reshape(-1)
    flat[:1], flat[-1:] = info.max, info.min
    return x.astype(dtype)


def run(
    kind: str,
    shapes: Sequence[Sequence[int]],
    given: Sequence[Quantized],
    result: Any,
    options: str = "",
    is_open: bool = False,
    **values: Any,
) -> None:
    """Compares an operator of inputs of random integers.

    result: its quantisation, or its element type.
    """

    def build(g: GraphWriter) -> None:
        x = [
            g.input([-1] * len(s) if is_open else s, d, scale=scale, zero=zero)
            for s, (d, scale, zero) in zip(shapes, given, strict=True)
        ]
        shape = np.broadcast_shapes(*map(tuple, shapes))
        shape = [-1] * len(shape) if is_open else shape
        fields = {"scale": result[1], "zero": result[2]} if isinstance(result, tuple) else {}
        y = g.tensor(shape, result[0] if fields else result, **fields)
        g.op(kind, x, [y], options, **values)
        g.output(y)

    arrays = [
        np.random.default_rng(i).normal(0, 3, s).astype(np.float32)
        if d is np.float32
        else integers(i, s, d)
        for i, (s, (d, *_)) in enumerate(zip(shapes, given, strict=True))
    ]
    check(one_graph(build), arrays)
