"""Models whose convolutions run on the accelerator, beside the CPU."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.accel import hosted
from tilesmith.accel.convolution import Convolution, compiled
from tilesmith.accel.machine import Machine
from tilesmith.accel.simulate import simulate
from tilesmith.accel.text import parse
from tilesmith.program.nodes import HostCall

from .convolution_cases import inputs as operands
from .convolution_cases import wanted
from .quantised_models import Model, residual_block


def calls(exe: ts.Executable) -> int:
    """The number of layers on the accelerator."""
    return sum(isinstance(s, HostCall) and s.function == "accelerator" for s in exe.program.steps)


@pytest.mark.parametrize(("kind", "count"), [(np.int8, 4), (np.uint8, 2)], ids=["i8", "u8"])
def test_a_residual_block_equals_the_cpus(
    kind: type[np.int8] | type[np.uint8], count: int, tmp_path: Path
):
    """Results of unsigned bytes run on the accelerator only where all readers take signed ones."""
    path = residual_block(tmp_path / "m.onnx", kind)
    image = np.random.default_rng(6).standard_normal((2, 16, 8, 8), np.float32) * 3
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == count
    np.testing.assert_array_equal(beside(image), ts.compile(path)(image))
    beside.save(tmp_path / "m.tsm")
    np.testing.assert_array_equal(ts.load(tmp_path / "m.tsm")(image), beside(image))


def test_programs_are_encoded_and_weights_packed_once_for_all_images(
    monkeypatch: pytest.MonkeyPatch,
):
    conv = Convolution(inputs=16, outputs=16, height=4, width=4)
    encoded = counted(monkeypatch, "tilesmith.accel.prepared.encode")
    packed = counted(monkeypatch, "tilesmith.accel.hosted.packed_weights")
    layer = hosted.layer(**json.loads(hosted.settings(conv, compiled(conv, Machine()))))
    x, w, factors = operands(conv, 1)
    images = np.stack([x, x[:, ::-1], x[:, :, ::-1]])
    for image, y in zip(images, layer(images, w, factors), strict=True):
        np.testing.assert_array_equal(y, wanted(conv, -128, [image, w, factors]))
    assert len(encoded) == len(packed) == 1


def test_a_process_that_imports_no_compiler_finds_the_function_of_the_accelerator():
    conv = Convolution(inputs=16, outputs=16, height=1, width=2)
    told = hosted.settings(conv, compiled(conv, Machine()))
    code = "import sys; from tilesmith.host_functions import prepare; prepare(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, hosted.NAME, told], check=True)


def test_a_simulation_encodes_its_program_once(monkeypatch: pytest.MonkeyPatch):
    encoded = counted(monkeypatch, "tilesmith.accel.prepared.encode")
    simulate(parse("finish"), Machine(), bytes(64))
    assert len(encoded) == 1


def counted(monkeypatch: pytest.MonkeyPatch, path: str) -> list[None]:
    """A list that gets a member for each call of a function."""
    module, name = path.rsplit(".", 1)
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    calls: list[None] = []

    def call(*args: Any) -> Any:
        calls.append(None)
        return function(*args)

    monkeypatch.setattr(path, call)
    return calls


def test_dense_layers_equal_the_cpus(tmp_path: Path):
    m = Model(np.int8)
    x = m.quantised("x", 0.05)
    for inputs, outputs in ((24, 64), (64, 20)):
        w = m.rng.integers(-127, 128, (inputs, outputs)).astype(np.int8)
        scales = m.rng.uniform(0.001, 0.01, outputs).astype(np.float32)
        made = [*map(m.constant, (w, scales, np.zeros(outputs, np.int8)))]
        w = m.node("DequantizeLinear", made, axis=1)
        x = m.quantised(m.node("MatMul", [x, w]), 0.2)
    path = m.saved(tmp_path / "m.onnx", [2, 7, 24], x)
    rows = np.random.default_rng(6).standard_normal((2, 7, 24), np.float32) * 3
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == 2
    np.testing.assert_array_equal(beside(rows), ts.compile(path)(rows))


def test_what_the_accelerator_lacks_runs_on_the_cpu(tmp_path: Path):
    m = Model(np.int8)
    x = m.quantised("x", 0.05)
    x = m.quantised(m.conv(x, 1, 16, 3, group=16), 0.05)  # depthwise
    x = m.quantised(m.node("Tanh", [m.conv(x, 16, 16, 3)]), 0.01)
    x = m.quantised(m.conv(x, 16, 16, 3, dilations=[2, 2]), 0.05)
    path = m.saved(tmp_path / "m.onnx", [1, 16, 9, 9], x)
    image = np.random.default_rng(6).standard_normal((1, 16, 9, 9), np.float32)
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == 0
    np.testing.assert_array_equal(beside(image), ts.compile(path)(image))
