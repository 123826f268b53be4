"""What a model needs that Tilesmith cannot do: collected during the walk, reported all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.support.errors import UnsupportedError

from .errors import ValuesNeededError

_SHOWN = 4
"""Places named for each problem."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node of the source model, for messages.

    operator: its qualified name in the source format, such as "Relu" or "aten.relu.default".
    version: of the operator set, in words ("opset 13"); empty where the format has none.
    loc: the node's name.
    """

    operator: str
    version: str
    loc: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something unsupported.

    site: where.
    message: what.
    inputs: model inputs whose values would solve it; None if nothing would.
    """

    site: Site
    message: str
    inputs: tuple[str, ...] | None = None


def report(problems: Sequence[Problem]) -> UnsupportedError:
    """One error for everything that a model needs and Tilesmith cannot do, by operator."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for p in problems:
        groups.setdefault((p.site.operator, p.site.version, p.message), []).append(p.site.loc)
    lines = []
    for (operator, version, message), locs in groups.items():
        what = f"{operator} ({version})" if version else operator
        more = f" and {len(locs) - _SHOWN} more" if len(locs) > _SHOWN else ""
        lines.append(f"{what} at {', '.join(map(repr, locs[:_SHOWN]))}{more}: {message}")
    kinds = len({p.site.operator for p in problems})
    shown = (
        f"{len(problems)} node{'s' * (len(problems) != 1)} of {kinds} "
        f"operator{'s' * (kinds != 1)} cannot be compiled: {'; '.join(lines)}"
    )
    if all(p.inputs is not None for p in problems):
        needed = dict.fromkeys(i for p in problems for i in p.inputs or ())
        return ValuesNeededError(shown, tuple(needed))
    return UnsupportedError(shown)
