"""Measurement of this CPU, done once, with small kernels.

Each kernel is a short loop IR function made for the target's vectors: chains of multiply-adds in
registers, or sums and stores over arrays that fit one memory level.  The kernels run many times,
alternating.  The fastest time counts, since other load can only slow a kernel down. `runtime.rates`
keeps the result.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.ir.target import Target
from tilesmith.loop.parse import parse_func
from tilesmith.perf.machine import Machine, Rates

from .arguments import Arguments
from .function import NativeFunction
from .native import aligned_bytes

ROUNDS = 12
_OWN = ("flops", "l1_load", "l1_store", "l2", "l2_write")
"""Rates of resources that each core has for itself."""
_LARGEST = 256 << 20  # bytes that measuring may allocate
_FORKS = 256
_HELD_ROUNDS = 4
_L3_PASSES = 16
"""Number of passes over an array in L3.  The first pass fetches lines that other trials have
evicted.
"""
_OWN_BYTES = 256 << 20
"""Bytes that each thread reads from its own L1 or L2.  Reading them takes about a millisecond, so
the time to start a thread is negligible.
"""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A kernel to time.

    rate: name of the measured rate.
    amount: operations or bytes of a run.
    run: runs the kernel.
    """

    rate: str
    amount: float
    run: Callable[[], None]


def cpu_name() -> str:
    """The manufacturer's name of this CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # the system is not Linux
        pass
    return platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measured rates of a machine.

    machine: the rates.
    spread: median over kernels of the ratio of a kernel's median time to its best time.
    """

    machine: Machine
    spread: float


def measure(target: Target, threads: int, rounds: int = ROUNDS) -> Measurement:
    """The rates of the host with one thread and with `threads`."""
    counts = sorted({1, threads})
    memory = aligned_bytes(_dram_bytes(target)).view(np.float32)
    memory[:] = 1.0  # writing makes the system provide the pages
    rates: list[Rates] = []
    spreads: list[float] = []
    for count in counts:
        trials = [*_trials(target, count, memory)]
        taken: dict[str, list[float]] = {t.rate: [] for t in trials}
        for _ in range(rounds):
            for t in trials:
                start = time.perf_counter()
                t.run()
                taken[t.rate].append((time.perf_counter() - start) / t.amount)
        spreads += [statistics.median(times) / min(times) for times in taken.values()]
        best = {rate: min(times) for rate, times in taken.items()}
        join = max(best.pop("fork_join") - best.pop("no_fork"), 0.0) if count > 1 else 0.0
        best = {k: v for k, v in best.items() if k not in ("fork_join", "no_fork")}
        measured = {k: 1 / v for k, v in best.items()}
        if rates:
            measured = raised(measured, rates[0], count)
        rates.append(Rates(count, **measured, fork_join=join))
    held = _held(target, memory, rates[0])
    machine = Machine(cpu_name(), target.vector_bits // 8, held, tuple(rates))
    return Measurement(machine, statistics.median(spreads))


def _held(target: Target, memory: np.ndarray, one: Rates) -> int:
    """The effective size of L3 in bytes: the largest tested size whose read rate is nearer to the
    rate of L3 than to the rate of memory.  At most the size in the target's description.
    """
    middle = math.sqrt(one.l3 * one.dram)
    held = _sizes(target, 1)["l3"]
    while (size := 2 * held) <= min(memory.nbytes // 2, target.model.l3_bytes):
        trial = _reading("l3", target, 1, memory, size, 2)
        seconds = []
        for _ in range(_HELD_ROUNDS):
            start = time.perf_counter()
            trial.run()
            seconds.append(time.perf_counter() - start)
        if trial.amount / min(seconds) < middle:
            return held
        held = size
    return target.model.l3_bytes if size > target.model.l3_bytes else held


def raised(found: Mapping[str, float], one: Rates, threads: int) -> dict[str, float]:
    """The rates `found` for several threads, raised to lower bounds that follow from the rates of
    `one` thread.  Other load may have slowed the measurement.

    A rate of resources that each core has for itself is at least 0.9 times the sum over the cores.
    A rate that all cores share is at least the rate of one core.
    """
    least = {k: getattr(one, k) * (0.9 * threads if k in _OWN else 1) for k in found}
    return {k: max(v, least[k]) for k, v in found.items()}


@dataclass(frozen=True, slots=True)
class CoreRate:
    """Float32 operations per second of one logical CPU, over many short runs.  A mean well below
    the best means that something else runs there.

    cpu: number of the CPU.
    best: the best run.
    mean: the mean of all runs.
    """

    cpu: int
    best: float
    mean: float


def core_rates(target: Target, rounds: int = 50) -> list[CoreRate]:
    """The current rate of each CPU that this process may use.  The thread is pinned to one CPU
    after the other; the result is empty if threads can't be pinned.
    """
    if not hasattr(os, "sched_setaffinity"):
        return []
    peak = _peak(target, 1)
    allowed = os.sched_getaffinity(0)
    rates: list[CoreRate] = []
    try:
        for cpu in sorted(allowed):
            os.sched_setaffinity(0, {cpu})
            seconds: list[float] = []
            for _ in range(rounds):
                start = time.perf_counter()
                peak.run()
                seconds.append(time.perf_counter() - start)
            mean = sum(seconds) / rounds
            rates.append(CoreRate(cpu, peak.amount / min(seconds), peak.amount / mean))
    finally:
        os.sched_setaffinity(0, allowed)
    return rates


def _trials(target: Target, threads: int, memory: np.ndarray) -> Sequence[_Trial]:
    lanes = target.vector_bits // 32
    one = np.ones(4, np.float32)
    trials = []
    for name, extent in (("fork_join", threads), ("no_fork", 1)):
        f = _build(_fork_text(lanes, extent), target, threads)
        trials.append(_Trial(name, _FORKS, f.bind(one * 0.5, np.zeros(extent * lanes, np.float32))))
    trials.append(_peak(target, threads))
    for level, size in _sizes(target, threads).items():
        passes = {"l3": _L3_PASSES, "dram": 1}.get(level, threads * _OWN_BYTES // size)
        names = ("l1_load", "l1_store") if level == "l1" else (level, f"{level}_write")
        trials.append(_reading(names[0], target, threads, memory, size, passes))
        steps, array = _part(target, threads, memory, size)
        write = _build(_write_text(lanes, threads, steps, passes), target, threads)
        trials.append(_Trial(names[1], float(passes * array.nbytes), write.bind(one, array)))
    return trials


def _reading(
    rate: str, target: Target, threads: int, memory: np.ndarray, size: int, passes: int
) -> _Trial:
    """A trial that reads about `size` bytes `passes` times."""
    lanes = target.vector_bits // 32
    steps, array = _part(target, threads, memory, size)
    sums = aligned_bytes(threads * lanes * 4).view(np.float32)
    read = _build(_read_text(lanes, threads, steps, passes), target, threads)
    return _Trial(rate, float(passes * array.nbytes), read.bind(array, sums))


def _part(target: Target, threads: int, memory: np.ndarray, size: int) -> tuple[int, np.ndarray]:
    """The memory that `threads` threads read: about `size` bytes at the beginning of `memory`.  The
    first result is the number of iterations in which a thread reads its part, the second one is the
    memory.
    """
    unit = 8 * target.vector_bits // 32  # elements per iteration
    steps = max(size // 4 // threads // unit, 1)
    return steps, memory[: steps * unit * threads]


def _peak(target: Target, threads: int) -> _Trial:
    lanes = target.vector_bits // 32
    sums = aligned_bytes(threads * lanes * 4).view(np.float32)
    repeats = 400_000  # a millisecond, as for `_OWN_BYTES`
    f = _build(_fma_text(lanes, threads, repeats), target, threads)
    flops = 2.0 * 12 * lanes * threads * repeats
    return _Trial("flops", flops, f.bind(np.full(4, 0.5, np.float32), sums))


def _sizes(target: Target, threads: int) -> dict[str, int]:
    """For each memory level, a number of bytes, of all threads together, that fits this level but
    no smaller one.

    Other programs may occupy most of a shared L3.  So L3 gets the geometric mean of the sizes of L2
    and L3, far from both.
    """
    l2 = target.model.l2_bytes * threads
    l3 = max(min(math.isqrt(l2 * target.model.l3_bytes), _LARGEST // 4), 2 * l2)
    return {
        "l1": target.model.l1_bytes // 2 * threads,
        "l2": target.model.l2_bytes // 2 * threads,
        "l3": l3,
        "dram": _dram_bytes(target),
    }


def _dram_bytes(target: Target) -> int:
    return min(4 * target.model.l3_bytes, _LARGEST)


def _build(text: str, target: Target, threads: int) -> NativeFunction:
    func = parse_func(text)
    kernel = emit(func, target)
    code = compile_object(kernel.text, target)
    return NativeFunction(kernel, code, Arguments(func), target, threads)


def _fma_text(lanes: int, threads: int, repeats: int) -> str:
    """A kernel of twelve chains of multiply-adds, more than any CPU needs to hide latency."""
    slots = [f"acc[ramp({i * lanes}, 1, {lanes})]" for i in range(12)]
    first, second = (f"broadcast(x[{i}], {lanes})" for i in (0, 1))
    total = " + ".join(slots)
    return "\n".join(
        [
            f"def peak(x: f32[4], y: f32[{threads * lanes}]) -> y:",
            f"    for t in parallel({threads}):",
            f"        alloc acc: f32[{12 * lanes}] register",
            *(
                f"        {s} = broadcast({0.1 * i + 0.1:.1f}, {lanes})"
                for i, s in enumerate(slots)
            ),
            f"        for k in range({repeats}):",
            *(f"            {s} = {s} * {first} + {second}" for s in slots),
            f"        y[ramp(t * {lanes}, 1, {lanes})] = {total}",
            "",
        ]
    )


def _read_text(lanes: int, threads: int, steps: int, again: int) -> str:
    slots = [f"acc[ramp({i * lanes}, 1, {lanes})]" for i in range(8)]
    unit = 8 * lanes
    position = f"t * {steps * unit} + k * {unit}"
    return "\n".join(
        [
            f"def read(x: f32[{threads * steps * unit}], y: f32[{threads * lanes}]) -> y:",
            f"    for t in parallel({threads}):",
            f"        alloc acc: f32[{unit}] register",
            *(f"        {s} = broadcast(0.0, {lanes})" for s in slots),
            f"        for r in range({again}):",
            f"            for k in range({steps}):",
            *(
                f"                {s} = {s} + x[ramp({position} + {i * lanes}, 1, {lanes})]"
                for i, s in enumerate(slots)
            ),
            f"        y[ramp(t * {lanes}, 1, {lanes})] = {' + '.join(slots)}",
            "",
        ]
    )


def _write_text(lanes: int, threads: int, steps: int, again: int) -> str:
    unit = 8 * lanes
    position = f"t * {steps * unit} + k * {unit}"
    return "\n".join(
        [
            f"def write(x: f32[4], y: f32[{threads * steps * unit}]) -> y:",
            f"    for t in parallel({threads}):",
            f"        for r in range({again}):",
            f"            for k in range({steps}):",
            *(
                f"                y[ramp({position} + {i * lanes}, 1, {lanes})] = "
                f"broadcast(x[{i % 4}], {lanes})"
                for i in range(8)
            ),
            "",
        ]
    )


def _fork_text(lanes: int, extent: int) -> str:
    """Parallel loops whose iterations take a few microseconds, so that every thread runs one."""
    slots = [f"acc[ramp({i * lanes}, 1, {lanes})]" for i in range(8)]
    return "\n".join(
        [
            f"def fork(x: f32[4], y: f32[{lanes * extent}]) -> y:",
            f"    for r in range({_FORKS}):",
            f"        for t in parallel({extent}):",
            f"            alloc acc: f32[{8 * lanes}] register",
            *(f"            {s} = broadcast(0.0, {lanes})" for s in slots),
            "            for k in range(1000):",
            *(
                f"                {s} = {s} * broadcast(x[0], {lanes}) + broadcast(1.0, {lanes})"
                for s in slots
            ),
            f"            y[ramp(t * {lanes}, 1, {lanes})] = {' + '.join(slots)}",
            "",
        ]
    )
