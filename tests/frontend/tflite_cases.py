"""Models of one operator, run by TFLite's reference kernels and by Tilesmith."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tflite_models import ModelWriter
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate


def one_operator(
    kind: str,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[tuple[Any, Any]],
    options: str = "",
    *,
    stored: Sequence[int] = (),
    quantized: Sequence[Any] = (),
    quantized_outputs: Sequence[Any] = (),
    is_open: bool = False,
    **values: Any,
) -> bytes:
    """A model of one operator.

    outputs: a shape and an element type for each output.
    stored: the inputs that are constants.
    quantized: for each input None, or its scale and zero point; `quantized_outputs`: likewise.
    is_open: whether dimensions are open: those of inputs that are no lists, and of all outputs.
    """
    model = ModelWriter()
    graph = model.graph()

    def quantization(of: Sequence[Any], i: int) -> dict[str, Any]:
        pair = of[i] if i < len(of) else None
        return {} if pair is None else {"scale": pair[0], "zero": pair[1]}

    numbers = []
    for i, array in enumerate(inputs):
        fields = quantization(quantized, i)
        if i in stored:
            numbers.append(graph.const(array, **fields))
            continue
        shape = [-1] * array.ndim if is_open and array.ndim > 1 else array.shape
        numbers.append(graph.input(shape, array.dtype, f"x{i}", **fields))
    made = []
    for i, (shape, dtype) in enumerate(outputs):
        dims = [-1] * len(shape) if is_open else shape
        made.append(graph.tensor(dims, dtype, f"y{i}", **quantization(quantized_outputs, i)))
    graph.op(kind, numbers, made, options, **values)
    graph.output(*made)
    return model.bytes()


def litert(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of TFLite's reference kernels; of its others, for operators without one."""
    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    kinds = runtime.OpResolverType

    def interpreter(kernels: Any) -> Any:
        return runtime.Interpreter(model_content=model, experimental_op_resolver_type=kernels)

    try:
        run = interpreter(kinds.BUILTIN_REF)
    except ValueError:
        run = interpreter(kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    places = [d["index"] for d in run.get_input_details()]
    for place, array in zip(places, inputs, strict=True):
        run.resize_tensor_input(place, array.shape)
    run.allocate_tensors()
    for place, array in zip(places, inputs, strict=True):
        run.set_tensor(place, array)
    run.invoke()
    return [run.get_tensor(d["index"]) for d in run.get_output_details()]


def check_operator(
    kind: str,
    inputs: Sequence[np.ndarray],
    options: str = "",
    *,
    outputs: Sequence[tuple[Any, Any]] | None = None,
    stored: Sequence[int] = (),
    tolerance: float = 1e-5,
    is_compiled: bool = False,
    **values: Any,
) -> None:
    """An operator's results equal those of TFLite: integers exactly, floats within `tolerance`.

    outputs: a shape and an element type for each; by default those of the first input.
    is_compiled: whether the model is compiled, too, and not only evaluated.
    """
    outputs = [(inputs[0].shape, inputs[0].dtype)] if outputs is None else outputs
    model = one_operator(kind, inputs, outputs, options, stored=stored, **values)
    given = {f"x{i}": x for i, x in enumerate(inputs) if i not in stored}
    wanted = litert(model, list(given.values()))
    runs = [evaluate(load(model), given)]
    if is_compiled:
        runs.append(ts.compile(model, threads=1).run(given))
    for run in runs:
        assert len(run) == len(wanted)
        for result, want in zip(run.values(), wanted, strict=True):
            assert (result.dtype, result.shape) == (want.dtype, want.shape)
            if want.dtype.kind in "iub":
                np.testing.assert_array_equal(result, want)
            else:
                np.testing.assert_allclose(result, want, tolerance, tolerance)
