"""Measuring on other machines, whose agents run the candidates: candidates become trials.

This process builds, for the target of the devices, and writes the records.  A device measures like
`LocalMeasurer`, under its machine's lock and in a process that may die.  Devices that go away and
come back are handled by a `Pool`: their candidates go to another device.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from threading import Event
from typing import Any

from tilesmith.runtime.remote.device import MARGIN_SECONDS, RemoteDevice, connected
from tilesmith.runtime.remote.frames import Kind
from tilesmith.runtime.remote.link import AbsentError, LostError
from tilesmith.runtime.remote.pool import Job, Lease, Pool
from tilesmith.search_space.records import Key, Trial, trial
from tilesmith.search_space.space import Candidate
from tilesmith.support.child import Children
from tilesmith.support.errors import DeviceError, UnavailableError, UsageError
from tilesmith.support.logs import logger

from .jobs import Answer, MeasurePlan, Runnable, answer_of, save_arrays
from .measure import LocalMeasurer, Task, trial_of
from .static import measured_statically

ATTEMPTS = 3
"""A candidate counts as lost after this number of devices went away while they measured it."""
AWAY_SECONDS = 60.0
"""Longest wait for a device that went away."""
PING_SECONDS = 1.0
"""Seconds between attempts to reach a device that went away."""
_POLL = 0.5

_log = logger("tuning")


def devices_of(addresses: str, threads: int) -> tuple[RemoteDevice, ...]:
    """The devices of the first one's kind that have the cores for so many threads: a time is valid
    for one kind of machine.

    addresses: addresses of agents, separated by commas.

    Raises UsageError if there is none, DeviceError if an agent can't be reached.
    """
    named = [connected(a.strip()) for a in addresses.split(",")]
    first = named[0].target
    fit = [d for d in named if d.target.text == first.text and d.threads >= threads]
    for d in named:
        if d not in fit:
            _log.warning("%r is of another kind than the first device: it does not measure", d)
    if not fit:
        raise UsageError(
            f"devices: expected a machine {first.cpu!r} with {threads} cores, found "
            f"{', '.join(map(repr, named))}"
        )
    return tuple(fit)


@dataclass
class DeviceMeasurer(LocalMeasurer):
    """Measures on devices.  A context manager.

    devices: devices of one kind.

    Other fields are those of `LocalMeasurer`, and `memory_bytes` is for builders only.
    """

    devices: Sequence[RemoteDevice] = ()
    _objects: dict[Key, bytes] = field(default_factory=dict)

    def __enter__(self) -> DeviceMeasurer:
        self._builders = Children(self.builder, self.jobs, memory_bytes=self.memory_bytes)
        self._builders.__enter__()
        self._pool = ThreadPoolExecutor(self.jobs)
        self._asking = ThreadPoolExecutor(2 * len(self.devices))
        self._places: Pool[RemoteDevice, Measuring] = Pool(
            self.run_seconds + 2 * MARGIN_SECONDS, ATTEMPTS
        )
        self._returning: dict[Future[bool], RemoteDevice] = {}
        self._ended = Event()
        for device in self.devices:
            self._places.join(device, device.target.text)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._asking.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._builders.kill()  # the builds in progress are not needed
        self._pool.shutdown(wait=True)
        self._builders.end()

    def _beside(
        self, baseline: Runnable, task: Task, candidates: Sequence[Candidate], plan: MeasurePlan
    ) -> Iterator[Trial]:
        building = {self._pool.submit(self._build, task, c): c for c in candidates}
        running: dict[Future[Answer], Lease[RemoteDevice, Measuring]] = {}
        places, kind = self._places, self.devices[0].target.text
        arrays = self._arrays_bytes(task)
        try:
            while building or running or places.waiting:
                for lease in places.grants():
                    asked = self._asking.submit(
                        _measured, lease.device, arrays, baseline, lease.job.work.kernel, plan,
                        self.run_seconds + plan.seconds,
                    )  # fmt: skip
                    running[asked] = lease
                for device in places.expire():
                    self._lose(device)
                awaited: list[Future[Any]] = [*building, *running, *self._returning]
                done, _ = wait(awaited, _POLL, FIRST_COMPLETED)
                for back in [f for f in self._returning if f in done]:
                    self._returned(self._returning.pop(back), back.result())
                for build in [f for f in building if f in done]:
                    candidate, kernel = building.pop(build), build.result()
                    if isinstance(kernel, Trial):
                        yield kernel
                    else:
                        places.submit(Job(Measuring(candidate, kernel), kind, task.key.workload))
                for asked in [f for f in running if f in done]:
                    lease = running.pop(asked)
                    try:
                        answer = asked.result()
                    except LostError as e:
                        _log.warning("%s", e)
                        if not lease.is_over:  # else `expire` has lost it; it may be back by now
                            self._lose(lease.device)
                        continue
                    if places.done(lease):
                        yield trial_of(task, lease.job.work.candidate, answer)
                while places.lost:
                    cause = f"{ATTEMPTS} devices went away while they measured it"
                    candidate = places.lost.pop().work.candidate
                    yield trial(task.key, candidate, "lost", task.label, cause)
        finally:  # when the caller takes no more trials, builds are pointless
            for build in building:
                build.cancel()
            for lease in running.values():
                places.done(lease)
            places.clear()

    def _lose(self, device: RemoteDevice) -> None:
        """A device went away.  A thread waits for its return."""
        self._places.leave(device)
        self._returning[self._asking.submit(_returns, device, self._ended)] = device

    def _returned(self, device: RemoteDevice, is_there: bool) -> None:
        """Use a device that came back.  Raises UsageError if it did not, and no other is left."""
        if is_there:
            self._places.join(device, device.target.text)
        elif not self._places.devices and not self._returning:
            raise UsageError(
                f"no device has answered for {AWAY_SECONDS:g} s: "
                f"{', '.join(d.address for d in self.devices)}; what was measured is in the records"
            )

    def _arrays_bytes(self, task: Task) -> bytes:
        """The file of a task's arrays."""
        if task.key not in self._objects:
            file = io.BytesIO()
            save_arrays(file, *task.reference())
            self._objects[task.key] = file.getvalue()
        return self._objects[task.key]


@dataclass(frozen=True, slots=True)
class Measuring:
    """A candidate to measure, and its kernel."""

    candidate: Candidate
    kernel: Runnable


def _returns(device: RemoteDevice, ended: Event) -> bool:
    """Wait until a device answers again.  Returns whether it did."""
    end = time.monotonic() + AWAY_SECONDS
    while time.monotonic() < end and not ended.wait(PING_SECONDS):
        try:
            device.link.ask(Kind.ABOUT, seconds=PING_SECONDS)
        except LostError:
            continue
        return True
    return False


def _measured(
    device: RemoteDevice,
    arrays: bytes,
    baseline: Runnable,
    kernel: Runnable,
    plan: MeasurePlan,
    seconds: float,
) -> Answer:
    """The answer of a device about a candidate.  Raises LostError."""
    more = {"plan": json.dumps(asdict(plan)), "seconds": repr(seconds)}

    def asked() -> Answer:
        if not device.has_python:
            return measured_statically(device, arrays, baseline, kernel, plan, seconds)
        contents = (arrays, baseline.to_bytes(), kernel.to_bytes())
        names = ("arrays", "baseline", "candidate")
        fields = {n: device.upload(content) for n, content in zip(names, contents, strict=True)}
        limit = seconds + MARGIN_SECONDS
        answer = device.link.ask(Kind.MEASURE, {**fields, **more}, seconds=limit)
        return answer_of(bytes(answer.body))

    try:
        try:
            return asked()
        except AbsentError:  # the agent has removed an object to make room
            return asked()
    except LostError:
        raise
    except UnavailableError as e:  # it says nothing about the candidate
        raise LostError(str(e)) from None
    except DeviceError as e:
        return Answer("failed", text=str(e))
