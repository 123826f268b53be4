"""Code for NVIDIA's GPUs, assembled by `ptxas`: registers, spills and shared memory of each kernel.

    python -m benchmarks.ptx FOLDER [--architectures sm_80,sm_90a,sm_100] [--sizes 1024,4096]

Static counts of the main loops' memory accesses stand beside it: global accesses that are not
coalesced, bank conflicts of shared memory, and matrix instructions.

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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import tilesmith as ts
from tilesmith import te
from tilesmith.cli.explain_device import counts_of, counts_of_loops
from tilesmith.codegen.packed import unpacked
from tilesmith.codegen.ptx.assemble import ptx
from tilesmith.codegen.targets import target
from tilesmith.perf.launch_counts import LaunchCounts
from tilesmith.strategy.device import default_schedule


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


Made = tuple[str, str, Sequence[LaunchCounts]]
"""Name, PTX, and counts of the launches."""


def products(sizes: list[int], architecture: str) -> Iterator[Made]:
    """Square products, whose sums have the second type."""
    gpu = target(f"cuda-{architecture}")
    for n, (low, to) in product(sizes, (("f32", "f32"), ("f16", "f32"), ("i8", "i32"))):
        args = square(n, low, to)
        counts = counts_of(te.lower(default_schedule(args, gpu, 0.0), args), gpu)
        yield f"matmul {n} {low}", ptx(ts.build("auto", args, target=gpu).source, gpu), counts


def square(n: int, low: str, to: str) -> list[te.Tensor]:
    a, b = (te.placeholder((n, n), low, name) for name in "ab")
    k = te.reduce_axis((0, n), "k")
    return [
        a,
        b,
        te.compute((n, n), lambda i, j: te.sum(a[i, k].astype(to) * b[k, j].astype(to), axis=k)),
    ]


def models(folder: Path, architecture: str, precision: str) -> Iterator[Made]:
    """The kernels of each model."""
    for path in sorted(folder.glob("*.onnx")):
        program = ts.compile(
            path, target=f"cuda-{architecture}", options=ts.Options(precision=precision)
        ).program
        for part in (program, *program.parts):
            if part.target.device is not None:
                for symbol, code in part.objects.items():
                    loops = part.kernels[symbol].loops
                    text = unpacked(symbol, code).text
                    yield path.stem, text, counts_of_loops(loops, part.target)


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
    parser.add_argument("--precision", default="f32", help="of the models' products")
    parser.add_argument("--json", type=Path, help="write every row")
    given = parser.parse_args()
    command = assembler()
    if command is None:
        sys.exit("ptxas is missing: pip install nvidia-cuda-nvcc")
    rows: list[Row] = []
    print(
        "| model | architecture | launches | most registers | most shared bytes | stack, spilled "
        "| coalesced | uncoalesced | bank conflicts | matrix instructions |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for architecture in given.architectures.split(","):
        found: dict[str, list[Row]] = {}
        sizes = [int(n) for n in given.sizes.split(",")]
        counted: dict[str, list[LaunchCounts]] = {}
        of_models = models(given.folder, architecture, given.precision)
        for source in (products(sizes, architecture), of_models):
            for model, text, counts in source:
                counted.setdefault(model, []).extend(counts)
                made = list(assembled(model, text, architecture, command))
                found.setdefault(model, []).extend(made)
        for model, of_model in found.items():
            registers, shared = (
                max(getattr(r, f) for r in of_model) for f in ("registers", "shared_bytes")
            )
            lost = sum(r.stack_bytes for r in of_model), sum(r.spilled_bytes for r in of_model)
            kinds = ("coalesced", "uncoalesced", "bank_conflicts", "matrix")
            memory = [sum(getattr(c, n) for c in counted[model]) for n in kinds]
            print(
                f"| {model} | {architecture} | {len(of_model)} | {registers} | {shared} | "
                f"{lost[0]}, {lost[1]} | " + " | ".join(map(str, memory)) + " |",
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
