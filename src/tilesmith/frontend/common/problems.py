"""Features of a model that Tilesmith lacks: collected during import, then reported together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.ir.types import Dim
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError

from .errors import ValuesNeededError

_SHOWN = 4
"""Upper bound on the nodes that the message names for each problem."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node of the source model, for messages.

    operator: the operator's qualified name in the source format, such as "Relu" or
        "aten.relu.default".
    version: version of the operator set, in words ("opset 13"); empty if the format has none.
    loc: the node's name.
    """

    operator: str
    version: str
    loc: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An unsupported feature.

    site: the node that has the feature.
    message: description of the problem.
    inputs: model inputs whose values would solve the problem; None if there are none.
    is_open: whether numbers for open dimensions would solve the problem.
    dims: the extents concerned, if they are known.
    """

    site: Site
    message: str
    inputs: tuple[str, ...] | None = None
    is_open: bool = False
    dims: tuple[Dim, ...] = ()


def shapes_hint(name: str) -> str:
    """Advice about an input with open dimensions."""
    return (
        f"Give their shapes: shapes={{{name!r}: (1, ...)}}, or --shape {name}=1,... on the command "
        "line"
    )


def report(problems: Sequence[Problem], open_inputs: Sequence[str] = ()) -> ModelError:
    """One error for all unsupported features of a model, grouped by operator.

    open_inputs: the inputs with open dimensions.  The error's advice is about the first.
    """
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
    if open_inputs and all(p.is_open or p.inputs is not None for p in problems):
        return OpenShapesError(f"{shown}. {shapes_hint(open_inputs[0])}", open_inputs)
    if all(p.inputs is not None for p in problems):
        needed = dict.fromkeys(i for p in problems for i in p.inputs or ())
        return ValuesNeededError(shown, tuple(needed))
    return UnsupportedError(shown)
