"""Search spaces: the knobs that a schedule function declares, and candidates, which set knobs.

A space is defined by the function alone.  Knobs may depend on each other, so a run with a candidate
shows which knobs exist for this candidate.  A candidate names only the knobs that differ from their
defaults.  So the analytic schedule is the empty candidate, and equal schedules have equal
candidates.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tilesmith.support.errors import ScheduleError
from tilesmith.te.knobs import Config, Knob, Value, values_from_json

from .paths import Paths

Candidate: TypeAlias = Mapping[str, Value]
Forbidden: TypeAlias = Mapping[str, Collection[Value]]
"""Values that knobs must not have, by the knob's name."""

NEAR = 2
"""Number of options on each side of the current one that count as its neighbours."""


class Space:
    """The candidates of `schedule`, a function that reads its decisions from a config and raises
    ScheduleError if they are impossible.

    pinned: values required by the user; they are part of every candidate.
    forbidden: values that no candidate has.  If a default is forbidden, its nearest neighbour
        replaces it.
    starts: further candidates from which a search may begin, adapted to the constraints.

    Raises ScheduleError if constraints name knobs or values that do not exist.
    """

    def __init__(
        self,
        schedule: Callable[[Config], object],
        pinned: Mapping[str, Value] | None = None,
        forbidden: Forbidden | None = None,
        starts: Iterable[Candidate] = (),
    ) -> None:
        self.schedule = schedule
        self._pinned = dict(pinned or {})
        self._forbidden = {k: tuple(v) for k, v in (forbidden or {}).items()}
        self._known: dict[str, dict[str, Knob] | None] = {}
        self.paths: Paths | None = Paths(schedule)
        """The behaviour of `schedule` in the runs so far; None where it can't be traced."""
        self.start = self._legal(self._pinned)
        """The analytic candidate within the constraints."""
        self.baseline = self._baseline()
        """The candidate with which others are compared: the analytic one without constraints."""
        self._check_names()
        others = (c for s in starts if (c := self.keeping(s)) is not None)
        self.starts: list[Candidate] = [self.start, *others]
        """The candidates from which a search may begin."""

    def _baseline(self) -> Candidate:
        try:
            self._asked({})
        except ScheduleError:  # the analytic schedule is possible only with other constraints
            return self.start
        return {}

    def _check_names(self) -> None:
        """Raises ScheduleError if a pinned or forbidden knob or value does not exist."""
        wanted = {k: (v,) for k, v in self._pinned.items()}
        wanted |= {k: (*wanted.get(k, ()), *v) for k, v in self._forbidden.items()}
        known = self.reachable(wanted)
        for name, values in wanted.items():
            if name not in known:
                names = ", ".join(known) or "none"
                raise ScheduleError(f"there is no knob {name!r}; the knobs are {names}")
            for value in values:
                if value not in known[name].options:
                    options = ", ".join(map(repr, known[name].options))
                    raise ScheduleError(f"knob {name}: {value!r} is none of {options}")

    def reachable(self, wanted: Collection[str]) -> dict[str, Knob]:
        """The knobs of the analytic candidate.

        If a knob in `wanted` is not among them, the result also has the knobs that exist when one
        of these knobs has another value.
        """
        known = dict(self._asked(self.start))
        if set(wanted) - set(known):
            for knob in self.free(self.start):
                for value in knob.options:
                    candidate = self.legal({**self.start, knob.name: value})
                    known = {**(self._asked(candidate) if candidate is not None else {}), **known}
        return known

    def knobs(self, candidate: Candidate) -> dict[str, Knob]:
        """The knobs that exist with a candidate.  Raises ScheduleError if it is impossible."""
        return {name: self._allowed(k) for name, k in self._asked(candidate).items()}

    def _asked(self, candidate: Candidate) -> dict[str, Knob]:
        key = candidate_key(candidate)
        if key not in self._known:
            seen: dict[str, Knob] = {}
            try:
                self._run(candidate, seen)
                self._known[key] = seen
            except ScheduleError:
                self._known[key] = None
        known = self._known[key]
        if known is None:
            raise ScheduleError(f"no schedule has these decisions: {key}")
        return known

    def _run(self, chosen: Candidate, seen: dict[str, Knob]) -> None:
        """Fill `seen` with the knobs that exist, up to the first knob that has an impossible value.

        Raises ScheduleError for impossible decisions.
        """
        if self.paths is not None:
            try:
                self.paths.follow(chosen, seen)
                return
            except ScheduleError:
                raise
            except Exception:  # a user's function may reject traced ints
                self.paths = None
                seen.clear()
        self.schedule(Config(chosen, seen))

    def _allowed(self, knob: Knob) -> Knob:
        """The knob without forbidden values.  Raises ScheduleError if none is left."""
        forbidden = self._forbidden.get(knob.name)
        if not forbidden:
            return knob
        options = tuple(v for v in knob.options if v not in forbidden)
        if not options:
            raise ScheduleError(f"knob {knob.name}: all of its values are forbidden")
        return replace(knob, options=options)

    def _nearest(self, knob: Knob, value: Value) -> Value:
        """`value` if it is allowed, else the nearest allowed value."""
        allowed = self._allowed(knob).options
        position = knob.options.index(value)
        return min(allowed, key=lambda v: (v != value, abs(knob.options.index(v) - position)))

    def free(self, candidate: Candidate) -> list[Knob]:
        """The knobs that a search may change."""
        return [
            k
            for name, k in self.knobs(candidate).items()
            if name not in self._pinned and len(k.options) > 1
        ]

    def legal(self, wanted: Candidate) -> Candidate | None:
        """`wanted` without the knobs that do not exist, and without the values that a knob can't
        have.  None if no schedule results.
        """
        try:
            return self._legal({**wanted, **self._pinned})
        except ScheduleError:
            return None

    def keeping(self, wanted: Candidate) -> Candidate | None:
        """The candidate with all decisions of `wanted`; None if they are impossible together."""
        candidate = self.legal(wanted)
        return candidate if candidate is not None and {**candidate, **wanted} == candidate else None

    def refitted(self, wanted: Candidate) -> Candidate | None:
        """The candidate nearest to `wanted`.  None if no schedule results.

        wanted: decisions that were made for other extents.

        A value that a knob can't have is replaced by the nearest option.
        """
        try:
            return self._legal({**wanted, **self._pinned}, nearest_option)
        except ScheduleError:
            return None

    def _legal(
        self, wanted: Candidate, instead: Callable[[Knob, Value], Value | None] = lambda *_: None
    ) -> Candidate:
        """The nearest possible candidate.  `instead` gives the replacement of a value that a knob
        can't have; None removes the knob.
        """
        chosen = dict(wanted)
        while True:
            seen: dict[str, Knob] = {}
            try:
                self._run(chosen, seen)
                moved = {
                    k: v
                    for k in self._forbidden
                    if k in seen
                    and (v := self._nearest(seen[k], current := chosen.get(k, seen[k].default)))
                    != current
                }
                if not moved:
                    break
                chosen |= moved
                continue
            except ScheduleError:
                last = next(reversed(seen.values()), None)  # the knob that was declared last
                if last is None or last.name in self._pinned or last.name not in chosen:
                    raise
                if chosen[last.name] in last.options:
                    raise  # the value is valid, but the schedule is illegal
                other = instead(last, chosen.pop(last.name))
                if other is not None:
                    chosen[last.name] = other
        kept = {
            k: v
            for k, v in sorted(chosen.items())
            if k in seen and (v != seen[k].default or k in self._pinned)
        }
        self._known[candidate_key(kept)] = seen
        return kept

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Candidates that differ slightly in one knob, knob by knob, then those of `_trades`."""
        for knob in self.free(candidate):
            position = knob.options.index(candidate.get(knob.name, knob.default))
            for step in (s * d for d in range(1, NEAR + 1) for s in (1, -1)):
                if 0 <= position + step < len(knob.options):
                    neighbour = self.legal({**candidate, knob.name: knob.options[position + step]})
                    if neighbour is not None and neighbour != candidate:
                        yield neighbour
        yield from self._trades(candidate)

    def _trades(self, candidate: Candidate) -> Iterator[Candidate]:
        """Candidates in which one knob has its next larger number, and another knob a number
        smaller by about the same ratio.

        So the product of the two numbers, such as a number of registers, stays about the same.
        Changes of one knob at a time may not lead to these candidates.
        """
        numbers = {
            k.name: traded_candidate
            for k in self.free(candidate)
            if (traded_candidate := _numbers(k))
        }
        knobs = self.knobs(candidate)
        now = {n: _sizes(candidate.get(n, knobs[n].default))[0] for n in numbers}
        for more, less in itertools.permutations(numbers, 2):
            above = [n for n in numbers[more] if n > now[more]]
            below = [n for n in numbers[less] if n < now[less]]
            if not above or not below:
                continue
            wanted = now[more] * now[less] / min(above)
            nearest = min(below, key=lambda n, w=wanted: abs(n - w))
            traded = {more: numbers[more][min(above)], less: numbers[less][nearest]}
            traded_candidate = self.legal({**candidate, **traded})
            if traded_candidate is not None and all(
                traded_candidate.get(k, v) == v for k, v in traded.items()
            ):
                yield traded_candidate

    def mutated(self, candidate: Candidate, rng: random.Random, turns: int = 1) -> Candidate:
        """The candidate with up to `turns` knobs set to random values."""
        knobs = self.free(candidate)
        changed = dict(candidate)
        for knob in rng.sample(knobs, min(turns, len(knobs))):
            changed[knob.name] = rng.choice(knob.options)
        return self.legal(changed) or candidate

    def random(self, rng: random.Random) -> Candidate:
        """A candidate with random values for all knobs, also for knobs that exist only with these
        values.
        """
        drawn = self.mutated(self.start, rng, turns=len(self.free(self.start)))
        known = self.knobs(self.start)
        brought = {k.name: rng.choice(k.options) for k in self.free(drawn) if k.name not in known}
        return (self.legal({**drawn, **brought}) or drawn) if brought else drawn

    def crossed(self, a: Candidate, b: Candidate, rng: random.Random) -> Candidate:
        """A mix of two candidates: each decision comes from one of them.

        The decisions from `b` are a random section of the knobs in order, or knobs drawn one by
        one.  All others are as in `a`.
        """
        steps = list(dict.fromkeys((*self.knobs(a), *self.knobs(b))))
        if rng.random() < 0.5:
            first, last = sorted(rng.choices(range(len(steps) + 1), k=2))
            taken = steps[first:last]
        else:
            taken = [n for n in steps if rng.random() < 0.5]
        mixed = {n: v for n, v in a.items() if n not in taken}
        mixed |= {n: b[n] for n in taken if n in b}
        return self.legal(mixed) or a

    def grid(self) -> Iterator[Candidate]:
        """All combinations of the analytic candidate's knobs; the last knob changes fastest."""
        knobs = self.free(self.start)
        for values in itertools.product(*(k.options for k in knobs)):
            candidate = self.legal({k.name: v for k, v in zip(knobs, values, strict=True)})
            if candidate is not None:
                yield candidate


def nearest_option(knob: Knob, value: Value) -> Value | None:
    """The option of a knob that is nearest to `value`, a number or a tuple of numbers; None for
    other values.

    Only options with as many numbers as `value` are considered; None if there are none.  The
    distance of two numbers is the absolute logarithm of their ratio, and distances are summed.
    """
    wanted = _sizes(value)
    options = [o for o in knob.options if len(_sizes(o)) == len(wanted)]
    if not wanted or not options:
        return None
    return min(
        options,
        key=lambda o: sum(
            abs(math.log2(max(a, 0.5) / max(b, 0.5)))
            for a, b in zip(_sizes(o), wanted, strict=True)
        ),
    )


def _sizes(value: Value) -> tuple[int, ...]:
    """The numbers in a value if all are integers and none is negative; else empty."""
    parts = value if isinstance(value, tuple) else (value,)
    numbers = tuple(p for p in parts if isinstance(p, int) and not isinstance(p, bool) and p >= 0)
    return numbers if len(numbers) == len(parts) else ()


def _numbers(knob: Knob) -> dict[int, Value]:
    """Positive number -> the option that consists of it.  Empty if the knob also has options
    of another kind.
    """
    by_number = {n[0]: o for o in knob.options if len(n := _sizes(o)) == 1 and n[0]}
    return by_number if len(by_number) == len(knob.options) else {}


def candidate_key(candidate: Candidate) -> str:
    """A candidate as text: JSON with sorted keys."""
    return json.dumps(dict(candidate), sort_keys=True)


def candidate_of(key: str) -> Candidate:
    """The candidate for the text of `candidate_key`.  Raises ValueError for any other text."""
    try:
        chosen: Any = json.loads(key)
    except RecursionError as e:
        raise ValueError("nested too deep") from e
    if not isinstance(chosen, dict) or not all(map(_is_value, chosen.values())):
        raise ValueError(f"expected a JSON object of values, found {key[:80]!r}")
    return values_from_json(chosen)


def _is_value(value: object) -> bool:
    """Whether `value` may be a knob's value.  Integers must fit 64 bits, as in loops."""
    if isinstance(value, list):
        return all(map(_is_value, value))
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, str)
