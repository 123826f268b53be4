#!/usr/bin/env python3
"""Write networks of keras.applications with random weights and expected results, for `check.py`:
`python benchmarks/formats/write_keras.py FOLDER [--only TEXT] [--old]`, where Keras is installed.

Each network is written as an archive and as an HDF5 file.  `--old` writes HDF5 files of Keras 2
instead, with the package `tf_keras`.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS = {
    "MobileNetV2": 96,
    "MobileNetV3Small": 96,
    "ResNet50": 64,
    "EfficientNetB0": 64,
    "EfficientNetV2B0": 64,
    "DenseNet121": 64,
    "InceptionV3": 96,
    "Xception": 96,
    "NASNetMobile": 96,
    "VGG16": 48,
    "ConvNeXtTiny": 64,
    "ResNet50V2": 64,
}
"""Networks, and the height and width of their images."""


def network(keras: Any, name: str, size: int) -> Any:
    """A network with random weights, whose activations stay small."""
    rng = np.random.default_rng(0)
    make = getattr(keras.applications, name)
    model = make(weights=None, input_shape=(size, size, 3), classes=10)
    for layer in _layers(model):
        if type(layer).__name__ == "BatchNormalization":
            arrays = [np.asarray(a) for a in layer.get_weights()]
            layer.set_weights([rng.uniform(0.5, 1.5, a.shape).astype(a.dtype) for a in arrays])
    return model


def _layers(model: Any) -> list[Any]:
    nested = [_layers(layer) if hasattr(layer, "layers") else [layer] for layer in model.layers]
    return [layer for layers in nested for layer in layers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--old", action="store_true", help="HDF5 files of Keras 2")
    arguments = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = importlib.import_module("tf_keras" if arguments.old else "keras")
    for name, size in NETWORKS.items():
        if arguments.only not in name:
            continue
        keras.utils.set_random_seed(0)
        model = network(keras, name, size)
        x = np.random.default_rng(1).uniform(-1, 1, (2, size, size, 3)).astype(np.float32)
        y = np.asarray(model.predict(x, verbose=0))
        for ending in ("h5",) if arguments.old else ("keras", "h5"):
            era = "_keras2" if arguments.old else ""
            case = arguments.folder / f"{name}{era}_{ending}"
            case.mkdir(parents=True, exist_ok=True)
            model.save(case / f"model.{ending}")
            arrays = {f"input:{model.input_names[0]}": x, "output:0": y}
            np.savez(case / "io.npz", **arrays)
        print(name, flush=True)


if __name__ == "__main__":
    main()
