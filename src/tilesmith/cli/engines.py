"""Other engines that run the same model, for `compare` and the benchmarks.

Each is imported when it is used.  `prepare` returns a function that runs the model once on fixed
inputs and returns its outputs in the model's order.  ONNX Runtime and OpenVINO read ONNX files,
LiteRT reads TFLite files, and PyTorch needs the module from which a file was exported.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.load import recognised
from tilesmith.frontend.onnx import ONNX
from tilesmith.frontend.tflite import TFLITE
from tilesmith.frontend.tflite.model import read
from tilesmith.frontend.tflite.reader import chosen_signature

Run: TypeAlias = Callable[[], Sequence[np.ndarray]]
Prepare: TypeAlias = Callable[[Path, Mapping[str, np.ndarray], int], Run]


def onnxruntime(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
    """ONNX Runtime on the CPU."""
    return bound_run(onnxruntime_session(model, threads), inputs)


def onnxruntime_session(model: Path, threads: int) -> Any:
    """ONNX Runtime's session for a model, for the CPU, with all graph optimisations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def bound_run(session: Any, inputs: Mapping[str, np.ndarray]) -> Run:
    """A run of an ONNX Runtime session on these inputs.  Inputs and outputs are bound to memory
    beforehand (IO binding), so that a call converts and allocates as little as possible.
    """
    feed = {name: np.ascontiguousarray(a) for name, a in inputs.items()}
    results: Any = session.run(None, feed)
    bound = [*feed.values(), *results]
    if not all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" for a in bound):
        return lambda: session.run(None, feed)  # type: ignore[return-value]  # strings, sequences
    memory = [np.empty_like(r, order="C") for r in results]
    held = (feed, memory)  # the binding holds addresses only, so the arrays must stay alive
    binding = session.io_binding()
    for name, a in feed.items():
        binding.bind_input(name, "cpu", 0, a.dtype, a.shape, a.ctypes.data)
    for output, a in zip(session.get_outputs(), memory, strict=True):
        binding.bind_output(output.name, "cpu", 0, a.dtype, a.shape, a.ctypes.data)

    def run() -> Sequence[np.ndarray]:
        session.run_with_iobinding(binding)
        return held[1]

    return run


def openvino(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
    """OpenVINO on the CPU, with float32 (by default it would use bf16 where AMX is present)."""
    import openvino as ov  # pyright: ignore[reportMissingImports]  # installed to compare

    core = ov.Core()
    read = core.read_model(str(model))
    read.reshape({name: list(a.shape) for name, a in inputs.items()})
    config: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(read, "CPU", config).create_infer_request()
    feed = dict(inputs)
    count = len(read.outputs)

    def run() -> Sequence[np.ndarray]:
        results = request.infer(feed, share_inputs=True, share_outputs=True)
        return [results[i] for i in range(count)]

    return run


def litert(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
    """LiteRT (TensorFlow Lite) on the CPU, with XNNPACK."""
    from ai_edge_litert.interpreter import Interpreter  # pyright: ignore[reportMissingImports]  # installed to compare

    _, source = recognised(model)
    signature = chosen_signature(read(source))
    interpreter = Interpreter(model_path=str(model), num_threads=threads)
    declared = {d["index"]: tuple(d["shape"]) for d in interpreter.get_input_details()}
    feed = {signature.inputs[name]: a for name, a in inputs.items()}
    for number, array in feed.items():
        if array.shape != declared[number]:
            interpreter.resize_tensor_input(number, array.shape)
    interpreter.allocate_tensors()

    def run() -> Sequence[np.ndarray]:
        for number, array in feed.items():
            interpreter.set_tensor(number, array)
        interpreter.invoke()
        return [interpreter.get_tensor(number) for number in signature.outputs.values()]

    return run


@dataclass(frozen=True, slots=True)
class Engine:
    """Another engine.

    package: the module that it needs.
    pip: the package that pip installs.
    reads: the frontend for the files that it reads.
    prepare: makes a run of a model.
    """

    package: str
    pip: str
    reads: Frontend
    prepare: Prepare


ENGINES: dict[str, Engine] = {
    "onnxruntime": Engine("onnxruntime", "onnxruntime", ONNX, onnxruntime),
    "openvino": Engine("openvino", "openvino", ONNX, openvino),
    "litert": Engine("ai_edge_litert", "ai-edge-litert", TFLITE, litert),
}


def installed(model: Path | None = None) -> dict[str, Prepare]:
    """The installed engines, by name.  With a `model`, only those that read its format."""
    reader = recognised(model)[0] if model is not None else None
    return {
        name: e.prepare
        for name, e in ENGINES.items()
        if reader in (None, e.reads) and importlib.util.find_spec(e.package) is not None
    }


def torch_engines(module: Any) -> dict[str, Prepare]:
    """PyTorch on a module that takes the model's inputs in order: eager and, if there is a C++
    compiler, compiled with frozen weights.
    """

    def eager(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
        return _torch_run(module, inputs, threads)

    def compiled(model: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
        import torch  # pyright: ignore[reportMissingImports]  # installed to compare
        from torch._inductor import config  # pyright: ignore[reportMissingImports]  # installed to compare

        torch.set_num_threads(threads)  # the generated code contains the number of threads
        torch._dynamo.reset()
        config.freezing = True  # type: ignore[assignment]  # a switch, whatever its stub says
        return _torch_run(torch.compile(module), inputs, threads)

    engines: dict[str, Prepare] = {"torch": eager}
    if any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        engines["torch.compile"] = compiled
    return engines


def _torch_run(module: Any, inputs: Mapping[str, np.ndarray], threads: int) -> Run:
    import torch  # pyright: ignore[reportMissingImports]  # installed to compare

    tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in inputs.values()]

    def run() -> Sequence[np.ndarray]:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            result = module(*tensors)
        results = result if isinstance(result, (tuple, list)) else (result,)
        return [r.numpy() for r in results]

    return run


def load_module(spec: str) -> Any:
    """The torch module named by `FILE.py:NAME` or `package.module:NAME`.

    NAME is a module, or a function without arguments that makes one.  Raises ValueError,
    ImportError or the code's own errors.
    """
    import torch  # pyright: ignore[reportMissingImports]  # installed to compare

    source, colon, name = spec.rpartition(":")
    if not colon:
        raise ValueError(f"expected FILE.py:NAME or package.module:NAME, not {spec!r}")
    if source.endswith(".py"):
        spec_of_file = importlib.util.spec_from_file_location("given_module", source)
        if spec_of_file is None or spec_of_file.loader is None:
            raise ImportError(f"{source!r} can't be imported")
        code = importlib.util.module_from_spec(spec_of_file)
        spec_of_file.loader.exec_module(code)
    else:
        code = importlib.import_module(source)
    module = getattr(code, name)
    module = module if isinstance(module, torch.nn.Module) else module()
    return module.eval()
