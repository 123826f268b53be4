"""What a model needs that Tilesmith cannot do: collected during the walk, reported all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.frontend.onnx.errors import ValuesNeededError
from tilesmith.support.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Problem:
    """Something unsupported: which operator, where."""

    op_type: str
    domain: str
    version: int
    loc: str
    message: str
    inputs: tuple[str, ...] | None
    """Model inputs whose values would solve it; None when nothing would."""


def report(problems: Sequence[Problem], name: str) -> UnsupportedError:
    """One error for everything that a model needs and Tilesmith cannot do, by operator."""
    groups: dict[tuple[str, str, int, str], list[str]] = {}
    for p in problems:
        groups.setdefault((p.op_type, p.domain, p.version, p.message), []).append(p.loc)
    lines = []
    for (op_type, domain, version, message), locs in groups.items():
        what = f"{domain}.{op_type}" if domain else op_type
        opset = f" (opset {version})" if version else ""
        at = ", ".join(map(repr, locs[:4])) + (
            f" and {len(locs) - 4} more" if len(locs) > 4 else ""
        )
        lines.append(f"{what}{opset} at {at}: {message}")
    kinds = len({(p.domain, p.op_type) for p in problems})
    nodes = f"{len(problems)} node{'s' * (len(problems) != 1)}"
    head = f"{name}: {nodes} of {kinds} operator{'s' * (kinds != 1)}"
    shown = f"{head} cannot be compiled: " + "; ".join(lines)
    if all(p.inputs is not None for p in problems):
        needed = dict.fromkeys(i for p in problems for i in p.inputs or ())
        return ValuesNeededError(shown, tuple(needed))
    return UnsupportedError(shown)
