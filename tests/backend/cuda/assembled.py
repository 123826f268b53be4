"""What `ptxas` says of kernels, where it is installed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from tilesmith.codegen.ptx.assemble import ptx
from tilesmith.codegen.targets import target


def assembler() -> str | None:
    """The command `ptxas`: of CUDA's toolkit, or of the wheel `nvidia-cuda-nvcc`."""
    found = importlib.util.find_spec("nvidia")
    wheels = [Path(p) for p in found.submodule_search_locations or ()] if found else []
    inside = (str(f) for w in wheels for f in w.glob("*/bin/ptxas*"))
    return shutil.which("ptxas") or next(inside, None)


def check_assembled(source: str, name: str, tmp_path: Path) -> None:
    """No register is spilled, and nothing lies in memory of a thread."""
    command = assembler()
    if command is None:
        pytest.skip("there is no ptxas; the wheel nvidia-cuda-nvcc has one")
    (tmp_path / "k.ptx").write_text(ptx(source, target(f"cuda-{name}")))
    run = subprocess.run(
        [command, "-v", "-arch", name, str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = run.stdout + run.stderr
    assert not run.returncode, said
    good = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    functions = said.count("Function properties for")  # kernels, and what reports a failure
    assert said.count(good) == functions >= source.count("define ptx_kernel"), said
