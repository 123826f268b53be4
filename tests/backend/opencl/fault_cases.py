"""Limits and faults of an OpenCL device: what is refused, and what answers then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from part_cases import compiled

import tilesmith as ts
from common.part_models import SIDE, detector
from tilesmith.backend import OPENCL
from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.opencl import devices
from tilesmith.codegen.opencl.devices import package
from tilesmith.driver.entry import FallbackWarning
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.loop.text import print_func
from tilesmith.ops.activation import Relu
from tilesmith.ops.matmul import MatMul
from tilesmith.runtime.guarded_runner import GuardedRunner
from tilesmith.runtime.opencl import OpenClDevice
from tilesmith.support.errors import DeviceError, InternalError


def lost(*_: object, **__: object) -> None:
    raise package().RuntimeError("the device is lost")


def relu(size: int = 100) -> Graph:
    b = Builder("g")
    return b.finish([b.add(Relu(), b.input("x", TensorType(f32, (size,))))])


def memory_of_parts() -> None:
    """What is said to be needed is what is allocated; values that parts share count once."""
    taken: list[int] = []
    real = OpenClDevice.empty

    def empty(self: OpenClDevice, size: int):
        taken.append(size)
        return real(self, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenClDevice, "empty", empty)
        made = compiled(detector())
    assert sum(part.target.device is not None for part in made.program.parts) > 1
    assert sum(taken) == made.memory.total


def memory_limit() -> None:
    made = ts.compile(relu(), target="opencl")
    enough = made.memory.total
    given = np.linspace(-1, 1, 100, dtype=np.float32)
    limited = ts.compile(relu(), target="opencl", memory_limit=enough)
    np.testing.assert_array_equal(limited(given), np.maximum(given, 0))
    with pytest.raises(DeviceError, match=rf"at most {enough - 1} bytes .* needs {enough} bytes"):
        ts.compile(relu(), target="opencl", memory_limit=enough - 1)


def scaled(factor: float, n: int, nodes: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    """A product with n * n weights, and `nodes` behind it, from "scaled" to "y"."""
    weights = numpy_helper.from_array(weights_of(factor, n), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["scaled" if nodes else "y"])
    x, y = (helper.make_tensor_value_info(name, 1, [4, n]) for name in "xy")
    shape = numpy_helper.from_array(np.array([4, n]), "shape")
    return helper.make_model(helper.make_graph([product, *nodes], "g", [x], [y], [weights, shape]))


def weights_of(factor: float, n: int) -> np.ndarray:
    return np.diag(np.full(n, factor, np.float32))


def other_weights() -> None:
    """The device gets them, and so does the CPU that answers in its place, before and after."""
    has_other_weights(scaled(2, 8), 8, lambda x: x)


def other_weights_of_parts() -> None:
    """The CPU finds the elements that are not zero: all of them."""
    node = helper.make_node
    nodes = [
        node("NonZero", ["scaled"], ["places"]),
        node("Transpose", ["places"], ["tuples"]),
        node("GatherND", ["scaled", "tuples"], ["elements"]),
        node("Reshape", ["elements", "shape"], ["y"]),
    ]
    with pytest.warns(FallbackWarning, match="on the CPU, not on 'opencl'"):
        has_other_weights(scaled(2, 8, nodes), 8, lambda x: x)


def has_other_weights(model: onnx.ModelProto, n: int, behind: Callable[[np.ndarray], Any]) -> None:
    """behind: what follows the product of n * n weights."""
    given = np.random.default_rng(0).random((4, n), np.float32)
    exe = ts.compile(model, target="opencl", fallback="cpu")

    def is_scaled_by(factor: float, on_device: bool) -> None:
        np.testing.assert_allclose(exe(given), behind(factor * given), rtol=1e-6)
        assert isinstance(exe.runner, GuardedRunner) and (exe.runner.cpu is None) == on_device

    is_scaled_by(2, True)
    exe.load_weights({"w": weights_of(3, n)})
    is_scaled_by(3, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package(), "enqueue_nd_range_kernel", lost)
        is_scaled_by(3, False)
    exe.load_weights({"w": weights_of(4, n)})
    is_scaled_by(4, False)


def slow() -> tuple[Graph, np.ndarray]:
    """A product that takes an OpenCL device on the CPU a second, and an input of it."""
    n = 1536
    b = Builder("g")
    weights = b.constant(np.full((n, n), 1 / n, np.float32), "w")
    x = b.input("x", TensorType(f32, (n, n)))
    return b.finish([b.add(MatMul(), x, weights)]), np.ones((n, n), np.float32)


def time_limit() -> None:
    """A kernel that runs too long: an error, an idle device later, and the same kernel then."""
    graph, given = slow()
    patient = ts.compile(graph, target="opencl")
    np.testing.assert_allclose(patient(given), given, rtol=1e-4)
    hasty = ts.compile(graph, target="opencl", time_limit=1e-3)
    with pytest.raises(DeviceError, match=r"at most 0\.001 s \(time_limit\), found kernels that"):
        hasty(given)
    np.testing.assert_allclose(patient(given), given, rtol=1e-4)  # behind what still runs
    with pytest.raises(DeviceError, match="time_limit"):
        hasty(given)
    enough = ts.compile(graph, target="opencl", time_limit=600)
    np.testing.assert_allclose(enough(given), given, rtol=1e-4)


def fallback_of_call(caplog: list[str]) -> None:
    """The CPU answers in the place of a kernel that runs too long, and says why once."""
    graph, given = slow()
    exe = ts.compile(graph, target="opencl", time_limit=1e-3, fallback="cpu")
    for _ in range(2):
        np.testing.assert_allclose(exe(given), given, rtol=1e-4)
    (said,) = caplog
    assert "target 'opencl': the CPU answers from now on" in said and "time_limit" in said


def fallback_of_parts(caplog: list[str]) -> None:
    """A driver that reports a failure in the middle of a model of several parts."""
    with pytest.warns(FallbackWarning, match="on the CPU, not on 'opencl'"):
        exe = ts.compile(detector(), target="opencl", fallback="cpu")
    given = np.random.default_rng(0).random((1, 3, SIDE, SIDE), np.float32)
    assert not caplog
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package(), "enqueue_nd_range_kernel", lost)
        found = exe(given)
    (said,) = caplog
    assert "the device is lost" in said
    wanted = ts.compile(detector())(given)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def fallback_of_memory(caplog: list[str]) -> None:
    """What the device refuses at compile time is compiled for the CPU."""
    exe = ts.compile(relu(), target="opencl", memory_limit=8, fallback="cpu")
    (said,) = caplog
    assert "(memory_limit)" in said
    given = np.linspace(-1, 1, 100, dtype=np.float32)
    np.testing.assert_array_equal(exe(given), np.maximum(given, 0))
    assert exe.program.target.device is None


def without_a_device(caplog: list[str]) -> None:
    given = np.linspace(-1, 1, 100, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "devices", lambda: ())
        with pytest.raises(DeviceError, match="expected an OpenCL device number 0, found none"):
            ts.compile(relu(), target="opencl")
        exe = ts.compile(relu(), target="opencl", fallback="cpu")
    assert "expected an OpenCL device number 0" in caplog[0]
    np.testing.assert_array_equal(exe(given), np.maximum(given, 0))


def no_code_for_a_rule(caplog: list[str]) -> None:
    """A kernel whose schedule the writer can't write is computed by a thread for each element."""

    def emit(func: Func, target: Target, **how: Any) -> Kernel:
        if " shared" in print_func(func):
            raise InternalError("no text for shared memory, as the test says")
        return OPENCL.emit(func, target, **how)

    rng = np.random.default_rng(0)
    weights, given = (rng.standard_normal((64, 64), np.float32) for _ in range(2))
    b = Builder("g")
    product = b.add(MatMul(), b.input("x", TensorType(f32, (64, 64))), b.constant(weights, "w"))
    graph = b.finish([product])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilesmith.backend.opencl.OPENCL", replace(OPENCL, emit=emit))
        exe = ts.compile(graph, target="opencl", options=ts.Options(use_cache=False))
    (said,) = caplog
    assert "gets a plain schedule" in said and "no text for shared memory" in said
    np.testing.assert_allclose(exe(given), given @ weights, rtol=1e-4, atol=1e-4)


class Said(logging.Handler):
    """Collects messages."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def listening(case: Callable[[list[str]], None]) -> Callable[[], None]:
    """A case that gets the warnings that are logged."""

    def run() -> None:
        handler, log = Said(), logging.getLogger("tilesmith")
        handler.setLevel(logging.WARNING)
        log.addHandler(handler)
        try:
            case(handler.texts)
        finally:
            log.removeHandler(handler)

    return run


def faults() -> dict[str, Callable[[], None]]:
    """The cases by name."""
    whole = memory_of_parts, memory_limit, time_limit, other_weights, other_weights_of_parts
    heard = (
        fallback_of_parts,
        fallback_of_memory,
        no_code_for_a_rule,
        without_a_device,
        fallback_of_call,
    )
    return {
        **{f.__name__: f for f in whole},
        **{f.__name__: listening(f) for f in heard},
    }
