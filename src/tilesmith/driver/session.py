"""The state of one compilation, and the records that it looks into."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from tilesmith.backend import Backend, backend_of
from tilesmith.frontend.common.symbols import Narrowing
from tilesmith.graph.left import LeftLayer
from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.choices import V
from tilesmith.ir.target import Target
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.constraints import Constraints, nearest
from tilesmith.search_space.family import Family
from tilesmith.search_space.groups import GroupSpace
from tilesmith.search_space.workload import choice_workload
from tilesmith.strategy.intrinsics import exact_target
from tilesmith.support.dump import Dumper
from tilesmith.support.errors import ModelError, ScheduleError
from tilesmith.support.logs import logger
from tilesmith.support.options import Options, records_path
from tilesmith.support.timing import Timings
from tilesmith.te.knobs import Config, Decisions, Knob

from .places import at_place, target_of
from .request import Request
from .workers import job_count

if TYPE_CHECKING:
    from tilesmith.search_space.lookup import Lookup, Match
    from tilesmith.search_space.records import Records

_log = logger("records")


class Tuned(Protocol):
    """Looks up recorded decisions for the text of a workload.

    If the workload has no record, the look-up returns the decisions of a relative: a similar
    workload, found by comparing the `family` of both.  `fits` tells whether the workload's own
    recorded decisions may be used.
    """

    def __call__(
        self,
        workload: str,
        family: Callable[[], Family] | None = ...,
        fits: Callable[[Decisions], bool] = ...,
    ) -> Match: ...


@dataclass(slots=True)
class Question:
    """A choice that a graph pass makes.

    knob: its name and options.
    sources: the source nodes concerned.
    """

    knob: Knob
    sources: set[str] = field(default_factory=set)


FITTED_SHARE = 1 / 128
"""Upper bound on the fraction of a model's distinct groups that get decisions of a relative (a
similar workload).  At least one group may get them.

Such decisions are fitted to the group (`tuned.refit`), the largest group first.  A fit lowers two
kernels, and no other kernel is compiled at that time.  On two cores a fit takes about as long as
compiling seven kernels.  With records of other models, compiling took 1.08 times as long.  Fits
that are already in the cache are not counted.
"""


@dataclass(frozen=True, slots=True)
class Session:
    """The state of one compilation: options, decisions of tuning, and where to report.

    options: the user's choices.
    target: the machine.
    timings: where compile time is counted.
    dumper: where stages are written.
    tuned: looks up decisions of tuning; None if there are none.
    asked: if given, collects the choices that graph passes ask for, by workload.
    constraints: the user's constraints on these choices and on kernels.
    outside: collects what the program depends on besides the model itself, the options and the
        records: files of external data, and templates that users registered.
    fitted_share: see `FITTED_SHARE`.
    narrowed: collects the dimensions that nodes of the model restrict.
    left: collects the layers that stay on the CPU where the target has another machine beside it.
    """

    options: Options
    target: Target
    timings: Timings = field(default_factory=Timings)
    dumper: Dumper = field(default_factory=Dumper)
    tuned: Tuned | None = None
    asked: dict[str, Question] | None = None
    constraints: Constraints | None = None
    outside: set[str] = field(default_factory=set)
    fitted_share: float = FITTED_SHARE
    narrowed: list[Narrowing] = field(default_factory=list)
    left: list[LeftLayer] = field(default_factory=list)

    @staticmethod
    def of(options: Options | None, **overrides: Any) -> Session:
        options = options or Options.from_environment()
        options = at_place(options.with_(**overrides))
        options.show_logs()
        target = target_of(options)
        if options.is_strict:
            target = exact_target(target)
        return Session(options, target, Timings(), Dumper(options.dump))

    @staticmethod
    def of_request(request: Request) -> Session:
        """The session of one compilation, with the constraints of the request."""
        constraints = Constraints.of(request.pins, request.forbid)
        return replace(Session.of(request.options), constraints=constraints)

    @property
    def backend(self) -> Backend:
        """The backend that makes code for the target."""
        return backend_of(self.target)

    def group(self, body: Graph, constants: Sequence[int] = ()) -> GroupSpace:
        """The possible schedules of a fused group for the target.

        constants: numbers of the inputs that are constants.
        """
        return GroupSpace(body, constants, self.target, self.backend.rules)

    def decisions(self, workload: str) -> Decisions:
        """The best known decisions for a workload; empty if the analytic choices are the best."""
        return self.tuned(workload).decisions if self.tuned is not None else {}

    def choose(self, knob: str, nodes: Sequence[Node], options: tuple[V, ...], default: V) -> V:
        """The value for a graph pass's choice (see `graph.passes.choices`): the best known value
        that the constraints allow.
        """
        allowed, own = self.allowed(knob, options), default
        default = nearest(options, allowed, own)
        if self.tuned is None and self.asked is None:
            return default
        workload = choice_workload(knob, nodes, self.options.accuracy)
        if default != own:  # tuning compares with the default, so records hold for one default
            workload = f"{workload}\nnot {own!r} but {default!r}"
        decisions = self.decisions(workload)
        if decisions.get(knob, default) in options and decisions.get(knob, default) not in allowed:
            decisions = {}
        seen: dict[str, Knob] = {}
        try:
            chosen = Config(decisions, seen).choice(knob, allowed, default)
        except ScheduleError as e:  # the record is from another version of Tilesmith
            _log.warning("a tuning record is not used: %s", e)
            return default
        if self.asked is not None:
            question = self.asked.setdefault(workload, Question(seen[knob]))
            question.sources.update(n.loc for n in nodes if n.loc)
        return chosen

    def allowed(self, knob: str, options: tuple[V, ...]) -> tuple[V, ...]:
        """The options of a choice that the constraints allow."""
        return self.constraints.allowed(knob, options) if self.constraints else options

    @property
    def jobs(self) -> int:
        """Number of kernels to compile at the same time."""
        return job_count(self.options)


@contextmanager
def recorded(session: Session) -> Iterator[Session]:
    """The session with recorded decisions for its target and number of threads.  If the records
    can't be used, the session has no recorded decisions.
    """
    path = records_path(session.options)
    if not session.options.use_records or not os.path.isfile(path):
        yield session
        return
    from tilesmith.search_space.lookup import UNUSED
    from tilesmith.search_space.records import Records  # this imports SQLite

    try:
        opened = Records(path, read_only=True)
    except ModelError as e:
        _log.warning(UNUSED, e)
        yield session
        return
    with opened as records:
        yield replace(session, tuned=lookup(records, session))


def lookup(records: Records, session: Session) -> Lookup:
    """A look-up of records for a compilation."""
    from tilesmith.search_space.lookup import Lookup

    options = session.options
    threads = thread_count(options.threads)
    return Lookup(records, session.target.text, threads, options.nearest, session.timings)
