"""The other engines: each way to write an operator as a function that runs it once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .operator import Operator, Way

Run: TypeAlias = "Callable[[], Sequence[np.ndarray]]"


def peers(
    operator: Operator, arrays: Sequence[np.ndarray], threads: int
) -> tuple[dict[str, Run], dict[str, str]]:
    """What can run the operator, by "engine: way", and why the others can't."""
    found: dict[str, Run] = {}
    failed: dict[str, str] = {}
    makers: list[tuple[str, Callable[[Way, int], Run], list[Way]]] = []
    ways = operator.torch(*arrays)
    makers.append(("torch", _eager, ways))
    if any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        makers.append(("torch.compile", _compiled, ways))
    makers.append(("onnxruntime", _onnxruntime, operator.onnx(*arrays)))
    for engine, make, written in makers:
        for way in written:
            if engine not in (*way.engines, "onnxruntime"):
                continue
            name = f"{engine}: {way.name}" if way.name else engine
            try:
                run = make(way, threads)
                run()
            except Exception as e:  # whatever an engine does not like
                failed[name] = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
                continue
            found[name] = run
    return found, failed


def _eager(way: Way, threads: int) -> Run:
    return _torch(way, way.program, threads)


def _compiled(way: Way, threads: int) -> Run:
    import torch
    from torch._inductor import config

    torch.set_num_threads(threads)  # the generated code has the number in it
    torch._dynamo.reset()
    config.freezing = True
    return _torch(way, torch.compile(_module(way.program), dynamic=False), threads)


def _module(function: Callable[..., Any]) -> Any:
    """`function` as a module whose tensors are constants, which is what freezing looks for."""
    import torch

    class Module(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    return Module().eval()


def _torch(way: Way, program: Callable[..., Any], threads: int) -> Run:
    import torch

    def run() -> Sequence[np.ndarray]:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            result = program(*way.inputs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        return [way.ours(r.numpy()) for r in results]

    return run


def _onnxruntime(way: Way, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    model = way.program.SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {i.name: a for i, a in zip(session.get_inputs(), way.inputs)}
    return lambda: [way.ours(r) for r in session.run(None, feed)]
