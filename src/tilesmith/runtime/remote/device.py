"""A device that is another machine: what it is, and executables that run on it.

A program is uploaded in two parts, its archive without weights and its weights, each named by the
SHA-256 digest of its bytes.  What the agent has is not sent again: another version of a model
shares its weights, and callers share both.
"""

from __future__ import annotations

import hashlib
import io
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tilesmith.codegen.targets import missing_features
from tilesmith.ir.target import Target
from tilesmith.perf.machine import Machine, nominal
from tilesmith.runtime.arrays import at_home, stored_dtype
from tilesmith.runtime.given import stored_inputs
from tilesmith.runtime.limits import UNLIMITED, Limits
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.runtime.runner import Runner, Times, as_given, given_outputs, kept_outputs
from tilesmith.runtime.tsm import write_program
from tilesmith.support.arguments import checked, checked_methods, shown
from tilesmith.support.cache import content_key
from tilesmith.support.errors import DeviceError, ModelError, UsageError
from tilesmith.support.measure import Samples
from tilesmith.support.version import VERSION

from .address import Address
from .boards import board_target
from .frames import SLOWEST, Frame, Kind, array_fields, arrays_of
from .keys import Key, key_path
from .link import AbsentError, Link

MARGIN_SECONDS = 60.0
"""Seconds that an answer may take beyond the time of the runs that are asked for: other callers'
requests come first.
"""
ASKED_SECONDS = 10.0
"""Approximate time that one request measures."""
STATIC_SECONDS, STATIC_RUNS, STATIC_REPEATS = 60, 5, 3
"""Longest time of a static program, its runs in a turn, and the most starts for a profile."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@checked_methods(UsageError)
class RemoteDevice:
    """Another machine, on which `tilesmith agent serve` runs.

    address: where its agent listens.
    name: the machine's name.
    target: the machine as a target, for which models are compiled.
    threads: its physical cores.
    confined: the layers of protection that runs have there (`support.confine`).
    has_python: whether its agent has Python.  Other agents run models with fixed shapes only.
    """

    @checked(UsageError)
    def __init__(self, address: str, key: str | Path | None = None) -> None:
        """address: `tls://HOST:PORT`, or `tcp://127.0.0.1:PORT`.
        key: `device.json` of `tilesmith agent init`; by default `HOST_PORT.json` in the folder of
            the devices' keys.

        Raises UsageError for a wrong address or key, DeviceError if no agent answers or if it has
        another version of Tilesmith.
        """
        self._address = Address.of(address)
        path = Path(key) if key is not None else key_path(self._address)
        self.link = Link(self._address, Key.load(path))
        about = _json(self.link.ask(Kind.ABOUT, seconds=MARGIN_SECONDS))
        try:
            version, self.name = str(about["version"]), str(about["name"])
            self.threads = int(about["cores"])
            self.has_python = "target" in about
            if self.has_python:
                self.target = Target.from_json(about["target"])
            else:
                self.target = board_target(about["machine"], about["flags"], self.threads)
            self.confined = tuple(map(str, about["confined"]))
        except _MALFORMED as e:
            raise DeviceError(f"device {address}: its description is malformed: {e}") from None
        if version != VERSION:
            raise DeviceError(
                f"device {address}: its agent has Tilesmith {version}, this is {VERSION}; install "
                "the same version on both"
            )

    @property
    def address(self) -> str:
        return str(self._address)

    @cached_property
    def machine(self) -> Machine:
        """The rates of the device, which its agent measured.  The first call may take seconds.  If
        the agent has no Python, rates that are expected of the target.
        """
        if not self.has_python:
            return nominal(self.target)
        answer = self.link.ask(Kind.RATES, seconds=MARGIN_SECONDS)
        try:
            return Machine.from_json(_json(answer))
        except _MALFORMED as e:
            raise DeviceError(f"device {self.address}: its rates are malformed: {e}") from None

    def runner(self, program: Program, threads: int | None = None) -> RemoteRunner:
        """The runner of a program on this device.

        threads: number of threads there; by default its cores.

        Raises ModelError if the device lacks features that the program needs, or if agents don't
        run programs of this kind.  Raises DeviceError if the device fails.
        """
        kind = RemoteRunner if self.has_python else StaticRunner
        return kind(program, threads or self.threads, device=self)

    def counters(self) -> dict[str, float]:
        """Counts of the agent since its start: requests, refusals, runs, crashes, bytes, seconds of
        processors, page faults, the largest memory of a run in bytes.
        """
        return {str(k): float(v) for k, v in _json(self.link.ask(Kind.COUNTERS)).items()}

    def logs(self) -> list[str]:
        """The agent's last messages, one for each request."""
        return bytes(self.link.ask(Kind.LOGS).body).decode(errors="replace").splitlines()

    def upload(self, content: bytes) -> str:
        """Send an object that the agent does not have.  Returns its SHA-256 digest."""
        digest = hashlib.sha256(content).hexdigest()
        self._upload(digest, content)
        return digest

    def _upload(self, digest: str, content: bytes | memoryview) -> None:
        has = self.link.ask(Kind.HAS, {"digest": digest}, seconds=MARGIN_SECONDS)
        if has.fields.get("has") != "1":
            limit = MARGIN_SECONDS + len(content) / SLOWEST
            self.link.ask(Kind.PUT, {"digest": digest}, content, limit)

    def close(self) -> None:
        """End the connection.  The next request makes another one."""
        self.link.close()

    def __repr__(self) -> str:
        return f"<device {self.address}: {self.name}, {self.target.cpu}, {self.threads} cores>"


class RemoteRunner(Runner):
    """A program that runs on another machine.

    device: that machine.
    """

    def __init__(
        self,
        program: Program,
        threads: int | None,
        limits: Limits = UNLIMITED,
        device: RemoteDevice | None = None,
    ) -> None:
        self.device: RemoteDevice = device or self.device
        self.program, self.limits = program, limits
        self.threads = threads or self.device.threads
        _check_runs_there(program, self.device)
        self._objects = self._made(program)
        self._digests = {
            name: hashlib.sha256(content).hexdigest() for name, content in self._objects.items()
        }
        self._lock = Lock()
        self._is_there = False

    def _made(self, program: Program) -> dict[str, bytes | memoryview]:
        """The objects to upload, by the names of their fields."""
        out = io.BytesIO()
        weights = program.constants.data
        write_program(program, out, content_key(weights))
        return {"model": out.getvalue(), "weights": weights}

    def become(self, program: Program) -> None:
        self.__init__(program, self.threads, self.limits)

    def again(self) -> Runner:
        return type(self)(self.program, self.threads, self.limits, self.device)

    @property
    def machine(self) -> Machine:
        return self.device.machine

    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """Run the program there (see `Runner`).  Raises DeviceError if the device fails."""
        program = self.program
        outs = given_outputs(program.outputs, out)
        stored = stored_inputs(program, arrays)
        outs = at_home(program, arrays, outs)
        specs = program.outputs
        is_sized = all(s.is_static for s in specs)
        kept = kept_outputs(program, stored, outs, specs) if is_sized else None
        results = self._results(stored)
        if len(results) != len(specs):
            raise DeviceError(
                f"device {self.device.address}: expected {len(specs)} results, found {len(results)}"
            )
        if kept is None:
            shaped = [TensorSpec(s.name, s.dtype, r.shape) for s, r in zip(specs, results)]
            kept = kept_outputs(program, stored, outs, shaped)
        for i, room in enumerate(kept):
            if room is not None:
                room[...] = results[i].view(room.dtype).reshape(room.shape)
                results[i] = room
        typed = [r.view(s.dtype.numpy) for r, s in zip(results, specs, strict=True)]
        return as_given(typed, outs, arrays)

    def _results(self, stored: Sequence[np.ndarray]) -> list[np.ndarray]:
        return arrays_of(self._ask(Kind.RUN, stored))

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        stored = stored_inputs(self.program, arrays)
        fields = {"repeats": str(max(repeats, 1)), "both": str(int(both))}
        told = _json(self._ask(Kind.PROFILE, stored, fields))
        try:
            seconds, runs = np.array(told["seconds"], float), np.array(told["runs"], np.int64)
            if len(seconds) != len(self.program.calls) or len(runs) != len(seconds):
                raise ValueError(f"{len(seconds)} times of {len(self.program.calls)} kernels")
            host = tuple((str(name), float(t)) for name, t in told["host"])
            extents = tuple(int(n) for n in told["extents"])
            return Times(seconds, runs, float(told["whole"]), extents, host)
        except _MALFORMED as e:
            raise DeviceError(
                f"device {self.device.address}: its profile is malformed: {e}"
            ) from None

    def _fields(self, number: int = 0) -> dict[str, str]:
        """The fields that name this program, as number `number` of a request."""
        names = {f"{k}{number}": digest for k, digest in self._digests.items()}
        return {**names, f"threads{number}": str(self.threads)}

    def _ask(
        self, kind: Kind, stored: Sequence[np.ndarray], more: Mapping[str, str] | None = None
    ) -> Frame:
        sent, body = array_fields(_named(self.program, stored))
        fields = {**self._fields(), **sent, **(more or {})}
        return self._sent(lambda: self.device.link.ask(kind, fields, body), (self,))

    def _sent(self, ask: Callable[[], Frame], programs: Sequence[RemoteRunner]) -> Frame:
        """The answer to a request that needs some programs, which are uploaded before."""
        for p in programs:
            p._upload()
        try:
            return ask()
        except AbsentError:  # the agent has removed an object to make room
            for p in programs:
                p._upload(again=True)
            return ask()

    def _upload(self, again: bool = False) -> None:
        with self._lock:
            if not self._is_there or again:
                for name, content in self._objects.items():
                    self.device._upload(self._digests[name], content)
                self._is_there = True


class StaticRunner(RemoteRunner):
    """A program on a machine whose agent has no Python: a static program, which the agent starts
    for each call.
    """

    def _made(self, program: Program) -> dict[str, bytes | memoryview]:
        # few programs need a C compiler
        from tilesmith.runtime.standalone.program import static_program

        self._profiled: StaticRunner | None = None
        return {"program": static_program(program, self.threads)}

    def _results(self, stored: Sequence[np.ndarray], before: int = 0) -> list[np.ndarray]:
        """The results of a run, after `before` other runs."""
        content = self.started("run", stored, before)
        results, offset = [], 0
        for s in self.program.outputs:
            part = np.frombuffer(content[offset : offset + s.bytes], np.uint8).copy()
            if len(part) < s.bytes:
                raise DeviceError(
                    f"device {self.device.address}: expected {s.bytes} bytes of {s}, found "
                    f"{len(part)}"
                )
            results.append(part.view(stored_dtype(s.dtype)).reshape(s.static_shape))
            offset += s.bytes
        return results

    def started(self, task: str, stored: Sequence[np.ndarray], runs: int = 0) -> bytes:
        """The output of the program, for a task of `csrc/library/templates/device.c`."""
        fields = {
            "program": self._digests["program"],
            "seconds": str(STATIC_SECONDS),
            "words": f"{task} {self.threads} {runs}",
        }
        body = b"".join(np.ascontiguousarray(a).tobytes() for a in stored)
        limit = STATIC_SECONDS + MARGIN_SECONDS
        ask = self.device.link.ask
        answer = self._sent(lambda: ask(Kind.EXEC, fields, body, limit), (self,))
        return bytes(answer.body)

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        """See `Runner`.  Raises DeviceError on processors of 32 bits."""
        # few programs are profiled
        from tilesmith.program.functions import ENTRY
        from tilesmith.runtime.profile import profiled
        from tilesmith.runtime.standalone.elf import is_wide

        if not is_wide(self.program.objects[ENTRY]):
            raise DeviceError(
                f"device {self.device.address}: kernels are timed on processors of 64 bits, since "
                "clocks of others have another form; expected a call or `tilesmith bench`"
            )
        if self._profiled is None:
            program = profiled(self.program)
            self._profiled = StaticRunner(program, self.threads, self.limits, self.device)
        stored = stored_inputs(self.program, arrays)
        starts = range(min(max(repeats, 1), STATIC_REPEATS))
        times = np.stack([self._profiled._results(stored, STATIC_RUNS)[-1] for _ in starts])
        whole = min(static_times([self], stored, 1)[0].times) if both else 0.0
        times = times[:, : len(self.program.calls)]
        return Times(times[..., 0].min(axis=0) * 1e-9, times[0, :, 1], whole, (), ())


def static_times(
    runners: Sequence[StaticRunner], stored: Sequence[np.ndarray], rounds: int
) -> list[Samples]:
    """Times of programs on a device without Python.  In each round every program runs
    `STATIC_RUNS` times.
    """
    taken: list[list[tuple[float, ...]]] = [[] for _ in runners]
    for _ in range(rounds):
        for times, r in zip(taken, runners, strict=True):
            seconds = np.frombuffer(r.started("time", stored, STATIC_RUNS), np.float64)
            if len(seconds) != STATIC_RUNS:
                raise DeviceError(f"device {r.device.address}: its times are malformed")
            times.append(tuple(seconds.tolist()))
    return [
        Samples(tuple(t for turn in turns for t in turn), tuple(map(statistics.median, turns)))
        for turns in taken
    ]


def timed_in_turns(
    runners: Sequence[Runner], arrays: Sequence[Any], rounds: int, turn_seconds: float = 0.1
) -> list[Samples] | None:
    """Times of programs on the same inputs, measured alternately on their device, without the time
    of the network.  None if they do not all run on one remote device.

    arrays: all inputs of the programs.
    rounds, turn_seconds: as for `support.measure.interleave`.  A request measures for about
        `ASKED_SECONDS`, so that other callers of the device have their turns in between.
    """
    remote = [r for r in runners if isinstance(r, RemoteRunner)]
    if not remote or len(remote) < len(runners) or len({r.device for r in remote}) > 1:
        return None
    first = remote[0]
    if isinstance(first, StaticRunner):
        stored = stored_inputs(first.program, arrays)
        return static_times([r for r in remote if isinstance(r, StaticRunner)], stored, rounds)
    sent, body = array_fields(_named(first.program, stored_inputs(first.program, arrays)))
    fields = {"turn": repr(turn_seconds), **sent}
    for number, r in enumerate(remote):
        fields |= r._fields(number)
    # Rounds alternate in their order, so a request has an even number of them.
    each = 2 * max(int(ASKED_SECONDS / (len(remote) * max(turn_seconds, 0.01)) / 2), 1)
    limit = MARGIN_SECONDS + 10 * len(remote) * each * turn_seconds
    link = first.device.link
    samples = [Samples((), ()) for _ in remote]
    for done in range(0, rounds, each):
        now = {**fields, "rounds": str(min(each, rounds - done))}
        answer = first._sent(lambda now=now: link.ask(Kind.TIME, now, body, limit), remote)
        try:
            told = _json(answer)["samples"]
            samples = [
                Samples((*s.times, *map(float, t)), (*s.rounds, *map(float, r)))
                for s, (t, r) in zip(samples, told, strict=True)
            ]
        except _MALFORMED as e:
            raise DeviceError(
                f"device {first.device.address}: its times are malformed: {e}"
            ) from None
    return samples


@lru_cache(maxsize=64)
def connected(address: str) -> RemoteDevice:
    """The device at an address, with the key in its usual place.  One connection for each address
    serves the whole process.
    """
    return RemoteDevice(address)


def device_of(device: RemoteDevice | str) -> RemoteDevice:
    """The device that a caller names or gives.  Raises UsageError for anything else."""
    if isinstance(device, str):
        return connected(device)
    if not isinstance(device, RemoteDevice):
        raise UsageError(
            f"device: expected a tilesmith.RemoteDevice or an address, found {shown(device)}"
        )
    return device


def _check_runs_there(program: Program, device: RemoteDevice) -> None:
    where = f"device {device.address} ({device.name})"
    if program.target.device is not None or program.parts:
        raise ModelError(
            f"{where}: agents run programs for a CPU, and this one is for {program.target.name!r}"
        )
    if program.uses_objects:
        raise ModelError(f"{where}: agents run programs on numbers, and this one has other inputs")
    if missing := missing_features(device.target, program.target):
        raise ModelError(
            f"{where} lacks {', '.join(missing)}, which the program needs; compile the model with "
            f"target={device.address!r}"
        )


def _named(program: Program, stored: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(s.dtype.name, a) for s, a in zip(program.inputs, stored, strict=True)]


def _json(answer: Frame) -> dict[str, Any]:
    """The object in the body of an answer.  Raises DeviceError."""
    try:
        told = json.loads(bytes(answer.body))
        if isinstance(told, dict):
            return told
    except (ValueError, RecursionError):
        pass
    raise DeviceError("the device's answer is malformed: expected an object in JSON")
