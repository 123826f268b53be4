"""TFLite's resizes, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, numbers, one_graph

from tflite_models import GraphWriter

KINDS = [(False, False), (True, False), (False, True)]


def _resize(
    name: str, x: np.ndarray, size: tuple[int, int], kind: tuple[bool, bool], **fields: Any
) -> None:
    options = "ResizeBilinearOptions" if "BILINEAR" in name else "ResizeNearestNeighborOptions"

    def build(g: GraphWriter) -> None:
        shape = fields.get("declared", x.shape)
        operands = [g.input(shape, x.dtype), g.const(np.array(size, np.int32))]
        y = g.tensor((-1,) * 4 if fields else (), x.dtype)
        g.op(name, operands, [y], options, align_corners=kind[0], half_pixel_centers=kind[1])
        g.output(y)

    check(one_graph(build), [x], 3e-5)


SIZES = [
    ((7, 5), (14, 10)),
    ((8, 6), (4, 9)),
    ((5, 1), (1, 3)),
    ((3, 4), (3, 4)),
    ((5, 7), (47, 59)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("source", "size"), SIZES)
@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resize(
    name: str, source: tuple[int, int], size: tuple[int, int], kind: tuple[bool, bool]
) -> None:
    _resize(name, numbers(0, 2, *source, 3), size, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resize_of_open_extents(name: str, kind: tuple[bool, bool]) -> None:
    _resize(name, numbers(0, 2, 6, 5, 3), (9, 12), kind, declared=(-1, -1, -1, 3))


def test_resize_of_integers() -> None:
    x = np.arange(2 * 5 * 6 * 3, dtype=np.int32).reshape(2, 5, 6, 3)
    _resize("RESIZE_NEAREST_NEIGHBOR", x, (7, 9), (False, True))
