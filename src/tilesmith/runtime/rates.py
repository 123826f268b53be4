"""The rates of this machine, kept in the cache folder under the CPU's identity.

Other load makes a measurement slower, and the first process may run on a busy machine.  So a
measurement is final only if it is reliable: other programs did not use the cores, repetitions
agreed, and no rate is far below the machine's description.  An unreliable measurement is used until
a later process measures again.  The waiting time before that doubles with each attempt.  The best
value of each rate is kept.  After some attempts the best rates become final.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tilesmith.codegen.targets import host
from tilesmith.ir.target import Target
from tilesmith.perf.machine import Machine, Rates, nominal
from tilesmith.support.logs import logger
from tilesmith.support.measure import BUSY, clocks, share_of_others
from tilesmith.support.options import cache_dir_from_environment

from .machine import cpu_name, measure
from .threads import physical_cores

VERSION = 3
"""Version of the measuring kernels and of the files.  Rates of another version are measured
again.
"""

SPREAD = 1.5
"""Ratio of the typical to the best time of a repetition.  If the ratio is larger, other programs
are assumed to have used the machine.
"""
PLAUSIBLE = 0.5
"""Least plausible measured rate, as a fraction of the described rate (which is a cautious one)."""
ATTEMPTS = 8
"""Number of measurements after which the best rates are final, even if they are unreliable."""
FIRST_WAIT = 60.0
"""Seconds until the second measurement; each later wait is twice as long."""

_log = logger("machine")


@dataclass(frozen=True, slots=True)
class Kept:
    """Rates of a machine, and the reliability of their measurement.

    machine: the best measured value of each rate.
    doubts: why the last measurement is unreliable; empty for a reliable one.
    attempts: measurements so far.
    last: time of the last measurement, in seconds since 1970.
    """

    machine: Machine
    doubts: str
    attempts: int
    last: float

    def is_due(self, now: float) -> bool:
        """Whether to measure again.  If the clock was set back, the answer is yes."""
        wait = FIRST_WAIT * 2 ** (self.attempts - 1)
        doubted = bool(self.doubts) and self.attempts < ATTEMPTS
        return doubted and not 0 <= now - self.last < wait

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(m: Mapping[str, Any]) -> Kept:
        """Raises ValueError, KeyError or TypeError for values that `to_json` does not write."""
        machine = Machine.from_json(m["machine"])
        return Kept(machine, str(m["doubts"]), int(m["attempts"]), float(m["last"]))


def machine(cache_dir: Path | None = None, again: bool = False) -> Machine:
    """The rates of this machine, kept from earlier measurements or measured now (about two
    seconds).
    """
    return kept_rates(cache_dir, again).machine


def kept_rates(cache_dir: Path | None = None, again: bool = False) -> Kept:
    """The rates that `machine` returns, with facts about their measurement.

    again: whether to forget earlier measurements.
    """
    target, threads = host(), physical_cores()
    identity = f"{VERSION};{cpu_name()};{threads};{target.text}"
    name = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    path = (cache_dir or cache_dir_from_environment()) / "machines" / f"{name}.json"
    before = None if again else _read(path)
    if before is not None and not before.is_due(time.time()):
        return before
    start = clocks()
    measured = measure(target, threads)
    doubts = _doubts(measured.machine, target, measured.spread, share_of_others(start, clocks()))
    best = measured.machine if before is None else faster(before.machine, measured.machine)
    kept = Kept(best, doubts, 1 if before is None else before.attempts + 1, time.time())
    if doubts:
        _log.info("rates of this machine, measurement %d: %s", kept.attempts, doubts)
    _write(path, json.dumps(kept.to_json(), indent=1))
    return kept


def _doubts(found: Machine, target: Target, spread: float, load: float | None) -> str:
    """Reason why a measurement is unreliable; empty for a reliable one.

    spread: typical time of repetitions relative to the best.
    load: fraction of the cores' time that other programs used during the measurement; None if the
        system does not report it.
    """
    if load is not None and load > BUSY:
        return f"other programs used {load:.0%} of the cores meanwhile"
    if spread > SPREAD:
        return f"repetitions typically took {spread:.1f} times as long as the best ones"
    expected = nominal(target)
    for r in found.rates:
        for name, rate in _rates_of(r).items():
            described = getattr(expected.at(r.threads), name)
            if rate < PLAUSIBLE * described:
                return (
                    f"{name} with {r.threads} threads is {rate / described:.0%} of what the "
                    "description of this machine says"
                )
    return ""


def faster(a: Machine, b: Machine) -> Machine:
    """For each rate, the better value of two measurements of one machine.  If `a` and `b` have
    different numbers of threads, the result is `b`.
    """
    if [r.threads for r in a.rates] != [r.threads for r in b.rates]:
        return b
    rates = []
    for x, y in zip(a.rates, b.rates, strict=True):
        best = {name: max(rate, getattr(y, name)) for name, rate in _rates_of(x).items()}
        rates.append(Rates(x.threads, **best, fork_join=min(x.fork_join, y.fork_join)))
    return Machine(b.cpu, b.vector_bytes, max(a.l3_bytes, b.l3_bytes), tuple(rates))


def _rates_of(r: Rates) -> dict[str, float]:
    """The fields for which larger is better."""
    names = (f.name for f in fields(Rates) if f.name not in ("threads", "fork_join"))
    return {name: getattr(r, name) for name in names}


def _read(path: Path) -> Kept | None:
    """The kept rates; None if the machine was never measured, or if the file is damaged."""
    try:
        return Kept.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, text: str) -> None:
    """Write the file completely or not at all.  If that fails, the next process measures again."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "w") as f:
            f.write(text)
        os.replace(name, path)
    except OSError:
        pass
