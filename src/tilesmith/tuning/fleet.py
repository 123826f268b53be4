"""Measuring on the nodes of a Ray cluster: candidates become trials.

Ray places the work, moves the bytes and notices nodes that die.  Builders are Ray tasks on all
nodes.  Each node has one station, an actor, which measures like `LocalMeasurer`.  Only stations
with the requested native target get candidates, since a time is valid for one kind of machine.
Trials come back to this process, the only one that writes records.

A node that disconnects loses its current work.  Its candidates are measured on another node, up to
`ATTEMPTS` times.  After that they are `lost`, which does not count as a result.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.codegen.targets import host
from tilesmith.ir.target import Target
from tilesmith.runtime.remote.device import RemoteDevice
from tilesmith.search_space.records import Key, Trial, trial
from tilesmith.search_space.space import Candidate
from tilesmith.support.child import decode
from tilesmith.support.errors import UsageError
from tilesmith.support.logs import logger

from .devices import DeviceMeasurer
from .jobs import Answer, MeasureJob, MeasurePlan, Runnable, answer_of, save_arrays
from .measure import (
    BUILD_SECONDS,
    RUN_SECONDS,
    BaselineMeasurer,
    LocalMeasurer,
    Task,
    built,
    request_of,
    trial_of,
)
from .station import About, Station, build

ATTEMPTS = 3
"""Attempts to measure a candidate, or to start a node's station, if nodes keep disconnecting."""
FLUSHED = 2
"""Bytes to read to flush all caches, as a multiple of the size of the last cache."""
_POLL = 5.0
"""Seconds between queries for the existing nodes."""

_log = logger("tuning")


@dataclass(eq=False)
class _Node:
    """A node with a station; `about` is None until it has answered."""

    id: str
    station: Any
    about: About | None = None
    busy: bool = False


@dataclass(eq=False)
class _Job:
    """A candidate in progress, the request to measure it, and the attempts so far."""

    candidate: Candidate
    request: bytes = b""
    attempts: int = 0


@dataclass
class RayMeasurer(BaselineMeasurer):
    """Measures on a Ray cluster.  A context manager: it leaves the clusters that it joined, but not
    a connection to Ray that existed before.

    address: `ray://host:port`.  None means the cluster that RAY_ADDRESS names or that runs on this
        machine, else a new one of this machine alone.
    machine: the text of the native target of the nodes that may measure.
    builder, threads, run_seconds, build_seconds, runner, jobs, flush_bytes: as in `LocalMeasurer`.

    Raises UsageError if Ray is not installed, no cluster is reachable, a node has another version
    of Tilesmith, or no node has the requested target.
    """

    address: str | None
    builder: str
    threads: int
    machine: str
    run_seconds: float = RUN_SECONDS
    build_seconds: float = BUILD_SECONDS
    runner: str = "tilesmith.tuning.runner"
    jobs: int = 1
    flush_bytes: int = 0
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _starting: dict[Any, _Node] = field(default_factory=dict)
    _losses: dict[str, int] = field(default_factory=dict)
    _unfit: dict[str, str] = field(default_factory=dict)
    _arrays: dict[Key, Any] = field(default_factory=dict)
    _baseline: dict[Key, Runnable | Trial] = field(default_factory=dict)

    def __enter__(self) -> RayMeasurer:
        self._ray = ray = _import_ray()
        self._joined = ray.is_initialized()
        if not self._joined:
            _join(ray, self.address)
        try:
            self.jobs = max(int(ray.cluster_resources().get("CPU", 1)), 1)
            spread = {"num_cpus": 1, "max_retries": ATTEMPTS - 1, "scheduling_strategy": "SPREAD"}
            self._build_task = ray.remote(**spread)(build)
            self._station = ray.remote(num_cpus=0)(Station)
            self._look()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _beside(
        self, baseline: Runnable, task: Task, candidates: Sequence[Candidate], plan: MeasurePlan
    ) -> Iterator[Trial]:
        arrays, name = self._arrays_of(task), Path(f"{task.key.workload}.npz")
        requests = [(_Job(c), request_of(task, c)) for c in candidates]
        yield from (r for _, r in requests if isinstance(r, Trial))
        building = {self._build(r): job for job, r in requests if isinstance(r, bytes)}
        ready: list[_Job] = []
        running: dict[Any, tuple[_Job, _Node]] = {}
        try:
            while building or ready or running:
                for node in self._idle() if ready else ():
                    if ready:
                        job = ready.pop(0)
                        limit = self.run_seconds + plan.seconds
                        running[node.station.measure.remote(arrays, job.request, limit)] = job, node
                        node.busy = True
                for ref in self._wait([*building, *running]):
                    if ref in building:
                        job = building.pop(ref)
                        kernel = self._built(task, job.candidate, ref)
                        if isinstance(kernel, Trial):
                            yield kernel
                        else:
                            job.request = MeasureJob(name, baseline, kernel, plan).to_bytes()
                            ready.append(job)
                        continue
                    job, node = running.pop(ref)
                    node.busy = False
                    answer = self._answer(ref, node)
                    job.attempts += answer is None
                    if answer is not None:
                        yield trial_of(task, job.candidate, answer)
                    elif job.attempts < ATTEMPTS:
                        ready.insert(0, job)
                    else:
                        cause = f"{ATTEMPTS} nodes went away while they measured it"
                        yield trial(task.key, job.candidate, "lost", task.label, cause)
        finally:  # when the caller takes no more trials, builds are pointless
            for ref in building:
                self._ray.cancel(ref)
            for _, node in running.values():
                node.busy = False  # the node's station finishes this candidate first

    # --- nodes

    def _look(self) -> None:
        """Start a station on each node that has none."""
        affinity = importlib.import_module("ray.util.scheduling_strategies")
        for n in self._ray.nodes():
            name = n["NodeID"]
            if not n["Alive"] or name in self._nodes or name in self._unfit:
                continue
            if self._losses.get(name, 0) >= ATTEMPTS:
                continue
            here = affinity.NodeAffinitySchedulingStrategy(name, soft=False)
            options = self._station.options(scheduling_strategy=here)
            node = _Node(name, options.remote(self.runner))
            self._nodes[name] = node
            self._starting[node.station.about.remote()] = node

    def _started(self, ref: Any) -> None:
        """Take a new station's description of its node.  Raises UsageError for another version."""
        node = self._starting.pop(ref)
        reply = self._get(ref, node)
        if reply is None:
            return
        about, ours = About(**reply), About.this_machine()
        if about.version != ours.version:
            raise UsageError(
                f"node {about.name} of the fleet has Tilesmith {about.version}, this is "
                f"{ours.version}: install the same version everywhere"
            )
        if about.target == self.machine and about.cores >= self.threads:
            node.about = about
            return
        self._unfit[node.id] = f"{about.name}: {about.cpu}, {about.cores} cores"
        del self._nodes[node.id]
        self._ray.kill(node.station)

    def _idle(self) -> list[_Node]:
        """The nodes that can take a candidate.  Raises UsageError if there can be none."""
        if not self._nodes:
            self._look()
        if not self._nodes:
            others = "; ".join(self._unfit.values()) or "none"
            raise UsageError(
                f"no node of the fleet is left that can measure for this machine with "
                f"{self.threads} threads: it takes nodes with the same CPU features and caches.  "
                f"Other nodes: {others}.  What was measured is in the records"
            )
        return [n for n in self._nodes.values() if n.about is not None and not n.busy]

    def _lose(self, node: _Node) -> None:
        """Forget a station that disconnected.  If the node is alive, it gets another station."""
        self._losses[node.id] = self._losses.get(node.id, 0) + 1
        _log.warning("a node of the fleet went away: %s", node.about.name if node.about else "")
        self._nodes.pop(node.id, None)
        self._ray.kill(node.station)  # the worker may be alive but unreachable

    def _wait(self, refs: Sequence[Any]) -> list[Any]:
        """The finished ones of `refs`.  Waits briefly until at least one is."""
        waited = [*refs, *self._starting]
        done, _ = self._ray.wait(waited, num_returns=1, timeout=_POLL)
        if not done:
            self._look()
        for ref in done:
            if ref in self._starting:
                self._started(ref)
        return [ref for ref in done if ref in refs]

    def _get(self, ref: Any, node: _Node | None) -> Any:
        """The result of a call; None if its node (if any) disconnected."""
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except exceptions.RayTaskError:  # an error of our own code: a bug or a full disk
            raise
        except exceptions.RayError:
            if node is not None:
                self._lose(node)
            return None

    # --- builds and answers

    def _build(self, request: bytes) -> Any:
        return self._build_task.remote(self.builder, request, self.build_seconds)

    def _built(self, task: Task, candidate: Candidate, ref: Any) -> Runnable | Trial:
        reply = self._get(ref, None)
        if reply is None:  # Ray has already tried the build on other nodes
            cause = f"{ATTEMPTS} nodes went away while they built it"
            return trial(task.key, candidate, "lost", task.label, cause)
        return built(task, candidate, lambda: decode(reply))

    def _answer(self, ref: Any, node: _Node) -> Answer | None:
        """The answer of a station; None if it disconnected."""
        reply = self._get(ref, node)
        return None if reply is None else answer_of(reply)

    def _baseline_of(self, task: Task) -> Runnable | Trial:
        built = self._baseline.get(task.key)
        if built is None or (isinstance(built, Trial) and built.status == "lost"):
            built = request_of(task, start := task.space.baseline)
            if isinstance(built, bytes):
                built = self._built(task, start, self._build(built))
            self._baseline[task.key] = built
        return built

    def _arrays_of(self, task: Task) -> Any:
        """The file of a task's arrays, in Ray's object store."""
        if task.key not in self._arrays:
            file = io.BytesIO()
            save_arrays(file, *task.reference())
            self._arrays[task.key] = self._ray.put(np.frombuffer(file.getvalue(), np.uint8))
        return self._arrays[task.key]

    def _leave(self) -> None:
        ends = [node.station.end.remote() for node in self._nodes.values()]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_POLL)
        for node in self._nodes.values():
            self._ray.kill(node.station)
        self._nodes.clear()
        self._starting.clear()
        self._arrays.clear()
        if not self._joined:
            self._ray.shutdown()


def open_measurer(
    workers: str | None,
    builder: str,
    threads: int,
    jobs: int,
    flush: bool = False,
    device: Target | None = None,
    devices: Sequence[RemoteDevice] = (),
) -> LocalMeasurer | RayMeasurer:
    """The measurer that `workers` and `devices` select, as in `TuneOptions`.

    `jobs`: processes that build on this machine.  `flush`: whether to empty the caches before each
    run.  `device`: the target of kernels that run on a device.  `devices`: other machines.
    """
    if devices:
        flush_bytes = FLUSHED * devices[0].target.model.l3_bytes if flush else 0
        return DeviceMeasurer(builder, threads, jobs, flush_bytes=flush_bytes, devices=devices)
    flush_bytes = FLUSHED * host().model.l3_bytes if flush else 0
    if workers is None:
        return LocalMeasurer(builder, threads, jobs, flush_bytes=flush_bytes, device=device)
    address = None if workers == "ray" else workers
    return RayMeasurer(address, builder, threads, host().text, flush_bytes=flush_bytes)


def _join(ray: Any, address: str | None) -> None:
    """Connect this process to the cluster, or start one on this machine (None)."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends no usage statistics
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    for left in reversed(range(ATTEMPTS)):
        try:
            ray.init(address, include_dashboard=None if address else False, **quiet)
            return
        except (ConnectionError, ImportError, RuntimeError, TimeoutError, ValueError) as e:
            ray.shutdown()  # the connection is only half established
            # A cluster forks a server per client while its threads run.  Such a fork may crash.
            if left and isinstance(e, ConnectionAbortedError):
                continue
            where = address or "this machine"
            raise UsageError(f"there is no Ray cluster at {where}: {e}") from e


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as e:
        raise UsageError(
            "a fleet needs Ray, which is not installed: pip install 'tilesmith[fleet]'"
        ) from e
