"""Code for NVIDIA's GPUs, assembled by `ptxas`: registers, spills and shared memory of each kernel.

    python -m benchmarks.ptx FOLDER [--architectures sm_80,sm_90a,sm_100] [--sizes 1024,4096]

FOLDER holds models of ONNX.  No device is needed; `ptxas` comes with CUDA's toolkit or the wheel
nvidia-cuda-nvcc.  A kernel fails if it spills, or if its shared memory is not what its schedule has
planned.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.packed import unpacked
from tilesmith.codegen.ptx.assemble import ptx
from tilesmith.codegen.targets import target


@dataclass(frozen=True)
class Row:
    """A launch as it is assembled.

    model: where it comes from.
    architecture: for which it is.
    symbol: its name.
    registers: of a thread.
    shared_bytes, planned_bytes: shared memory of a block, assembled and as PTX declares it.
    stack_bytes: memory of a thread.
    spilled_bytes: stored and loaded for want of registers.
    """

    model: str
    architecture: str
    symbol: str
    registers: int
    shared_bytes: int
    planned_bytes: int
    stack_bytes: int
    spilled_bytes: int

    @property
    def is_good(self) -> bool:
        planned = self.shared_bytes == self.planned_bytes
        return planned and not self.stack_bytes and not self.spilled_bytes


def assembler() -> str | None:
    """The command `ptxas`, if it is installed."""
    found = importlib.util.find_spec("nvidia")
    wheels = [Path(p) for p in found.submodule_search_locations or ()] if found else []
    inside = (str(f) for w in wheels for f in w.glob("*/bin/ptxas*"))
    return shutil.which("ptxas") or next(inside, None)


def products(sizes: list[int], architecture: str) -> Iterator[tuple[str, str]]:
    """Name and PTX of square products."""
    for n in sizes:
        a, b = (te.placeholder((n, n), name=name) for name in "ab")
        k = te.reduce_axis((0, n), "k")
        c = te.compute((n, n), lambda i, j, a=a, b=b, k=k: te.sum(a[i, k] * b[k, j], axis=k), "c")
        name = f"cuda-{architecture}"
        yield f"matmul {n}", ptx(ts.build("auto", [a, b, c], target=name).source, target(name))


def models(folder: Path, architecture: str) -> Iterator[tuple[str, str]]:
    """Name and PTX of each kernel of each model."""
    for path in sorted(folder.glob("*.onnx")):
        program = ts.compile(path, target=f"cuda-{architecture}").program
        for part in (program, *program.parts):
            if part.target.device is not None:
                for symbol, code in part.objects.items():
                    yield path.stem, unpacked(symbol, code).text


def assembled(model: str, text: str, architecture: str, command: str) -> Iterator[Row]:
    """What `ptxas` says of each launch.  Raises RuntimeError if it refuses the text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(text)
        run = subprocess.run(
            [command, "-v", "-arch", architecture, str(path), "-o", str(path.with_suffix(".bin"))],
            capture_output=True,
            text=True,
            check=False,
        )
    said = run.stdout + run.stderr
    if run.returncode:
        raise RuntimeError(f"{model}: ptxas refuses a kernel for {architecture}:\n{said}")
    for part in said.split("Compiling entry function '")[1:]:
        symbol = part.split("'", 1)[0]
        body = text.split(f".entry {symbol}(", 1)[1].split("\n}\n", 1)[0]
        declared = re.findall(r"\.shared \.align \d+ \.b8 \S+\[(\d+)\]", body)

        def number(pattern: str, part: str = part) -> int:
            return sum(map(int, re.findall(pattern, part)))

        yield Row(
            model,
            architecture,
            symbol,
            number(r"Used (\d+) registers"),
            number(r"(\d+) bytes smem"),
            sum(map(int, declared)),
            number(r"(\d+) bytes stack frame"),
            number(r"(\d+) bytes spill"),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architectures", default="sm_80,sm_90a,sm_100")
    parser.add_argument("--sizes", default="1024,4096")
    parser.add_argument("--json", type=Path, help="write every row")
    given = parser.parse_args()
    command = assembler()
    if command is None:
        sys.exit("ptxas is missing: pip install nvidia-cuda-nvcc")
    rows: list[Row] = []
    print(
        "| model | architecture | launches | most registers | most shared bytes | stack, spilled |"
    )
    print("|---|---|---|---|---|---|")
    for architecture in given.architectures.split(","):
        found: dict[str, list[Row]] = {}
        sizes = [int(n) for n in given.sizes.split(",")]
        for source in (products(sizes, architecture), models(given.folder, architecture)):
            for model, text in source:
                made = list(assembled(model, text, architecture, command))
                found.setdefault(model, []).extend(made)
        for model, of_model in found.items():
            registers, shared = (
                max(getattr(r, f) for r in of_model) for f in ("registers", "shared_bytes")
            )
            lost = sum(r.stack_bytes for r in of_model), sum(r.spilled_bytes for r in of_model)
            print(
                f"| {model} | {architecture} | {len(of_model)} | {registers} | {shared} | "
                f"{lost[0]}, {lost[1]} |",
                flush=True,
            )
            rows += of_model
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    bad = [r for r in rows if not r.is_good]
    for r in bad:
        print(r)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
