"""The installed engines and libraries that compute a matrix product."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.cli.engines import installed


def peers(
    model: bytes, a: np.ndarray, b: np.ndarray, threads: int, transposed: bool = False
) -> dict[str, Callable[[], Any]]:
    """By name, functions that compute a @ b, for `transposed` with the last axes of b exchanged.

    model: an ONNX model of it with inputs a and b, for ONNX Runtime and OpenVINO.
    """
    inputs: Mapping[str, np.ndarray] = {"a": a, "b": b}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        path.write_bytes(model)
        found: dict[str, Callable[[], Any]] = {
            name: prepare(path, inputs, threads) for name, prepare in installed(path).items()
        }
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(threads)
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        second = y.transpose(-1, -2) if transposed else y
        out = torch.empty_like(x @ second)
        found["torch"] = lambda: torch.matmul(x, second, out=out)
    return found
