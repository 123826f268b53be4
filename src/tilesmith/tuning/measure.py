"""Measuring: other processes build candidates, several at once, and then run them one by one.

A crash of the process that builds or runs a candidate costs only that candidate: the process is
started again, and the trial records the failure.  The running candidate has its own processors.
Other candidates are built meanwhile if there are more processors than the running one needs.  A
lock keeps all other tuners of this machine from measuring.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from tilesmith.codegen.kernel import KernelCode, without_head
from tilesmith.ir.target import Target
from tilesmith.search_space.family import Family
from tilesmith.search_space.records import Key, Trial, trial
from tilesmith.search_space.space import Candidate, Space
from tilesmith.support.cgroup import usable_memory
from tilesmith.support.child import Child, ChildError, Children
from tilesmith.support.errors import TilesmithError
from tilesmith.support.logs import logger

from .jobs import Answer, Argument, MeasureJob, MeasurePlan, Runnable, answer_of, save_arrays
from .processors import shares

_log = logger("tuning")

LOCK_SECONDS, LOCK_POLL = 2.0, 2e-3
"""Longest wait for the lock, and the wait between attempts, in seconds.  Measurements hold the lock
for fractions of a second.
"""
BUILD_SECONDS = 30.0
"""Longest time that a candidate may take to build."""
RUN_SECONDS = 10.0
"""Longest time for checking and timing a candidate, without the time to load it."""
MEMORY_SHARE = 0.5
"""Address space of each process that builds or runs candidates, as a fraction of the memory that
this machine, or the control group, grants.
"""
LEAST_MEMORY_BYTES = 2 << 30
"""Lower bound on a process's address space: the interpreter and LLVM alone take some hundred
megabytes.
"""
UNKNOWN_MEMORY_BYTES = 16 << 30
"""Memory that is assumed where the system doesn't report it."""

Arrays = Sequence[np.ndarray]


def candidate_memory() -> int:
    """Bytes of address space of each process that builds or runs candidates on this machine."""
    share = MEMORY_SHARE * (usable_memory() or UNKNOWN_MEMORY_BYTES)
    return max(int(share), LEAST_MEMORY_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A workload to tune.

    key: key of its trials.
    label: the workload in words.
    space: its candidates.
    build: makes the request to a builder for a candidate.
    arguments: the parameters of a candidate's kernel, inputs and outputs.
    reference: logical inputs, and the expected outputs.  Where rounding steps may give other
        results, the lowest and the highest ones follow (`driver.references`).
    bounds: for each output, the allowed error relative to its largest magnitude.
    seconds: time of the workload's kernels in the whole program before tuning.
    family: the properties by which similar workloads are found; None if none are looked up.
    slack: fraction of `seconds` that tuning may be expected to save.
    """

    key: Key
    label: str
    space: Space
    build: Callable[[Candidate], bytes]
    arguments: Callable[[Candidate], tuple[tuple[Argument, ...], tuple[Argument, ...]]]
    reference: Callable[[], tuple[Arrays, Sequence[Arrays]]]
    bounds: tuple[float, ...]
    seconds: float = 0.0
    family: Family | None = None
    slack: float = 0.3


class Measurer(Protocol):
    """A maker of trials of candidates."""

    def measure(
        self, task: Task, candidates: Sequence[Candidate], seconds: float
    ) -> Iterator[Trial]:
        """Yield the trial of each candidate as soon as it is complete.

        seconds: approximate time for which each candidate runs.
        """
        ...


class BaselineMeasurer(ABC):
    """A measurer that runs each candidate alternately with the analytic schedule of its task.

    threads: threads of the kernels.
    flush_bytes: bytes that are written before each run, so that it starts with cold caches.
    device: the target of kernels that run on a device; None: on the CPU.
    """

    threads: int
    flush_bytes: int
    device: Target | None = None

    def measure(
        self, task: Task, candidates: Sequence[Candidate], seconds: float
    ) -> Iterator[Trial]:
        """Yield the trial of each candidate as soon as it is complete.

        seconds: approximate time for which each candidate runs.
        """
        baseline = self._baseline_of(task)
        if isinstance(baseline, Trial):
            yield from incomparable(task, candidates, baseline)
            return
        plan = MeasurePlan(
            self.threads,
            task.bounds,
            seconds,
            flush_bytes=self.flush_bytes,
            device=self.device.to_json() if self.device is not None else None,
        )
        yield from self._beside(baseline, task, candidates, plan)

    @abstractmethod
    def _baseline_of(self, task: Task) -> Runnable | Trial:
        """The built kernel of a task's analytic schedule; a failed trial if it can't be built."""

    @abstractmethod
    def _beside(
        self, baseline: Runnable, task: Task, candidates: Sequence[Candidate], plan: MeasurePlan
    ) -> Iterator[Trial]:
        """The trials of `measure`.  Each candidate runs alternately with `baseline`, a kernel that
        is already built.
        """


@dataclass
class LocalMeasurer(BaselineMeasurer):
    """Measures on this machine.  A context manager.

    builder: a module whose main program answers `Task.build` requests as `driver.answer` does.
    threads: threads of the kernels; the process that runs them is bound to as many cores.
    jobs: processes that build at the same time.
    memory_bytes: address space of each process.
    run_seconds, build_seconds: time limits per candidate.
    runner: a module whose main program answers a `MeasureJob`.
    flush_bytes: bytes that are written before each run, so that it starts with cold caches.
    device: the target of kernels that run on a device; None: on the CPU.  The process that runs
        kernels on a device has no limits on cores and memory, since the driver has its own threads
        and memory.
    """

    builder: str
    threads: int
    jobs: int
    memory_bytes: int = field(default_factory=candidate_memory)
    run_seconds: float = RUN_SECONDS
    build_seconds: float = BUILD_SECONDS
    runner: str = "tilesmith.tuning.runner"
    flush_bytes: int = 0
    device: Target | None = None
    _arrays: dict[Key, Path] = field(default_factory=dict)
    _baseline: dict[Key, Runnable | Trial] = field(default_factory=dict)

    def __enter__(self) -> LocalMeasurer:
        self._folder = tempfile.TemporaryDirectory(prefix="tilesmith-tune-")
        self._shares = shares(self.threads)
        cores, limit = self._shares.runner, self.memory_bytes
        if self.device is None:
            self._runner = Child(self.runner, processors=cores, memory_bytes=limit)
        else:
            self._runner = Child(self.runner)
        cores = self._shares.builders
        self._builders = Children(self.builder, self.jobs, processors=cores, memory_bytes=limit)
        self._builders.__enter__()
        self._pool = ThreadPoolExecutor(self.jobs)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._builders.kill()  # the builds in progress are not needed
        self._pool.shutdown(wait=True)
        self._builders.end()
        self._runner.end()
        self._folder.cleanup()

    def _beside(
        self, baseline: Runnable, task: Task, candidates: Sequence[Candidate], plan: MeasurePlan
    ) -> Iterator[Trial]:
        arrays = self._arrays_of(task)
        builds = [self._pool.submit(self._build, task, c) for c in candidates]
        try:
            if not self._shares.builders:
                wait(builds)
            for candidate, build in zip(candidates, builds, strict=True):
                kernel = build.result()
                if isinstance(kernel, Trial):
                    yield kernel
                    continue
                job = MeasureJob(arrays, baseline, kernel, plan)
                answer = run_alone(self._runner, job, self.run_seconds + plan.seconds)
                yield trial_of(task, candidate, answer)
        finally:  # when the caller takes no more trials, builds are pointless
            for build in builds:
                build.cancel()

    def _baseline_of(self, task: Task) -> Runnable | Trial:
        if task.key not in self._baseline:
            self._baseline[task.key] = self._build(task, task.space.baseline)
        return self._baseline[task.key]

    def _arrays_of(self, task: Task) -> Path:
        if task.key not in self._arrays:
            path = Path(self._folder.name) / f"{task.key.workload}.npz"
            save_arrays(path, *task.reference())
            self._arrays[task.key] = path
        return self._arrays[task.key]

    def _build(self, task: Task, candidate: Candidate) -> Runnable | Trial:
        request = request_of(task, candidate)
        if isinstance(request, Trial):
            return request
        return built(task, candidate, lambda: self._builders.call(request, self.build_seconds))


def request_of(task: Task, candidate: Candidate) -> bytes | Trial:
    """The request to a builder, or the trial of a candidate that can't be lowered."""
    try:
        return task.build(candidate)
    except TilesmithError as e:  # each step is legal, but they can't be lowered together
        return trial_of(task, candidate, Answer("failed", text=str(e)))


def built(task: Task, candidate: Candidate, reply: Callable[[], bytes]) -> Runnable | Trial:
    """The kernel in a builder's `reply` to `Task.build`, or the trial of a failure."""
    try:
        _, code = without_head(reply())
    except ChildError as e:
        return trial_of(task, candidate, Answer(e.cause, text=f"while building: {e}"))
    return Runnable.of(KernelCode.from_bytes(code), *task.arguments(candidate))


def run_alone(runner: Child, job: MeasureJob, seconds: float) -> Answer:
    """The result of a job within `seconds`, while this machine measures nothing else."""
    try:
        with machine_lock():
            return answer_of(runner.call(job.to_bytes(), seconds))
    except ChildError as e:
        return Answer(e.cause, text=str(e))


def trial_of(task: Task, candidate: Candidate, answer: Answer) -> Trial:
    """The trial of a candidate that was measured, or failed."""
    times = answer.seconds, answer.baseline
    return trial(task.key, candidate, answer.outcome, task.label, answer.text, *times)


def incomparable(task: Task, candidates: Sequence[Candidate], baseline: Trial) -> Iterator[Trial]:
    """The trials of candidates where the analytic schedule failed, so that there is no baseline."""
    cause = f"the analytic schedule: {baseline.cause}"
    return (trial(task.key, c, "failed", task.label, cause) for c in candidates)


@contextmanager
def machine_lock(
    path: Path | None = None, shared: bool = False, seconds: float = LOCK_SECONDS
) -> Iterator[None]:
    """Hold the exclusive right to measure on this machine.  The end of the process also releases
    it.

    path: the lock; by default one for each user.
    shared: hold a shared right instead, for work that would disturb measurements.  Several
        processes can hold it, while no process measures.
    seconds: the longest wait.  After it a warning says that others measure too, and the work
        continues.
    """
    handle = _open_lock(path)
    try:
        end = time.monotonic() + seconds
        while not (taken := _taken(handle, shared)) and time.monotonic() < end:
            time.sleep(LOCK_POLL)
        if not taken:
            _log.warning(
                "another process has measured on this machine for %g s; times are taken beside it "
                "and scatter more", seconds,
            )  # fmt: skip
        yield
    finally:
        os.close(handle)


def _taken(handle: int, shared: bool) -> bool:
    """Take the lock if no wait is needed.  Returns whether it was taken."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path | None = None) -> bool:
    """Whether a process measures on this machine (or builds, in a fleet) at this moment."""
    handle = _open_lock(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def _open_lock(path: Path | None) -> int:
    path = path or Path(tempfile.gettempdir()) / f"tilesmith-measuring-{os.getuid()}.lock"
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    # another user owns the lock, in a folder where only the owner may open it with O_CREAT
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
