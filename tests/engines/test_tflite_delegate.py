"""Delegates for LiteRT's interpreter: unchanged models, equal answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tflite_models import ModelWriter

litert = pytest.importorskip("ai_edge_litert.interpreter")
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 8)).astype(np.float32)


def network(scale: float = 1.0, rows: int = -1) -> bytes:
    """Two products with ReLU and softmax, and a second output."""
    random = np.random.default_rng(1)
    model = ModelWriter()
    g = model.graph()
    w = scale * random.standard_normal((6, 8)).astype(np.float32)
    v = random.standard_normal((4, 6)).astype(np.float32)
    x, h = g.input((rows, 8), name="x"), g.tensor((rows, 6), name="h")
    z, y = g.tensor((rows, 4), name="z"), g.tensor((rows, 4), name="y")
    g.op("FULLY_CONNECTED", [x, g.const(w), -1], [h], "FullyConnectedOptions")
    g.op("FULLY_CONNECTED", [h, g.const(v), -1], [z], "FullyConnectedOptions")
    g.op("SOFTMAX", [z], [y], "SoftmaxOptions", beta=1.0)
    g.output(h)
    g.output(y)
    return model.bytes()


def narrow() -> bytes:
    """A model with fewer tensors."""
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((-1, 8), name="x"), g.tensor((-1, 8), name="y")
    g.op("SOFTMAX", [x], [y], "SoftmaxOptions", beta=1.0)
    g.output(y)
    return model.bytes()


def answers(interpreter: litert.Interpreter, x: np.ndarray) -> list[np.ndarray]:
    place = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(place, x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(place, x)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def delegated(model: bytes, delegate: litert.Delegate) -> litert.Interpreter:
    """An interpreter whose only delegate is this one."""
    return litert.Interpreter(
        model_content=model,
        experimental_delegates=[delegate],
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("delegate") / "delegate.so"
    assert ts.tflite.export_delegate(network(), path, threads=2) == path
    return path


def test_a_delegate_computes_the_model_for_every_size(library: Path) -> None:
    delegate = litert.load_delegate(str(library), {"threads": "1"})
    interpreter = delegated(network(), delegate)
    for rows in (3, 1, 5):
        x = RANDOM.standard_normal((rows, 8)).astype(np.float32)
        wanted = answers(litert.Interpreter(model_content=network()), x)
        for found, expected in zip(answers(interpreter, x), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert interpreter._get_ops_details()[-1]["op_name"] == "DELEGATE"


WITHOUT = """
import sys
sys.modules["tilesmith"] = None
import numpy as np
from ai_edge_litert.interpreter import Interpreter, load_delegate

library, model, x, wanted = sys.argv[1:]
interpreter = Interpreter(model, experimental_delegates=[load_delegate(library)])
place = interpreter.get_input_details()[0]["index"]
interpreter.resize_tensor_input(place, np.load(x).shape)
interpreter.allocate_tensors()
interpreter.set_tensor(place, np.load(x))
for _ in range(50):
    interpreter.invoke()
y = interpreter.get_tensor(interpreter.get_output_details()[1]["index"])
np.testing.assert_allclose(y, np.load(wanted), rtol=1e-5, atol=1e-6)
"""


def test_the_interpreter_needs_no_tilesmith(library: Path, tmp_path: Path) -> None:
    model, x, wanted = tmp_path / "m.tflite", tmp_path / "x.npy", tmp_path / "y.npy"
    model.write_bytes(network())
    np.save(x, X)
    np.save(wanted, answers(litert.Interpreter(model_content=network()), X)[1])
    command = [sys.executable, "-c", WITHOUT, *map(str, (library, model, x, wanted))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def changed(kind: str, places: tuple[int, int] = (0, 1)) -> bytes:
    """x * x for two inputs, of which `places` are read, by an operator of this kind."""
    model = ModelWriter()
    g = model.graph()
    read = [g.input((2, 8), name=name) for name in "ab"]
    y = g.tensor((2, 8), name="y")
    g.op(kind, [read[i] for i in places], [y])
    g.output(y)
    return model.bytes()


@pytest.mark.parametrize(
    "other", [changed("MINIMUM"), changed("MAXIMUM", (1, 0))], ids=["operator", "order"]
)
def test_a_model_of_other_operators_or_other_edges_is_refused(tmp_path: Path, other: bytes) -> None:
    path = ts.tflite.export_delegate(changed("MAXIMUM"), tmp_path / "delegate.so")
    delegated(changed("MAXIMUM"), litert.load_delegate(str(path))).allocate_tensors()
    with pytest.raises(RuntimeError, match="the delegate was compiled for another model"):
        delegated(other, litert.load_delegate(str(path)))


@pytest.mark.parametrize("other", [network(2.0), narrow()], ids=["weights", "tensors"])
def test_another_model_is_refused(library: Path, other: bytes) -> None:
    delegate = litert.load_delegate(str(library))
    with pytest.raises(RuntimeError, match="the delegate was compiled for another model"):
        litert.Interpreter(model_content=other, experimental_delegates=[delegate])


def test_a_size_that_was_not_compiled_is_said(tmp_path: Path) -> None:
    path = ts.tflite.export_delegate(network(rows=3), tmp_path / "delegate.so")
    interpreter = delegated(network(rows=3), litert.load_delegate(str(path)))
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], (4, 8))
    with pytest.raises(RuntimeError, match="input x: expected extent 3 of axis 0, found 4"):
        interpreter.allocate_tensors()


def test_a_bad_option_is_refused(library: Path) -> None:
    with pytest.raises(ValueError, match="expected threads, a number from 1 on, found zero"):
        litert.load_delegate(str(library), {"threads": "zero"})
