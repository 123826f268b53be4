"""Bad models and bad arguments, through the public functions and the command line.

Each is one line that says what was expected; the process lives on and takes next to no memory.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from small_models import model, network, node

import tilesmith as ts
from tilesmith.cli import execute as command_line


def _weight(dims: list[int], content: bytes) -> onnx.ModelProto:
    weight = TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT, raw_data=content)
    return model([node("Add", "x w", "y")], {"x": [4]}, ["y"], {"w": weight})


def _external(location: str, **entries: int) -> onnx.ModelProto:
    made = _weight([4], b"")
    (weight,) = made.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return made


def _doubling(times: int) -> onnx.ModelProto:
    nodes = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(times)]
    return model(nodes, {"v0": [2]}, [f"v{times}"])


SOUND = network().SerializeToString()
RELU = node("Relu", "x", "y")
BAD_MODELS: dict[str, tuple[bytes | onnx.ModelProto, str]] = {
    "empty file": (b"", "expected an ONNX"),
    "one zero byte": (b"\0", "expected an ONNX"),
    "text": (b"hello, world\n", "expected an ONNX"),
    "an archive": (b"PK\x03\x04" + bytes(100), "expected an archive of PyTorch"),
    "half a model": (SOUND[: len(SOUND) // 2], "expected an ONNX"),
    "its last byte missing": (SOUND[:-1], "expected an ONNX"),
    "no graph": (b"\x08\x09", "graph|opset"),
    "negative weight dimension": (_weight([-4], bytes(16)), ">= 0"),
    "weight too short": (_weight([4], bytes(12)), "expected 16 bytes"),
    "weight too long": (_weight([4], bytes(20)), "expected 16 bytes"),
    "2^40 elements in": (model([RELU], {"x": [1 << 20, 1 << 20]}, ["y"]), "elements"),
    "2^40 elements inside": (_doubling(40), "elements"),
    "2^40 elements in a weight": (_weight([1 << 40], bytes(16)), "elements"),
    "external path upwards": (_external("../w.bin"), "'../w.bin'"),
    "external absolute path": (_external("/etc/passwd"), "'/etc/passwd'"),
    "external link": (_external("link.bin"), "links are not followed"),
    "external file missing": (_external("absent.bin"), "No such file"),
    "external range": (_external("w.bin", offset=1 << 40), "which has"),
    "cycle": (
        model([node("Add", "x b", "a"), node("Relu", "a", "b")], {"x": [2]}, ["b"]),
        "in a cycle",
    ),
    "undefined value": (model([node("Relu", "q", "y")], {"x": [2]}, ["y"]), "nothing defines"),
    "value defined twice": (model([RELU, RELU], {"x": [2]}, ["y"]), "defined twice"),
    "shapes that don't fit": (
        model([node("MatMul", "x x", "y")], {"x": [2, 3]}, ["y"]),
        "equal inner dimensions",
    ),
    "unknown operator": (model([node("Frobnicate", "x", "y")], {"x": [2]}, ["y"]), "Frobnicate"),
}


@pytest.fixture
def bad_file(tmp_path: Path) -> Callable[[str], Path]:
    """The file of one of `BAD_MODELS`, in a folder with a link that leads out of it."""
    folder = tmp_path / "models"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "w.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")

    def write(name: str) -> Path:
        content, _ = BAD_MODELS[name]
        path = folder / "bad.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return path

    return write


@pytest.mark.parametrize("name", BAD_MODELS)
def test_compile_refuses(name: str, bad_file: Callable[[str], Path]) -> None:
    with pytest.raises(ts.ModelError, match=BAD_MODELS[name][1]) as found:
        ts.compile(bad_file(name))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", BAD_MODELS)
@pytest.mark.parametrize("verb", ["run", "compile", "check", "opt"])
def test_the_command_line_refuses(
    verb: str, name: str, bad_file: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = bad_file(name)
    assert command_line([verb, str(path)]) == 2
    complaints = [x for x in capsys.readouterr().err.splitlines() if "error" in x]
    assert len(complaints) == 1 and complaints[0].startswith("tilesmith: error: ")
    assert not path.with_suffix(".tsm").exists()


LIMITED = """
import resource, sys
import numpy as np
import tilesmith as ts
good, *bad = sys.argv[1:]
exe = ts.compile(good)  # all that is loaded on first use is loaded
x = np.ones((2, 3, 12, 12), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for round in range(3):
    for path in bad:
        try:
            ts.compile(path)
        except ts.ModelError:
            continue
        sys.exit(f"{path} compiles")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
assert np.allclose(ts.compile(good)(x), exe(x))
"""


def test_the_process_lives_on_and_its_memory_stays_flat(
    bad_file: Callable[[str], Path], tmp_path: Path
) -> None:
    paths = []
    for i, name in enumerate(BAD_MODELS):
        paths.append(bad_file(name).rename(tmp_path / "models" / f"bad{i}.onnx"))
    good = tmp_path / "good.onnx"
    good.write_bytes(SOUND)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(good), *map(str, paths)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 32 << 10, "KiB more than before"


def test_models_of_a_wrong_kind() -> None:
    for thing in (None, 7, ["model.onnx"], np.ones(3)):
        with pytest.raises(ts.UsageError, match="expected a path to an ONNX model"):
            ts.compile(thing)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": "z80"}, ts.UsageError, "unknown target 'z80'"),
        ({"threads": 0}, ts.UsageError, "threads"),
        ({"shapes": {"z": (1,)}}, ts.ModelError, "'z'"),
        ({"shapes": {"x": (2, 3)}}, ts.ModelError, "x"),
        ({"shapes": {"x": (4, 3, 12, 12)}}, ts.ModelError, "x"),
    ],
)
def test_wrong_arguments_of_compile(
    arguments: dict, error: type[ts.TilesmithError], message: str
) -> None:
    with pytest.raises(error, match=message) as found:
        ts.compile(SOUND, **arguments)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing inputs: 'x'"),
        ({"X": np.ones((2, 3, 12, 12), np.float32)}, "no input is called 'X'; did you mean 'x'"),
        (
            {"x": np.ones((2, 3, 12, 11), np.float32)},
            r"shape \(2, 3, 12, 12\), found \(2, 3, 12, 11\)",
        ),
        ({"x": np.ones((2, 3, 12, 12))}, r"f32 \(float32\), found float64"),
        ({"x": np.ones((2, 3, 12, 12), object)}, "found object"),
        ({"x": [[1.0]]}, "expected a NumPy array, a torch tensor"),
        ({"x": None}, "expected a NumPy array, a torch tensor"),
    ],
)
def test_wrong_inputs_of_a_call(inputs: dict, message: str) -> None:
    exe = ts.compile(SOUND)
    with pytest.raises(ts.ModelError, match=message) as found:
        exe.run(inputs)
    assert "\n" not in str(found.value)


def test_damaged_models_never_escape() -> None:
    """Bytes changed at random: a compiled model or a ModelError, nothing else."""
    rng = np.random.default_rng()
    seed = int(rng.integers(1 << 32))
    rng = np.random.default_rng(seed)
    compiled = 0
    for _ in range(150):
        content = bytearray(SOUND)
        for at in rng.integers(0, len(content), 3):
            content[at] = rng.integers(256)
        try:
            ts.compile(bytes(content))
            compiled += 1
        except ts.ModelError:
            pass
        except BaseException as e:
            raise AssertionError(f"seed {seed}") from e
    assert compiled, "most damage is to weights and leaves a model"
