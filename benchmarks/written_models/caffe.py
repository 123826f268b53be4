"""Writes small Caffe nets for tests."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.caffe.schema import SCHEMA

from . import protobuf


def blob(array: np.ndarray, legacy: bool = False) -> dict[str, object]:
    data = {"data": array.reshape(-1)}
    if legacy:
        four = (*[1] * (4 - array.ndim), *array.shape)
        return data | dict(zip(("num", "channels", "height", "width"), four, strict=True))
    return data | {"shape": {"dim": array.shape}}


def blobs(**layers: list[np.ndarray]) -> bytes:
    """A .caffemodel with these blobs."""
    stored = [
        {"name": name, "type": "Any", "blobs": [blob(a) for a in arrays]}
        for name, arrays in layers.items()
    ]
    return protobuf.encode(SCHEMA, "Net", {"name": "net", "layer": stored})
