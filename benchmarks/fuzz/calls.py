"""Calls of public entries with one argument of another type.

A call returns, or raises an error that `tilesmith.support.errors` declares, or Python itself
refuses its arguments.  Everything else is a defect: another exception, an InternalError, the end of
the process, or no end.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from types import TracebackType

import children
from tilesmith.support.errors import InternalError, TilesmithError, VerifyError

from .entries import Entry, entries
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, Verdict
from .objects import OBJECTS, Unwilling

LONGEST = 5000
"""Letters of a message; what a compiler says may be in it."""
LONG = ("epochs", "repeats", "seconds", "trials", "tune")
HUGE = (*(f"int {1 << n}" for n in (31, 63, 70)), "float 1e308", "float inf")
"""Numbers with which calls last as long as they ought to, where they say how long."""


@dataclass(frozen=True)
class Call:
    """A call.

    entry: what is called.
    parameter: which argument is replaced.
    thing: by the object of this name.
    """

    entry: Entry
    parameter: str
    thing: str

    def __str__(self) -> str:
        return f"{self.entry.name}({self.parameter}=<{self.thing}>)"


def all_calls(names: str = "", things: str = "") -> list[Call]:
    """Every parameter of every entry with every object, of those whose names contain these."""
    return [Call(e, p, thing) for e in entries() if names in e.name
            for p in e.parameters for thing in OBJECTS
            if things in thing and not (p in LONG and thing in HUGE)]  # fmt: skip


def judge_call(call: Call) -> Verdict:
    """What becomes of a call in this process."""
    thing = OBJECTS[call.thing]()
    places, named = call.entry.arguments(**{call.parameter: thing})
    try:
        call.entry.call(*places, **named)
    except (InternalError, VerifyError) as e:
        return Verdict(CRASHED, _shown(e))
    except (TilesmithError, Unwilling, MemoryError) as e:
        if len(_text(e)) > LONGEST:
            return Verdict(CRASHED, f"a message of {len(_text(e))} letters: {_shown(e)}")
        return Verdict(REFUSED, _text(e))
    except Exception as e:  # a defect, reported with its call
        if _is_allowed(e, call, thing):
            return Verdict(REFUSED, _text(e))
        return Verdict(CRASHED, _shown(e))
    return Verdict(RIGHT)


def judge_valid(entry: Entry) -> Verdict:
    """What becomes of an entry's valid call in this process, in a folder for what it writes."""
    with _folder():
        try:
            places, named = entry.arguments()
            entry.call(*places, **named)
        except Exception as e:
            return Verdict(REFUSED, _shown(e))
    return Verdict(RIGHT)


def _is_allowed(e: Exception, call: Call, thing: object) -> bool:
    """Whether Python refuses the call itself, the entry's documentation names the error or the
    engine that raises it, or a function that is given where one belongs fails as it likes.
    """
    if isinstance(e, (TypeError, ValueError)) and _is_pythons(e.__traceback__):
        return True
    raises = (call.entry.call.__doc__ or "").partition("Raises ")[2]
    if type(e).__name__ in raises.partition(".")[0]:
        return True
    if "ONNX Runtime's errors" in raises and _is_of(e, "onnxruntime"):
        return True
    return callable(thing) and call.entry.takes_function(call.parameter)


def _is_of(e: Exception, library: str) -> bool:
    """Whether a library declares an error, or raised it."""
    trace, last = e.__traceback__, ""
    while trace is not None:
        trace, last = trace.tb_next, trace.tb_frame.f_globals["__name__"]
    return library in (type(e).__module__.partition(".")[0], last.partition(".")[0])


def _is_pythons(trace: TracebackType | None) -> bool:
    """Whether an error was raised by the call itself, not inside."""
    return trace is not None and (trace.tb_next is None or _is_check(trace.tb_next))


def _is_check(trace: TracebackType) -> bool:
    """Whether this is where `support.arguments` calls what it checked, and Python refuses."""
    return trace.tb_next is None and trace.tb_frame.f_globals["__name__"].endswith(".arguments")


def _text(e: Exception) -> str:
    try:
        return str(e)
    except Exception as inner:
        return f"(no text: {type(inner).__name__})"


def _shown(e: BaseException) -> str:
    """An error, and the last lines of ours that it went through."""
    trace, places = e.__traceback__, []
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "tilesmith" in path:
            places.append(f"{path.rpartition('tilesmith/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    text = _text(e) if isinstance(e, Exception) else ""
    return f"{type(e).__name__}: {text[:200]} ({' '.join(places[-2:])})"


def call_verdicts(calls: Sequence[Call]) -> Iterator[Verdict]:
    """What becomes of calls, in child processes and in a folder for what they write."""
    with _folder():
        for v in children.each(calls, judge_call, SECONDS, MEMORY):
            yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v


@contextmanager
def _folder() -> Iterator[None]:
    """A folder of its own as the current one, and no warnings."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fuzz_calls(names: str, most: int | None = None) -> Counter[str]:
    """Judges calls of entries whose names contain `names`, all or so many that are drawn from
    them, and prints each defect.
    """
    calls = all_calls(names)
    if most is not None and most < len(calls):
        calls = random.Random(0).sample(calls, most)
    counts: Counter[str] = Counter()
    for call, verdict in zip(calls, call_verdicts(calls), strict=True):
        counts[verdict.result] += 1
        if verdict.result == CRASHED:
            print(f"{call}: {verdict.reason}", flush=True)
    return counts


def kinds(found: Sequence[tuple[Call, Verdict]]) -> dict[str, list[Call]]:
    """Defects by where they show, the most frequent first."""
    groups: dict[str, list[Call]] = {}
    for call, verdict in found:
        if verdict.result == CRASHED:
            name, _, place = verdict.reason.partition(":")
            place = place.rpartition("(")[2] if "(" in place else place
            groups.setdefault(f"{name} {place}".rstrip(")"), []).append(call)
    return dict(sorted(groups.items(), key=lambda g: -len(g[1])))
