"""Wheels for other systems, and the images that install them."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    """scripts/wheels.py as a module."""
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "scripts" / "wheels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["wheels"] = module  # where its dataclass looks for itself
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["macos-arm64", "windows-x86_64"])
def test_an_extension_for_another_system_links_and_is_looked_at(wheels, name, tmp_path):
    platform = wheels.PLATFORMS[name]
    library = wheels.built(platform, tmp_path)
    wheels.check(platform, library)
    others = [p for n, p in wheels.PLATFORMS.items() if n != name]
    for other in others:
        with pytest.raises(SystemExit, match=f"{other.tag}: expected a library that begins"):
            wheels.check(other, library)
    with pytest.raises(SystemExit, match="the extension has no PyInit__native"):
        wheels.check(platform, library.replace(b"PyInit__native", b"PyInit__notive"))
    with pytest.raises(SystemExit, match="Python has no PyObject_GetBuffez"):
        wheels.check(platform, library.replace(b"PyObject_GetBuffer", b"PyObject_GetBuffez"))


@pytest.mark.parametrize("machine, tag", [(62, "x86_64"), (183, "aarch64")])
def test_a_library_for_another_processor_or_a_newer_glibc_is_refused(wheels, machine, tag):
    def library(*strings: bytes) -> bytes:
        head = b"\x7fELF\2\1\1".ljust(18, b"\0") + machine.to_bytes(2, "little")
        return head + b"\0".join((b"", *strings, b"PyInit__native", b"PyList_Size", b""))

    own, other = (
        wheels.PLATFORMS[f"manylinux-{t}"] for t in (tag, {"x86_64": "aarch64"}.get(tag, "x86_64"))
    )
    wheels.check(own, library(b"libc.so.6", b"GLIBC_2.17"))
    with pytest.raises(SystemExit, match="for another processor"):
        wheels.check(other, library())
    with pytest.raises(SystemExit, match=r"needs glibc \(2, 34\)"):
        wheels.check(own, library(b"libc.so.6", b"GLIBC_2.34"))


def test_a_wheel_gets_another_extension_tag_and_record(wheels, tmp_path):
    base, info = tmp_path / "tilesmith-1.0-cp311-abi3-linux_x86_64.whl", "tilesmith-1.0.dist-info"
    with zipfile.ZipFile(base, "w") as z:
        z.writestr("tilesmith/__init__.py", "x = 1\n")
        z.writestr("tilesmith/runtime/_native.abi3.so", "ours")
        z.writestr("tilesmith/runtime/_native.pyi", "types")
        z.writestr(f"{info}/WHEEL", "Root-Is-Purelib: false\nTag: cp311-abi3-linux_x86_64\n")
        z.writestr(f"{info}/RECORD", "")
    out = tmp_path / "out"
    out.mkdir()
    made = wheels.repacked(base, wheels.PLATFORMS["windows-x86_64"], b"theirs", out)
    assert made.name == "tilesmith-1.0-cp311-abi3-win_amd64.whl"
    with zipfile.ZipFile(made) as z:
        contents = {n: z.read(n) for n in z.namelist()}
    assert "tilesmith/runtime/_native.abi3.so" not in contents
    assert contents["tilesmith/runtime/_native.pyd"] == b"theirs"
    assert contents["tilesmith/runtime/_native.pyi"] == b"types"
    assert b"\nTag: cp311-abi3-win_amd64\n" in contents[f"{info}/WHEEL"]
    record = contents.pop(f"{info}/RECORD").decode().splitlines()
    assert record.pop() == f"{info}/RECORD,,"
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for name, data in contents.items()
    }
    assert record == [f"{n},sha256={digests[n]},{len(data)}" for n, data in contents.items()]


@pytest.mark.parametrize("name", ["cpu", "cuda", "engines", "opencl"])
def test_an_image_installs_a_wheel_that_the_script_makes(wheels, name):
    """Docker is not at hand: what the file names has to exist."""
    lines = (ROOT / "docker" / f"{name}.Dockerfile").read_text().splitlines()
    steps = [line for line in lines if line and not line.startswith("#")]
    assert steps[0] == "FROM python:3.12-slim"
    (copied,) = (re.fullmatch(r"COPY dist/(\S+) (\S+)", s) for s in steps if s.startswith("COPY d"))
    assert copied is not None
    names = [f"tilesmith-0.1.0-{wheels.ABI}-{p.tag}.whl" for p in wheels.PLATFORMS.values()]
    (installed,) = (
        re.search(r"pip install \S+ (\S+ -m\)\.whl) ", s) for s in steps if "pip install" in s
    )
    assert installed is not None and installed[1].startswith(copied[2])
    for machine in ("x86_64", "aarch64"):
        pattern = installed[1].removeprefix(copied[2]).replace("$(uname -m)", machine)
        taken = [n for n in names if Path(n).match(copied[1]) and Path(n).match(pattern)]
        assert [n.removeprefix("tilesmith-0.1.0-cp311-abi3-") for n in taken] == [
            f"manylinux_2_17_{machine}.whl"
        ]
    assert "USER tilesmith" in steps
    assert any("NVIDIA_VISIBLE_DEVICES" in s for s in steps) == (name == "cuda")
