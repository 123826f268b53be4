"""What a user wants of the decisions about a model: values pinned, values forbidden.

Choices of graph passes and knobs of kernels are called alike: by name, wherever they are met.  They
hold whatever the costs or the records say.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tilesmith.graph.passes.choices import V
from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import Decisions, Value, values_from_json

from .space import Forbidden, Space

Met = dict[str, dict[Value, None]]
"""The values that decisions could have, by name."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """`pins`: the value that a decision is to have, by its name, wherever that is an option;
    `forbid`: values that it is not to have, wherever there is another one.  `met`: the names and
    values of all choices of graph passes that asked; `knobs`: of kernels.  `spaces`: what is left
    of the schedules of kernels, by workload.
    """

    pins: Decisions = field(default_factory=dict)
    forbid: Forbidden = field(default_factory=dict)
    met: Met = field(default_factory=dict)
    knobs: Met = field(default_factory=dict)
    spaces: dict[str, Space] = field(default_factory=dict)

    @staticmethod
    def of(pins: Decisions | None, forbid: Forbidden | None) -> Constraints | None:
        """What a user gave, lists standing for tuples; None when that is nothing.  Raises
        UsageError when it is no mapping, or `forbid` has no collections of values.
        """
        for name, given in (("pins", pins), ("forbid", forbid)):
            if given is not None and not isinstance(given, Mapping):
                raise UsageError(f"{name} must map names to values, not {given!r}")
        for knob, values in (forbid or {}).items():
            if not isinstance(values, Collection) or isinstance(values, str):
                raise UsageError(f"forbid[{knob!r}] must be a list of values, not {values!r}")
        if not pins and not forbid:
            return None
        lists = {k: list(v) for k, v in (forbid or {}).items()}
        tuples = {k: tuple(values_from_json({k: v})[k] for v in vs) for k, vs in lists.items()}
        return Constraints(values_from_json(pins or {}), tuples)

    def allowed(self, knob: str, options: tuple[V, ...]) -> tuple[V, ...]:
        """The options of a choice that are left.  Raises UsageError when all are forbidden."""
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
        """Those that are about knobs of kernels: no choice of a graph pass has their names."""
        return Constraints(
            {k: v for k, v in self.pins.items() if k not in self.met},
            {k: v for k, v in self.forbid.items() if k not in self.met},
        )

    def check(self) -> None:
        """Raises UsageError when neither a choice nor a knob that was met has a name, or a value,
        that is pinned or forbidden.
        """
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
    """`value`, or the allowed one next to it."""
    at = options.index(value)
    return min(allowed, key=lambda v: (v != value, abs(options.index(v) - at)))


def same(a: Value, b: Value) -> bool:
    """Equal as JSON: True is not 1."""
    return type(a) is type(b) and a == b


def _near(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(names), n=3)
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"
