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
from tilesmith.accel.offload import NOT_QUANTISED
from tilesmith.accel.simulate import simulate
from tilesmith.accel.text import parse
from tilesmith.cli import execute
from tilesmith.driver.entry import FallbackWarning
from tilesmith.program.nodes import HostCall
from tilesmith.support.errors import UnsupportedError

from .convolution_cases import inputs as operands
from .convolution_cases import wanted
from .quantised_models import Model, mobilenet_v1, residual_block


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


@pytest.mark.parametrize(
    ("channels", "group"), [(24, 1), (40, 8)], ids=["depthwise", "groups of 8"]
)
def test_groups_of_channels_inside_of_blocks_equal_the_cpus(
    channels: int, group: int, tmp_path: Path
):
    m = Model(np.int8)
    x = m.quantised("x", 0.05)
    x = m.quantised(m.conv(x, group, channels, 3, group=channels // group, strides=[2, 2]), 0.3)
    x = m.quantised(m.conv(x, channels, 16, 1), 0.3)
    path = m.saved(tmp_path / "m.onnx", [1, channels, 9, 9], x)
    image = np.random.default_rng(6).standard_normal((1, channels, 9, 9), np.float32) * 3
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == 2
    np.testing.assert_array_equal(beside(image), ts.compile(path)(image))


def test_mobilenet_v1_runs_on_the_accelerator_and_equals_the_cpus(tmp_path: Path):
    path = mobilenet_v1(tmp_path / "m.onnx", 0.25, 32)
    image = np.random.default_rng(6).uniform(-2, 2, (1, 3, 32, 32)).astype(np.float32)
    beside = ts.compile(path, target="accel-sim")
    assert calls(beside) == 28
    found = beside(image)
    assert len(np.unique(found)) > 4
    np.testing.assert_array_equal(found, ts.compile(path)(image))


@pytest.fixture
def partly_left(tmp_path: Path) -> Path:
    """A model whose last convolution the accelerator runs, and three others that it can't."""
    m = Model(np.int8)
    x = m.quantised("x", 0.05)
    x = m.quantised(m.conv(x, 8, 32, 3, group=2), 0.05)
    x = m.quantised(m.node("Tanh", [m.conv(x, 32, 16, 3)]), 0.01)
    x = m.quantised(m.conv(x, 16, 16, 3, dilations=[2, 2]), 0.05)
    x = m.quantised(m.conv(x, 16, 16, 1), 0.05)
    return m.saved(tmp_path / "m.onnx", [1, 16, 9, 9], x)


def test_what_the_accelerator_lacks_runs_on_the_cpu_with_one_warning(partly_left: Path):
    image = np.random.default_rng(6).standard_normal((1, 16, 9, 9), np.float32)
    with pytest.warns(FallbackWarning) as warned:
        beside = ts.compile(partly_left, target="accel-sim")
    (told,) = (str(w.message) for w in warned)
    assert "3 layers of target 'accel-sim' stay on the CPU" in told
    assert f"conv ({NOT_QUANTISED})" in told
    assert "conv (its kernel is dilated)" in told
    assert "conv (its groups have other numbers of outputs than of inputs)" in told
    assert calls(beside) == 1
    np.testing.assert_array_equal(beside(image), ts.compile(partly_left)(image))


def test_fallback_error_refuses_layers_that_would_stay_on_the_cpu(partly_left: Path):
    with pytest.raises(UnsupportedError, match=r"can't run conv \(its groups .* on the CPU"):
        ts.compile(partly_left, target="accel-sim", fallback="error")


def test_a_layer_whose_tiles_fit_no_buffer_stays_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tilesmith.backend.accel.MACHINE", Machine(wgt_bytes=512))
    m = Model(np.int8)
    x = m.quantised(m.conv(m.quantised("x", 0.05), 16, 16, 3), 0.07)
    path = m.saved(tmp_path / "m.onnx", [1, 16, 5, 7], x)
    with pytest.warns(
        FallbackWarning, match=r"1 layer of .* stays on the CPU: conv \(no tiles fit the buffers\)"
    ):
        assert calls(ts.compile(path, target="accel-sim")) == 0


def _limited(m: Model, x: str) -> str:
    limits = [m.constant(np.float32(v)) for v in (-1, 1)]
    return m.quantised(m.node("Clip", [m.conv(x, 16, 16, 3), *limits]), 0.05)


def _of_groups(group: int) -> Callable[[Model, str], str]:
    return lambda m, x: m.quantised(m.conv(x, group, 16, 3, group=16 // group), 0.05)


@pytest.mark.parametrize(
    ("machine", "layer", "why"),
    [
        (Machine(), _limited, "its results are limited to less than 127"),
        (Machine(block_out=4, block_in=4), _of_groups(8), "groups of 8 channels don't divide"),
        (Machine(block_in=32), _of_groups(1), "blocks of 32 inputs don't divide blocks of 16"),
    ],
)
def test_the_reason_why_a_layer_stays_is_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    layer: Callable[[Model, str], str],
    why: str,
):
    monkeypatch.setattr("tilesmith.backend.accel.MACHINE", machine)
    m = Model(np.int8)
    path = m.saved(tmp_path / "m.onnx", [1, 16, 5, 6], layer(m, m.quantised("x", 0.05)))
    with pytest.warns(FallbackWarning, match=rf"1 layer of .* stays on the CPU: conv \(.*{why}"):
        assert calls(ts.compile(path, target="accel-sim")) == 0


def test_explain_lists_each_layer_with_its_utilisation_or_why_it_stays(
    partly_left: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["explain", str(partly_left), "--target", "accel-sim", "--repeats", "1"]
    with pytest.warns(FallbackWarning):
        assert execute([*words, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["layers"]
        assert execute(words) == 0
    shown = capsys.readouterr().out
    assert len(rows) == 4
    (own,) = (row for row in rows if "cycles" in row)
    assert own["cycles"] > 0 and 0 < own["utilisation"] <= 1 <= own["of_bound"]
    assert f"{own['cycles']} cycles of one image in 1 layers" in shown
    for row in rows:
        assert "cycles" in row or f"on the CPU: conv {row['name']} ({row['on_cpu']})" in shown
