"""A user's constraints on the decisions about a model: pinned values and forbidden values.

Choices of graph passes and knobs of kernels share one space of names.  A constraint applies to
every choice and knob of its name.  Constraints take precedence over costs and records.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tilesmith.graph.passes.choices import V
from tilesmith.support.arguments import shown
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import Decisions, Value, values_from_json

from .space import Forbidden, Space

Met = dict[str, dict[Value, None]]
"""For each decision, by name, its possible values.  They are the keys of the inner dict."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """A user's constraints, and the decisions seen so far in a compilation.

    pins: name of a decision -> the value that it gets wherever this value is an option.
    forbid: name of a decision -> values that it doesn't get wherever there is another option.
    met: names and values of all choices of graph passes so far.
    knobs: names and values of the knobs of kernels.
    spaces: workload -> the schedules of its kernel that the constraints allow.
    """

    pins: Decisions = field(default_factory=dict)
    forbid: Forbidden = field(default_factory=dict)
    met: Met = field(default_factory=dict)
    knobs: Met = field(default_factory=dict)
    spaces: dict[str, Space] = field(default_factory=dict)

    @staticmethod
    def of(pins: Decisions | None, forbid: Forbidden | None) -> Constraints | None:
        """The constraints that a user gave, with tuples in place of lists; None if there are
        none.

        Raises UsageError if an argument is not a mapping, or if a value of `forbid` is not a
        collection.
        """
        for name, constraint in (("pins", pins), ("forbid", forbid)):
            if constraint is not None and not isinstance(constraint, Mapping):
                raise UsageError(f"{name} must map names to values, not {shown(constraint)}")
        for knob, values in (forbid or {}).items():
            if not isinstance(values, Collection) or isinstance(values, str):
                raise UsageError(f"forbid[{knob!r}] must be a list of values, not {shown(values)}")
        if not pins and not forbid:
            return None
        lists = {k: list(v) for k, v in (forbid or {}).items()}
        tuples = {k: tuple(values_from_json({k: v})[k] for v in vs) for k, vs in lists.items()}
        return Constraints(values_from_json(pins or {}), tuples)

    def allowed(self, knob: str, options: tuple[V, ...]) -> tuple[V, ...]:
        """The options of a choice that the constraints allow.  Raises UsageError if they forbid
        all.
        """
        self.met.setdefault(knob, {}).update(dict.fromkeys(options))
        if knob in self.pins:
            pinned = tuple(o for o in options if same(o, self.pins[knob]))
            if pinned:
                return pinned
        forbidden = self.forbid.get(knob, ())
        if not forbidden or len(options) == 1:
            return options
        left = tuple(o for o in options if not any(same(o, f) for f in forbidden))
        if not left:
            named = ", ".join(map(repr, options))
            raise UsageError(f"choice {knob}: all of its values are forbidden: {named}")
        return left

    @property
    def names(self) -> set[str]:
        """The decisions that are constrained."""
        return {*self.pins, *self.forbid}

    def of_kernels(self) -> Constraints:
        """The constraints on knobs of kernels: those whose names no choice of a graph pass has."""
        return Constraints(
            {k: v for k, v in self.pins.items() if k not in self.met},
            {k: v for k, v in self.forbid.items() if k not in self.met},
        )

    def check(self) -> None:
        """Raises UsageError if a pinned or forbidden name or value belongs to no choice or knob."""
        wanted = [("pinned", k, v) for k, v in self.pins.items()]
        wanted += [("forbidden", k, v) for k, values in self.forbid.items() for v in values]
        for verb, name, value in wanted:
            options = {**self.met.get(name, {}), **self.knobs.get(name, {})}
            if not options:
                near = _near(name, (*self.knobs, *self.met))
                raise UsageError(
                    f"{name!r} can't be {verb}: no kernel has a knob and the model no choice of "
                    f"that name{near}; knobs are {_listed(self.knobs)}; choices are "
                    + _listed(f"{k} ({_listed(v)})" for k, v in self.met.items())
                )
            if not any(same(o, value) for o in options):
                raise UsageError(
                    f"{name!r} can't be {verb} to {value!r}: where this model has it, it is one of "
                    f"{', '.join(map(repr, options))}"
                )


def nearest(options: tuple[V, ...], allowed: tuple[V, ...], value: V) -> V:
    """`value` if it is allowed, else the allowed value nearest to it in the order of `options`."""
    position = options.index(value)
    return min(allowed, key=lambda v: (v != value, abs(options.index(v) - position)))


def same(a: Value, b: Value) -> bool:
    """Whether two values are equal as JSON, where True differs from 1."""
    return type(a) is type(b) and a == b


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=3)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"
