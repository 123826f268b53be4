"""The main program of the process that runs candidates: it checks their results and times them.

The candidate and the analytic kernel run alternately, a few runs each, so that the ratio of their
times does not depend on the rest of the machine's load.  Each kernel's shortest time is used.  A
round's times are discarded if other work disturbed the analytic kernel in that round.  Rounds end
when the shortest times are stable, or at once when the candidate is clearly slower.

Results are checked before and after the timed runs, since data races between threads may show only
later.  Elements that the candidate does not write stay NaN.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tilesmith.codegen.link import Library
from tilesmith.codegen.packed import unpacked
from tilesmith.ir.expr import Const
from tilesmith.ir.target import Target
from tilesmith.runtime.device import FAILURE_TYPE, failure_of
from tilesmith.runtime.devices import opened
from tilesmith.runtime.native import Context, aligned_bytes, round_up
from tilesmith.support.arrays import least_difference
from tilesmith.support.child import serve
from tilesmith.support.errors import TilesmithError

from .jobs import (
    Answer,
    Argument,
    MeasureJob,
    MeasurePlan,
    Runnable,
    answer_bytes,
    load_inputs,
    load_references,
)

TURN_SECONDS = 1e-3
"""Seconds of consecutive runs in a turn."""
ROUNDS = (4, 24)
"""Least and largest number of turns of each kernel."""
QUIET, DISTURBED = 3, 1.1
"""Least number of turns that count.  A turn counts if its baseline time is at most `DISTURBED`
times the least baseline time.
"""
FLUSHED_RUNS = 3
"""Upper bound on the runs in a turn if the caches are flushed before each run."""
LATE = 5
"""Measuring ends after this multiple of the planned seconds, even if kernels had only one turn."""
MAX_COPIES = 16
"""Upper bound on the copies of an argument that must not be in the caches."""
KEPT_BYTES = 1 << 30
"""Upper bound on the bytes of packed arguments that are kept.  Other arguments are packed again."""


class Arguments:
    """The arguments of a workload's kernels.

    Candidates mostly agree on the arguments' layouts, so each layout is packed once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._packed: dict[tuple[int, Argument], list[np.ndarray]] = {}
        self._references: list[list[np.ndarray]] | None = None

    def inputs(self, arguments: Sequence[Argument]) -> list[list[np.ndarray]]:
        """The physical array of each argument.  An argument that must not be in the cache has
        several copies.
        """
        missing = any((i, a) not in self._packed for i, a in enumerate(arguments))
        if missing and sum(x.nbytes for p in self._packed.values() for x in p) > KEPT_BYTES:
            self._packed.clear()
        logical = load_inputs(self.path, arguments) if missing else []
        for i, (a, x) in enumerate(zip(arguments, logical)):
            if (i, a) not in self._packed:
                packed = a.pack(x)
                self._packed[i, a] = [_aligned(packed) for _ in range(copies(a))]
        return [self._packed[i, a] for i, a in enumerate(arguments)]

    def references(self, arguments: Sequence[Argument]) -> list[list[np.ndarray]]:
        """The references of each result."""
        if self._references is None:
            self._references = load_references(self.path, arguments)
        return self._references


class Contender(ABC):
    """A kernel in this process with its arguments.

    kernel: its code, and the description of its arguments.
    """

    kernel: Runnable
    least: float = 0.0
    """The kernel's least time in the last measurement, in seconds."""

    @abstractmethod
    def run(self, times: int) -> None:
        """Call the kernel `times` times.  Raises TilesmithError if it fails."""

    @property
    @abstractmethod
    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""

    def seconds(self, times: int) -> float:
        """Seconds of a run, averaged over `times` runs."""
        start = time.perf_counter()
        self.run(times)
        return (time.perf_counter() - start) / times

    def results(self) -> list[np.ndarray]:
        """A copy of the results of the last run."""
        return [y.copy() for y in self.outputs]

    def has_written(self, results: Sequence[np.ndarray]) -> bool:
        """Whether the last run wrote exactly these results."""
        pairs = zip(self.outputs, results, strict=True)
        return all(np.array_equal(y.view(np.uint8), x.view(np.uint8)) for y, x in pairs)

    def fault(self, references: list[list[np.ndarray]], bounds: Sequence[float]) -> str:
        """The error in the last run's results; empty if there is none."""
        return fault_of(self.kernel.outputs, self.outputs, references, bounds)


def fault_of(
    arguments: Sequence[Argument],
    results: Sequence[np.ndarray],
    references: list[list[np.ndarray]],
    bounds: Sequence[float],
) -> str:
    """The error in physical results (see `least_difference`); empty if there is none."""
    judged = zip(arguments, results, references, bounds, strict=True)
    for n, (a, y, expected, bound) in enumerate(judged):
        error = least_difference(a.unpack(y), expected, bound)
        if not error <= bound:
            which = f"output {n} is " if len(arguments) > 1 else ""
            return f"{which}off by {error:.1e} of the largest magnitude (allowed: {bound:.0e})"
    return ""


class Loaded(Contender):
    """A kernel that runs on the CPU."""

    def __init__(self, kernel: Runnable, arguments: Arguments, threads: int) -> None:
        self.kernel = kernel
        self._library = Library([kernel.code], [kernel.symbol])
        count = len(kernel.inputs) + len(kernel.outputs) + 2
        call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * count)
        self._function = call(self._library.address(kernel.symbol))
        shared = round_up(kernel.workspace)
        private = round_up(kernel.workspace_per_thread)
        memory = aligned_bytes(shared + private * threads)
        self._context = Context.of(threads, memory.ctypes.data + shared, private)
        packed = arguments.inputs(kernel.inputs)
        self._outputs = [unwritten(a) for a in kernel.outputs]
        results = [y.ctypes.data for y in self._outputs]
        tail = [*results, memory.ctypes.data, ctypes.addressof(self._context)]
        self._calls = [
            (*(p[i % len(p)].ctypes.data for p in packed), *tail)
            for i in range(max((len(p) for p in packed), default=1))
        ]
        self._keep = (packed, memory)
        self._next = 0

    @property
    def outputs(self) -> list[np.ndarray]:
        return self._outputs

    def run(self, times: int) -> None:
        function, calls, first = self._function, self._calls, self._next
        for i in range(first, first + times):
            if code := function(*calls[i % len(calls)]):
                failure = self._context.failure(code)
                raise TilesmithError(f"assertion {failure.assertion} of the kernel fails")
        self._next = (first + times) % len(calls)


class Launched(Contender):
    """A kernel that runs on a device, with its arguments in the device's memory."""

    def __init__(self, kernel: Runnable, arguments: Arguments, target: Target) -> None:
        """Raises DeviceError if there is no device, or not enough memory on it."""
        self.kernel = kernel
        self._device = device = opened(target)
        self._parts = parts = unpacked(kernel.symbol, kernel.code)
        built = device.load([parts])
        self._read = [np.empty_like(unwritten(a)) for a in kernel.outputs]
        arrays = [copies[0] for copies in arguments.inputs(kernel.inputs)]
        arrays += [unwritten(a) for a in kernel.outputs]
        memory = [device.empty(a.nbytes) for a in arrays]
        for m, a in zip(memory, arrays, strict=True):
            device.write(m, a)
        self._results = memory[len(kernel.inputs) :]
        self._failure = np.zeros((), FAILURE_TYPE)
        self._report = device.empty(self._failure.nbytes)
        device.write(self._report, self._failure)
        workspace = (device.empty(kernel.workspace), 0) if kernel.workspace else None
        places = [*((m, 0) for m in memory), workspace]
        self._starts = [
            device.prepared(
                device.kernel(built, x.symbol),
                [int(n.value) for n in x.blocks if isinstance(n, Const)],
                x.threads,
                places,
                self._report,
            )
            for x in parts.launches
        ]

    def run(self, times: int) -> None:
        for _ in range(times):
            for start in self._starts:
                start()
        self._device.finish()
        if self._parts.messages:
            self._device.read(self._failure, self._report)
            if (failure := failure_of(self._failure)) is not None:
                raise TilesmithError(failure.text(self._parts.messages))

    @property
    def outputs(self) -> list[np.ndarray]:
        for array, memory in zip(self._read, self._results, strict=True):
            self._device.read(array, memory)
        return self._read


def contender(kernel: Runnable, arguments: Arguments, plan: MeasurePlan) -> Contender:
    """A kernel, ready to run on the CPU or on the plan's device."""
    if plan.device is None:
        return Loaded(kernel, arguments, plan.threads)
    return Launched(kernel, arguments, Target.from_json(plan.device))


def copies(a: Argument) -> int:
    """Number of the copies of an argument, which runs read in turn."""
    return max(1, min(a.cold // max(a.nbytes, 1), MAX_COPIES))


def unwritten(a: Argument) -> np.ndarray:
    """Memory for a result, filled with bytes that are NaN or an unlikely number."""
    out = aligned_bytes(a.physical_bytes)
    out[...] = 0xFF
    return out.view(a.type.numpy).reshape(a.physical_shape)


def _aligned(array: np.ndarray) -> np.ndarray:
    out = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


class Bench:
    """Arguments and baseline of the last job, kept since many consecutive candidates use them."""

    def __init__(self) -> None:
        self._baseline: tuple[str, Contender] | None = None
        self._arguments: Arguments | None = None
        self._other = np.empty(0, np.uint8)

    def measure(self, job: MeasureJob) -> Answer:
        """The outcome of a job."""
        answer = self._measure(job)
        if answer.outcome not in ("ok", "slow"):  # a failed kernel may have overwritten any memory
            self._baseline = self._arguments = None
        return answer

    def _measure(self, job: MeasureJob) -> Answer:
        plan = job.plan
        if self._arguments is None or self._arguments.path != job.arrays:
            self._baseline, self._arguments = None, Arguments(job.arrays)
        arguments = self._arguments
        try:
            references = arguments.references(job.candidate.outputs)
            candidate = contender(job.candidate, arguments, plan)
            candidate.run(1)
            if fault := candidate.fault(references, plan.bounds):
                return Answer("wrong", text=fault)
            results = candidate.results()
            key = f"{job.arrays}:{plan.threads}:{job.baseline.digest}"
            if self._baseline is None or self._baseline[0] != key:
                self._baseline = None
                self._baseline = (key, contender(job.baseline, arguments, plan))
            baseline = self._baseline[1]
            ours, theirs = (self._timer(k, plan) for k in (candidate, baseline))
            # A baseline that runs longer than the planned seconds is not run again for every
            # candidate.
            if baseline.least > plan.seconds:
                answer = in_turns(ours, lambda _: baseline.least, plan)
            else:
                answer = in_turns(ours, theirs, plan)
                baseline.least = answer.baseline
            if candidate.has_written(results):
                return answer
            fault = candidate.fault(references, plan.bounds)
            return Answer("wrong", text=f"{fault}, not always") if fault else answer
        except MemoryError:
            return Answer("memory", text="the process may not take so much memory")
        except TilesmithError as e:
            return Answer("failed", text=str(e))
        finally:
            gc.collect()

    def _timer(self, kernel: Contender, plan: MeasurePlan) -> Callable[[int], float]:
        """A function that measures a kernel's time over n runs."""
        if not plan.flush_bytes:
            return kernel.seconds
        if len(self._other) != plan.flush_bytes:
            self._other = np.zeros(plan.flush_bytes, np.uint8)

        def seconds(times: int) -> float:
            times, total = min(times, FLUSHED_RUNS), 0.0
            for _ in range(times):
                self._other += 1
                total += kernel.seconds(1)
            return total / times

        return seconds


def in_turns(
    candidate: Callable[[int], float], baseline: Callable[[int], float], plan: MeasurePlan
) -> Answer:
    """The least times of a candidate and a baseline, measured alternately.

    candidate, baseline: functions that return the average seconds of n runs.
    """
    turns = [(candidate(1), baseline(1))]
    ours, theirs = turns[0]
    runs = [max(1, int(TURN_SECONDS / max(t, 1e-9))) for t in turns[0]]
    start, unchanged = time.perf_counter(), 0
    for done in range(1, ROUNDS[1] + 1):
        turns.append((candidate(runs[0]), baseline(runs[1])))
        before = ours, theirs
        ours, theirs, quiet = least_times(turns)
        same = abs(ours - before[0]) <= 0.01 * ours and before[1] - theirs <= 0.01 * theirs
        unchanged = unchanged + 1 if same else 0
        spent = time.perf_counter() - start
        late = spent > LATE * plan.seconds
        if (done >= 2 or late) and ours > plan.give_up * theirs:
            return judged(ours, theirs, plan)
        is_sure = done >= ROUNDS[0] and quiet >= QUIET
        if late or (is_sure and (unchanged >= 3 or spent > plan.seconds)):
            break
    return Answer("ok", ours, theirs)


def least_times(turns: Sequence[tuple[float, float]]) -> tuple[float, float, int]:
    """The least times of a candidate and a baseline, and the number of turns that count.

    turns: seconds of both in each turn.
    """
    theirs = min(b for _, b in turns)
    quiet = [a for a, b in turns if b <= DISTURBED * theirs]
    return min(quiet), theirs, len(quiet)


def judged(ours: float, theirs: float, plan: MeasurePlan) -> Answer:
    """The answer about a candidate that takes `ours` seconds, beside a baseline."""
    if ours > plan.give_up * theirs:
        return Answer("slow", ours, theirs, f"more than {plan.give_up:g} times the baseline")
    return Answer("ok", ours, theirs)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bench = Bench()
    serve(lambda request: answer_bytes(bench.measure(MeasureJob.from_bytes(request))))


if __name__ == "__main__":
    main()
