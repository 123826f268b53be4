"""Models of one ONNX node, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_models as om
from onnx import helper

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate


def made(
    op: str,
    inputs: Mapping[str, np.ndarray],
    opset: int = 21,
    outputs: int = 1,
    domain: str = "",
    constants: Mapping[str, np.ndarray] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node, with `constants` as its last inputs."""
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [*inputs, *(constants or {})], names, domain=domain, **attributes)
    infos = [
        om.value(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in inputs.items()
    ]
    model = om.model([node], infos, names, constants, opset=opset)
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    return session.run(None, dict(inputs))


def check(
    model: onnx.ModelProto,
    inputs: dict[str, np.ndarray],
    expected: list[np.ndarray] | None = None,
    relative: float = 1e-5,
    absolute: float = 1e-6,
) -> None:
    """Evaluated and compiled, the model gives what ONNX Runtime gives (or `expected`)."""
    wanted = onnxruntime(model, inputs) if expected is None else expected
    for found in (evaluate(load(model), inputs), ts.compile(model, threads=1).run(inputs)):
        for got, want in zip(found.values(), wanted, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, relative, absolute)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
