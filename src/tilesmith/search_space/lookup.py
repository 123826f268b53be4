"""Queries of a compilation to the records: each workload is looked up once, with answers cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilesmith.support.errors import ModelError
from tilesmith.support.logs import logger
from tilesmith.support.timing import Timings
from tilesmith.te.knobs import Decisions

from .family import Family
from .records import Key, Known, Records, Trial

_log = logger("records")

NO_FAMILY = Family("", "", ())
UNUSED = "%s; compiling goes on without them"


@dataclass(frozen=True, slots=True)
class Match:
    """Decisions for a workload.

    decisions: the knobs' values.
    is_exact: whether the decisions were measured for this workload.  If not, they were measured for
        a relative (another workload of its family), and may have to be adapted to the extents.
    """

    decisions: Decisions = field(default_factory=dict)
    is_exact: bool = True


@dataclass
class Lookup:
    """Looks up decisions for workloads, for one target and one number of threads.

    If the records are damaged, they are not queried again: the log reports this once, and all later
    results are empty.

    records: the trials.
    target: the target's text.
    threads: number of threads.
    nearest: whether decisions of relatives are used for a workload that was never tuned.
    timings: receives the time of the queries.
    unsettled: whether trials that are not settled are used.
    may_fit: whether there is time to adapt a relative's decisions to a workload.  Its arguments are
        the workload's key and the number of workloads adapted so far.
    used: workload -> the trial whose decisions it used.
    """

    records: Records
    target: str
    threads: int
    nearest: bool = True
    timings: Timings = field(default_factory=Timings)
    unsettled: bool = False
    may_fit: Callable[[Key, int], bool] = lambda _key, _fitted: True
    used: dict[Key, Trial] = field(default_factory=dict)
    _known: dict[Key, Match] = field(default_factory=dict)
    _is_sound: bool = True

    def __call__(
        self,
        workload: str,
        family: Callable[[], Family] | None = None,
        fits: Callable[[Decisions], bool] = lambda _: True,
    ) -> Match:
        """The best known decisions for a workload's text.

        family: gives the workload's family; called only if relatives may be used.
        fits: whether decisions that were measured for the workload itself may be used.
        """
        key = Key.of(workload, self.target, self.threads)
        if key not in self._known:
            with self.timings.stage("records"):
                fitted = sum(t.key != k for k, t in self.used.items())
                is_open = self.nearest and self.may_fit(key, fitted)
                relatives = family() if family is not None and is_open else NO_FAMILY
                self._known[key] = self._match(key, self._look_up(key, relatives), fits)
        return self._known[key]

    def _look_up(self, key: Key, family: Family) -> Known:
        if not self._is_sound:
            return Known()
        try:
            return self.records.look_up(key, family, self.unsettled)
        except ModelError as e:
            self._is_sound = False
            _log.warning(UNUSED, e)
            return Known()

    def _match(self, key: Key, known: Known, fits: Callable[[Decisions], bool]) -> Match:
        if known.is_tuned or not known.relatives:
            trial, is_exact = known.best, True
        else:
            trial, is_exact = known.relatives[0], False
        if trial is None or (is_exact and not fits(trial.candidate)):
            return Match()
        self.used[key] = trial
        return Match(trial.candidate, is_exact)
