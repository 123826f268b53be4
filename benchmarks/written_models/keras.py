"""Writes small files of Keras 1 and 2 for tests."""

from __future__ import annotations

import io
import json
from typing import Any

import h5py
import numpy as np


def older_file(
    version: bytes, kind: str, config: Any, weights: dict[str, list[np.ndarray]]
) -> bytes:
    """An HDF5 file, written by hand as Keras 1 and 2 lay it out."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["keras_version"] = version
        file.attrs["model_config"] = json.dumps({"class_name": kind, "config": config}).encode()
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in weights]
        for name, arrays in weights.items():
            own = group.create_group(name)
            own.attrs["weight_names"] = [f"{name}_{i}".encode() for i in range(len(arrays))]
            for i, array in enumerate(arrays):
                own[f"{name}_{i}"] = array
    return buffer.getvalue()
