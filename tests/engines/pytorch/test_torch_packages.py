"""Packages that PyTorch loads where Tilesmith is not installed."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilesmith as ts
from tilesmith.codegen.targets import host, target

torch = pytest.importorskip("torch")
packages = pytest.importorskip("tilesmith.engines.torch.packages")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packages are for Linux")


class Network(torch.nn.Module):
    """Arguments by name, and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: Any, *, scale: Any) -> Any:
        y = torch.relu(self.conv(x)).mean((2, 3))
        return {"scaled": self.linear(y) * scale, "rest": (y, y.argmax(1))}


X, SCALE = torch.randn(2, 3, 10, 9), torch.randn(4)

WITHOUT = """
import sys
sys.modules["tilesmith"] = None
import threading
import torch

x, scale, wanted = torch.load(sys.argv[2], weights_only=False)
model = torch._inductor.aoti_load_package(sys.argv[1])

def check(found):
    torch.testing.assert_close(found["scaled"], wanted["scaled"])
    torch.testing.assert_close(found["rest"], wanted["rest"])

check(model(x, scale=scale))
check(model(x.to(memory_format=torch.channels_last), scale=scale))
first = model(x, scale=scale)["scaled"]
found = []
def many():
    for _ in range(20):
        found.append(torch.equal(model(x, scale=scale)["scaled"], first))
threads = [threading.Thread(target=many) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert found == [True] * 80
for arguments, message in (
    ((x[:, :2], scale), "input x: expected extent 3 of axis 1, found 2"),
    ((x[0], scale), "input x: expected rank 4, found 3"),
    ((x.double(), scale), "input x: expected elements of type f32"),
    ((x, scale[:3]), "input scale: expected extent 4 of axis 0, found 3"),
):
    try:
        model(arguments[0], scale=arguments[1])
    except RuntimeError as e:
        assert message in str(e), e
    else:
        raise AssertionError(message)

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

for _ in range(200): model(x, scale=scale)
before = resident()
for _ in range(3000): model(x.transpose(2, 3).contiguous().transpose(2, 3), scale=scale)
assert resident() < before + (4 << 20)
"""


def without(package: Path, x: Any, scale: Any, wanted: Any) -> None:
    """Run the checks in a process that has no Tilesmith."""
    saved = package.with_suffix(".wanted")
    torch.save((x, scale, wanted), saved)
    command = [sys.executable, "-c", WITHOUT, str(package), str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pytorch_loads_a_package_without_tilesmith(tmp_path: Path) -> None:
    model = Network().eval()
    path = tmp_path / "m.pt2"
    kwargs = {"scale": SCALE}
    assert ts.torch.export_aot(model, path, (X,), example_kwargs=kwargs, threads=2) == path
    with torch.no_grad():
        without(path, X, SCALE, model(X, scale=SCALE))


def test_open_dimensions_and_levels(tmp_path: Path) -> None:
    levels = [n for n in ("x86-64-v4", "x86-64-v3") if target(n).features <= host().features]
    if host().architecture != "x86_64":
        levels = []
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Softmax(-1)).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(3, 5),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "program.pt2")
    for source in (program, tmp_path / "program.pt2"):
        path = ts.torch.export_aot(source, tmp_path / "m.pt2", targets=levels)
        loaded = torch._inductor.aoti_load_package(str(path))
        for rows in (1, 3, 17):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(loaded(x), model(x))
    with pytest.raises(RuntimeError):
        loaded(torch.randn(65, 5))


def test_every_type_has_a_number_of_pytorchs(tmp_path: Path) -> None:
    text = packages.INTERFACE.read_text()
    assert set(re.findall(r'\{"(\w+)", aoti_torch_dtype', text)) == packages.TYPES
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    for name in re.findall(r"^int32_t (aoti_torch_\w+)\(", text, re.M):
        assert hasattr(library, name), name


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x + self.calls


class Half(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2, 3


def test_models_that_a_package_can_not_hold_are_refused(tmp_path: Path) -> None:
    path, x = tmp_path / "m.pt2", (torch.ones(4),)
    with pytest.raises(ts.UsageError, match="the model writes 'calls'"):
        ts.torch.export_aot(Counter(), path, x)
    with pytest.raises(ts.UsageError, match="expected results that are tensors"):
        ts.torch.export_aot(Half(), path, x)
    with pytest.raises(ts.UsageError, match=r"a path that ends with \.pt2"):
        ts.torch.export_aot(Half(), tmp_path / "m.pt", x)
    with pytest.raises(ts.UsageError, match=r"expected a torch\.nn\.Module .* found dict"):
        ts.torch.export_aot({}, path, x)
    with pytest.raises(ts.UsageError, match="expected one for Linux"):
        ts.torch.export_aot(torch.nn.ReLU(), path, x, targets=["aarch64-macos"])
    assert list(tmp_path.iterdir()) == []
