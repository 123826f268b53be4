"""What a user wants of the choices that graph passes make: values pinned, values forbidden.

Unlike decisions of kernels, where constraints are on what is tried, these hold for the graph: no
pass makes another choice, whatever the costs or the records say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tilesmith.graph.passes.choices import V
from tilesmith.strategy.knobs import Decisions, Value
from tilesmith.support.errors import UsageError


@dataclass(frozen=True, slots=True)
class Constraints:
    """`pins`: the value that a choice is to have, by its name, wherever that is an option;
    `forbid`: values that it is not to have, wherever there is another one.  `met`: the names and
    values of all choices that asked.
    """

    pins: Decisions = field(default_factory=dict)
    forbid: Mapping[str, Collection[Value]] = field(default_factory=dict)
    met: dict[str, dict[Value, None]] = field(default_factory=dict)

    def allowed(self, knob: str, options: tuple[V, ...]) -> tuple[V, ...]:
        """The options of a choice that are left.  Raises UsageError when all are forbidden."""
        self.met.setdefault(knob, {}).update(dict.fromkeys(options))
        if knob in self.pins:
            pinned = tuple(o for o in options if _same(o, self.pins[knob]))
            if pinned:
                return pinned
        forbidden = self.forbid.get(knob, ())
        if not forbidden or len(options) == 1:
            return options
        left = tuple(o for o in options if not any(_same(o, f) for f in forbidden))
        if not left:
            named = ", ".join(map(repr, options))
            raise UsageError(f"choice {knob}: all of its values are forbidden: {named}")
        return left

    def obeyed(self) -> set[str]:
        """The names of `pins` and `forbid` of which some choice had a value as an option."""
        wanted = {k: (v,) for k, v in self.pins.items()}
        wanted |= {k: (*wanted.get(k, ()), *v) for k, v in self.forbid.items()}
        return {
            name
            for name, values in wanted.items()
            if any(_same(o, v) for o in self.met.get(name, ()) for v in values)
        }


def nearest(options: tuple[V, ...], allowed: tuple[V, ...], value: V) -> V:
    """`value`, or the allowed one next to it."""
    at = options.index(value)
    return min(allowed, key=lambda v: (v != value, abs(options.index(v) - at)))


def _same(a: Value, b: Value) -> bool:
    """Equal as JSON: True is not 1."""
    return type(a) is type(b) and a == b
