"""The time of a model, kernel by kernel.

A second main function, made on demand, calls the program's kernels and reads the clock between
them.  So the kernels run as in the program: in order, with the same threads, and with the caches in
the state that the previous kernel left.  Kernel times add up to the whole; the time of a kernel in
a loop is the sum over iterations.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilesmith.codegen.emit import emit_bare
from tilesmith.codegen.link import Library, compile_object
from tilesmith.codegen.lower_main import lower_main
from tilesmith.ir.dtypes import i64
from tilesmith.perf.cost import Place, Prediction, Setting, constants_place, predict
from tilesmith.perf.info import KernelInfo
from tilesmith.perf.machine import Machine
from tilesmith.program.functions import ENTRY, SIZES

from .program import KernelCall, Program, TensorSpec

PROFILED_ENTRY = "tilesmith_profiled_main"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel of a program.

    call: the call.
    seconds: total time of its runs in one call, the minimum over calls.
    runs: number of its runs in one call, which loops and branches determine.
    info: its description, if the program has one.
    prediction: the performance model's prediction.  None without a description.  Also None for a
        kernel with symbolic sizes, unless the run had the expected sizes.
    """

    call: KernelCall
    seconds: float
    runs: int = 1
    info: KernelInfo | None = None
    prediction: Prediction | None = None

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations per second; 0 without a prediction, since the work is
        unknown.
        """
        return self._rate(self.info.work.flops) if self.info and self.prediction else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes moved per second; 0 without a prediction, since the work is unknown."""
        return self._rate(self.info.work.bytes) if self.info and self.prediction else 0.0

    def _rate(self, amount: float) -> float:
        """Convert an amount per run to an amount per second; 0 for a kernel that does not run."""
        return amount * self.runs / self.seconds if self.runs else 0.0

    @property
    def ratio(self) -> float | None:
        """Predicted over measured time; above 1 the kernel is faster than predicted."""
        if self.prediction is None or not self.runs:
            return None
        return self.prediction.seconds * self.runs / self.seconds


@dataclass(frozen=True)
class Profile:
    """The kernels of a program with their times.

    kernels: times of the kernels, in order.
    whole: seconds of the fastest whole run, by the program's own main function.
    threads: number of threads.
    machine: the rates behind the predictions; None without predictions, as for a device.
    host: seconds of a run in each host function, by node and operator.
    """

    kernels: tuple[KernelTime, ...]
    whole: float
    threads: int
    machine: Machine | None = None
    host: tuple[tuple[str, float], ...] = ()

    def __iter__(self) -> Iterator[KernelTime]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __getitem__(self, i: int) -> KernelTime:
        return self.kernels[i]

    @property
    def seconds(self) -> float:
        """The sum of the kernels' times."""
        return sum(k.seconds for k in self.kernels)

    def __str__(self) -> str:
        lines = [f"{'ms':>9} {'share':>6} {'GFLOP/s':>8} {'GB/s':>6} {'model':>6}  kernel"]
        for k in sorted(self.kernels, key=lambda k: -k.seconds):
            rates = f"{k.flops_per_second / 1e9:8.1f} {k.bytes_per_second / 1e9:6.1f}"
            if k.prediction is None:
                rates = f"{'':15}"
            ratio = "" if k.ratio is None else f"{k.ratio:.2f}"
            name = "+".join(k.info.operators) if k.info else k.call.symbol
            lines.append(
                f"{k.seconds * 1e3:9.4f} {k.seconds / (self.seconds or 1):6.1%} "
                f"{rates} {ratio:>6}  {name} {k.call.label}"
            )
        lines.append(f"{self.seconds * 1e3:9.4f} {'':6} {'':8} {'':6} {'':6}  all kernels")
        for name, seconds in self.host:
            lines.append(f"{seconds * 1e3:9.4f} {'':6} {'':8} {'':6} {'':6}  on the host: {name}")
        return "\n".join(lines)


class Stopwatch:
    """The profiled main function of a program, linked against the loaded kernels."""

    def __init__(self, program: Program, library: Library) -> None:
        self.calls = program.calls
        needed = {c.symbol for c in program.calls} | {m.sizes for m in program.measurements}
        needed |= {SIZES} if program.symbols else set()
        symbols = {name: library.address(name) for name in needed}
        code = profiled_main(program, PROFILED_ENTRY)
        self._library = Library([code], [PROFILED_ENTRY], symbols)

    @property
    def address(self) -> int:
        return self._library.address(PROFILED_ENTRY)

    def times(self) -> np.ndarray:
        """Zeroed memory for times, which the profiled main function takes as an additional last
        output.  For each kernel call, that function adds nanoseconds and the number of runs.
        """
        return np.zeros((max(len(self.calls), 1), 2), np.int64)


def profiled(program: Program) -> Program:
    """The program with its profiled main function and the output for times, for other machines."""
    times = TensorSpec("times", i64, (max(len(program.calls), 1), 2))
    return replace(
        program,
        outputs=(*program.outputs, times),
        objects={**program.objects, ENTRY: profiled_main(program, ENTRY)},
    )


def profiled_main(program: Program, symbol: str) -> bytes:
    """Object code of a program's profiled main function.  An additional last output takes the times
    (see `Stopwatch.times`).
    """
    main = lower_main(
        program.steps,
        symbol,
        len(program.outputs) + bool(program.grown),
        time.CLOCK_MONOTONIC,
        sizes=program.size_values,
    )
    return compile_object(emit_bare(main, program.target), program.target, opt=0)


def unpredicted(program: Program, seconds: np.ndarray, runs: np.ndarray) -> tuple[KernelTime, ...]:
    """The program's kernels with their times, without predictions.

    runs: number of runs of each.
    """
    rows = zip(program.calls, seconds.tolist(), runs.tolist(), strict=True)
    return tuple(KernelTime(c, t, n, program.kernels.get(c.symbol)) for c, t, n in rows)


def timed(
    program: Program,
    seconds: Sequence[float],
    runs: Sequence[int],
    threads: int,
    machine: Machine,
    extents: Sequence[int] = (),
) -> tuple[KernelTime, ...]:
    """The program's kernels with their times and predictions.

    runs: number of runs of each kernel.
    extents: extents of the program's symbols in these runs.
    """
    usual = all(s.sizes.expected == n for s, n in zip(program.symbols, extents, strict=True))
    size = program.constants.nbytes + program.arena_bytes
    constants = constants_place(size, program.target, machine.l3_bytes)
    rows = []
    for call, t, n in zip(program.calls, seconds, runs, strict=True):
        info = program.kernels.get(call.symbol)
        expected: Any = None
        if info is not None and (usual or all(a.kind != "extent" for a in call.args)):
            places: list[Place] = [constants if a.kind == "constant" else "l1" for a in call.args]
            expected = predict(info.work, machine, program.target, Setting(threads, places))
        rows.append(KernelTime(call, float(t), int(n), info, expected))
    return tuple(rows)
