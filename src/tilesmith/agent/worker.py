"""The main program of the process that runs what callers sent, confined (`support.confine`).

A request and its answer are frames, whose fields name objects by their digests.  The program's
argument is the folder of objects.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

from tilesmith.runtime.remote.frames import Frame, FrameError, Kind, array_fields, arrays_of
from tilesmith.runtime.runner import Runner
from tilesmith.runtime.running import runner_of
from tilesmith.runtime.tsm import load_program
from tilesmith.support.child import serve
from tilesmith.support.confine import confine, layers
from tilesmith.support.errors import DeviceError, ModelError, TilesmithError, UsageError
from tilesmith.support.measure import interleave
from tilesmith.tuning.jobs import MeasureJob, MeasurePlan, Runnable, answer_bytes
from tilesmith.tuning.runner import Bench

PROGRAMS = 8
"""Programs that are kept loaded."""
MOST_PROGRAMS, MOST_ROUNDS, MOST_REPEATS = 8, 1000, 10_000
"""Upper bounds on what one request may measure."""
MOST_THREADS = 4096
MEASURE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
"""Errors that a malformed job to measure raises."""


class Programs:
    """Programs that are loaded, the last used ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: OrderedDict[tuple[str, str, int], Runner] = OrderedDict()

    def of(self, request: Frame, number: int = 0) -> Runner:
        """The runner of the program that is number `number` of a request."""
        names = request.digest(f"model{number}"), request.digest(f"weights{number}")
        threads = int(request.number(f"threads{number}", 1, MOST_THREADS))
        key = (*names, threads)
        if key not in self._kept:
            model, weights = (self._folder / name for name in names)
            program = load_program(model, lambda _: weights)
            self._kept[key] = runner_of(program, threads)
            if len(self._kept) > PROGRAMS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


class Worker:
    """Answers requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = Programs(folder)
        self._bench = Bench()

    def answer(self, message: bytes) -> bytes:
        """The answer to the frame in a message.  Its fields also say what the run used."""
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            answer = self._answer(Frame.of_bytes(message))
        except TilesmithError as e:
            answer = refusal(e)
        after = resource.getrusage(resource.RUSAGE_SELF)
        used = {
            "cpu_seconds": repr(
                after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            ),
            "page_faults": str(
                after.ru_majflt + after.ru_minflt - before.ru_majflt - before.ru_minflt
            ),
            "switches": str(after.ru_nivcsw - before.ru_nivcsw),
            "peak_bytes": str(after.ru_maxrss << 10),
        }
        return Frame(answer.kind, {**answer.fields, **used}, answer.body).to_bytes()

    def _answer(self, request: Frame) -> Frame:
        match request.kind:
            case Kind.RUN:
                return self._run(request)
            case Kind.TIME:
                return self._time(request)
            case Kind.PROFILE:
                return self._profile(request)
            case Kind.MEASURE:
                return self._measure(request)
        raise FrameError(f"expected a request to run something, found {request.kind.name}")

    def _run(self, request: Frame) -> Frame:
        runner = self._programs.of(request)
        results = runner.call(tuple(_inputs(request, runner)), None)
        outputs = runner.program.outputs
        given = (results,) if len(outputs) == 1 else results
        fields, body = array_fields([(s.dtype.name, a) for s, a in zip(outputs, given)])
        return Frame(Kind.DONE, fields, body)

    def _time(self, request: Frame) -> Frame:
        count = sum(f"model{i}" in request.fields for i in range(MOST_PROGRAMS))
        runners = [self._programs.of(request, i) for i in range(count)]
        if not runners:
            raise FrameError("field 'model0': expected a program to time")
        rounds = int(request.number("rounds", 1, MOST_ROUNDS))
        turn = request.number("turn", 0, 10)

        def run(runner: Runner) -> Any:
            arrays = tuple(_inputs(request, runner))
            return lambda: runner.call(arrays, None)

        taken = interleave(
            {str(i): run(r) for i, r in enumerate(runners)}, rounds=rounds, turn_seconds=turn
        )
        return _done({"samples": [[s.times, s.rounds] for s in taken.values()]})

    def _profile(self, request: Frame) -> Frame:
        runner = self._programs.of(request)
        repeats = int(request.number("repeats", 1, MOST_REPEATS))
        both = bool(request.number("both", 0, 1))
        times = runner.timed(tuple(_inputs(request, runner)), repeats, both)
        return _done(
            {
                "seconds": times.seconds.tolist(),
                "runs": times.runs.tolist(),
                "whole": times.whole,
                "extents": times.extents,
                "host": times.host,
            }
        )

    def _measure(self, request: Frame) -> Frame:
        try:
            baseline, candidate = (
                Runnable.from_bytes((self._folder / request.digest(name)).read_bytes())
                for name in ("baseline", "candidate")
            )
            plan = json.loads(request.fields["plan"])
            plan = MeasurePlan(**{**plan, "bounds": tuple(plan["bounds"]), "device": None})
        except MEASURE_ERRORS as e:
            raise DeviceError(f"the job is malformed: {type(e).__name__}: {e}") from None
        arrays = self._folder / request.digest("arrays")
        answer = self._bench.measure(MeasureJob(arrays, baseline, candidate, plan))
        return Frame(Kind.DONE, body=answer_bytes(answer))


def _inputs(request: Frame, runner: Runner) -> list[Any]:
    """The inputs of a run, with the element types of the program."""
    arrays, specs = arrays_of(request), runner.program.inputs
    if len(arrays) != len(specs) or any(
        a.dtype.itemsize != s.dtype.bytes for a, s in zip(arrays, specs)
    ):
        raise ModelError(f"expected {len(specs)} inputs of the program's types, found others")
    return [a.view(s.dtype.numpy) for a, s in zip(arrays, specs, strict=True)]


def _done(value: Any) -> Frame:
    return Frame(Kind.DONE, body=json.dumps(value).encode())


_WORDS = {ModelError: "model", UsageError: "usage"}


def refusal(e: TilesmithError, word: str = "") -> Frame:
    """The answer that carries an error.

    word: the word of the error; by default that of its class (`link.ERRORS`).
    """
    found = word or next((w for c, w in _WORDS.items() if isinstance(e, c)), "device")
    text = " ".join(str(e).split())[:2000]
    kept = "".join(c for c in text if c.isprintable())
    return Frame(Kind.REFUSED, {"error": found, "text": kept})


def main() -> None:
    folder = Path(sys.argv[1])
    expected = layers()
    if (found := confine([folder])) != expected:
        sys.exit(f"expected to be confined by {', '.join(expected)}, found {', '.join(found)}")
    serve(Worker(folder).answer)


if __name__ == "__main__":
    main()
