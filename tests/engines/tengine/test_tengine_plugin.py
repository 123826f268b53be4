"""Plugins of Tengine: the nodes that they compute, and what they refuse."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.cli import execute
from written_models.tengine import ModelWriter

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((1, 4, 9, 9)).astype(np.float32)
W = RANDOM.standard_normal((6, 4, 3, 3)).astype(np.float32)
B = RANDOM.standard_normal(6).astype(np.float32)
CONV = {
    "kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 1, "dilation_h": 1, "dilation_w": 1,
    "input_channel": 4, "output_channel": 6, "group": 1, "activation": 0, "pad_h0": 1, "pad_w1": 2,
}  # fmt: skip
ENGINE_CONV = [3, 3, 2, 1, 1, 0, 0, 2, 1, 1, 4, 6, 1, 0, 0]
"""The same as `struct conv_param` has them."""

POOL = {"pool_method": 1, "kernel_h": 4, "kernel_w": 9, "stride_h": 2, "stride_w": 2}
ENGINE_POOL = [1, 4, 9, 1, 1, 0, 0, 0, 0, 1, 0]
"""A pool over all of its input, after shapes were inferred."""


def network() -> bytes:
    w = ModelWriter()
    x = w.input("data", *X.shape)
    conv = w.add("Convolution", "conv", x, w.constant("w", W), w.constant("b", B), **CONV)
    pool = w.add("Pooling", "pool", conv, **POOL)
    again = w.add("Pooling", "again", conv, **POOL)
    w.add("Softmax", "prob", w.add("Concat", "both", pool, again, axis=1), axis=1)
    return w.finish()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin, and two engines: one that exports all functions, and one that doesn't."""
    made = tmp_path_factory.mktemp("tengine")
    ts.tengine.export_plugin(network(), made, "net", threads=2)
    for name, flags in (("engine", ()), ("hidden", ("-DHIDDEN",))):
        command = ("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags)
        subprocess.run([*command, str(HERE / "engine.c"), "-o", str(made / name)], check=True)
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(folder / "engine"), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def plugin(folder: Path, engine: ctypes.CDLL) -> object:
    library = ctypes.CDLL(str(folder / "lib" / "libnet.so"))
    assert library.net_init() == 0 and engine.registered() == 3  # equal pools are one layer
    yield library
    assert library.net_release() == 0 and engine.registered() == 0


def describe(
    engine: ctypes.CDLL, op: str, params: list[int], inputs: list[np.ndarray], y: np.ndarray
) -> object:
    """Make the engine's node; the result keeps its parameters alive."""
    stored = (ctypes.c_int * len(params))(*params)
    engine.begin(op.encode(), stored, ctypes.sizeof(stored))
    for set_, array in ((engine.set_output, y), *((engine.add_input, a) for a in inputs)):
        dims = (ctypes.c_int * array.ndim)(*array.shape)
        set_(0, array.ndim, dims, array.ctypes.data_as(ctypes.c_void_p))
    return stored


def whole() -> tuple[np.ndarray, ...]:
    """The results of the convolution, of a pool, and of the network."""
    exe = ts.compile(network())
    padded = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2]
    conv = np.einsum("nchwij,ocij->nohw", views, W) + B.reshape(1, 6, 1, 1)
    conv = np.maximum(conv, 0).astype(np.float32)
    return conv, conv.mean((2, 3), keepdims=True), exe(X)


@pytest.mark.parametrize("threads", [1, 2])
def test_nodes_of_the_model_are_computed(plugin: object, engine: ctypes.CDLL, threads: int) -> None:
    conv, pool, _ = whole()
    for op, params, inputs, wanted in (
        ("Convolution", ENGINE_CONV, [X, W, B], conv),
        ("Pooling", ENGINE_POOL, [np.ascontiguousarray(conv[:, :, :4, :9])], None),
        ("Softmax", [1], [np.concatenate([pool, pool], 1)], None),
    ):
        shape = conv.shape if op == "Convolution" else (1, 6 if op == "Pooling" else 12, 1, 1)
        y = np.full(shape, np.nan, np.float32)
        alive = describe(engine, op, params, inputs, y)
        assert engine.prepare(threads) == 0, op
        assert engine.run() == 0 and engine.finish() == 0
        if op == "Pooling":
            wanted = inputs[0].mean((2, 3), keepdims=True)
        if op == "Softmax":
            wanted = np.exp(inputs[0]) / np.exp(inputs[0]).sum(1, keepdims=True)
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
        assert alive


def test_other_nodes_stay_with_the_engine(plugin: object, engine: ctypes.CDLL) -> None:
    conv = whole()[0]
    y = np.zeros_like(conv)
    others = [
        (ENGINE_CONV, [X, W, B + 1]),
        (ENGINE_CONV, [X, W]),
        (ENGINE_CONV, [X[:, :, :, :8].copy(), W, B]),
        (ENGINE_CONV[:10], [X, W, B]),
        ([3, 3, 2, 1, 0, 1, *ENGINE_CONV[6:]], [X, W, B]),
        ([*ENGINE_CONV[:13], 6, 0], [X, W, B]),
    ]
    for params, inputs in others:
        alive = describe(engine, "Convolution", params, inputs, y)
        assert engine.prepare(1) == -2, params
        assert alive
    alive = describe(engine, "Softmax", [0], [np.zeros((1, 12, 1, 1), np.float32)], y)
    assert engine.prepare(1) == -2 and alive


def test_shapes_that_change_after_the_preparation_are_refused(
    plugin: object, engine: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    y = np.zeros_like(whole()[0])
    alive = describe(engine, "Convolution", ENGINE_CONV, [X, W, B], y)
    assert engine.prepare(1) == 0 and alive
    dims = (ctypes.c_int * 4)(1, 6, 4, 8)
    engine.set_output(0, 4, dims, y.ctypes.data_as(ctypes.c_void_p))
    assert engine.run() == -1 and engine.finish() == 0
    assert "node: shapes changed after prerun_graph" in capfd.readouterr().err


def test_another_version_is_refused(
    folder: Path, engine: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    library = ctypes.CDLL(str(folder / "lib" / "libnet.so"))
    for found in (b"1.4-dev", b"1.50"):
        engine.set_version(found)
        assert library.net_init() == -1 and engine.registered() == 0
        assert f"expected Tengine 1.5, found {found.decode()}" in capfd.readouterr().err
    engine.set_version(b"1.5-dev")


def test_an_engine_that_hides_its_functions_is_refused(folder: Path) -> None:
    code = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL);"
        "sys.exit(ctypes.CDLL(sys.argv[2]).net_init() + 2)"
    )
    command = [sys.executable, "-c", code, str(folder / "hidden"), str(folder / "lib/libnet.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "expected the function register_builtin_node_ops in Tengine" in done.stderr
    assert "-DTENGINE_ENABLE_ALL_SYMBOL=ON" in done.stderr


def test_layers_can_be_chosen(tmp_path: Path) -> None:
    made = ts.tengine.export_plugin(network(), tmp_path, "net", layers=["Softmax", "again"])
    listed = [line[3:] for line in made.header.read_text().splitlines() if line.startswith(" * ")]
    assert listed == ["Pooling: again", "Softmax: prob"]
    left = ["Convolution", "prob"]
    made = ts.tengine.export_plugin(network(), tmp_path, "net", leave=left)
    assert " * Pooling: pool, again\n */" in made.header.read_text()
    with pytest.raises(ts.UsageError, match=r"expected names of layers, or of .*; found Gemm"):
        ts.tengine.export_plugin(network(), tmp_path, leave=["Gemm"])


def test_the_command_line_writes_a_plugin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.tmfile"
    path.write_bytes(network())
    command = ["export", str(path), "--format", "tengine"]
    assert execute(command) == 0
    assert execute([*command, "--glibc", "2.17"]) != 0
    assert "leave out --glibc and --sign" in capsys.readouterr().err
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", str(tmp_path / "small" / "lib" / "libsmall.so")],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {"small_init", "small_release"} == {n for n in exported if n.startswith("small")}


def test_what_can_not_be_a_plugin_is_said(tmp_path: Path) -> None:
    with pytest.raises(ts.UsageError, match=r"expected a Tengine model \(.tmfile\), found"):
        ts.tengine.export_plugin(b"\x08\x0a", tmp_path)
    w = ModelWriter()
    x = w.input("x", 1, 4)
    w.add("Dropout", "y", x)
    with pytest.raises(ts.UsageError, match=r"no layer of this model can be compiled for Tengine"):
        ts.tengine.export_plugin(w.finish(), tmp_path)
