"""What users hear of operators that run elsewhere: on the host because there is no native code for
them, on the CPU because a device can't run them.
"""

from __future__ import annotations

import warnings
from collections import Counter

from tilesmith.runtime.program import Program


class FallbackWarning(UserWarning):
    """Operators of a model run on the host, by ONNX's reference evaluator, or on the CPU instead of
    a device.
    """


def warn_of_fallback(program: Program) -> None:
    """One warning that names the operators without native code, and their share of the nodes."""
    counts = Counter(c.operator for c in program.host_calls if c.is_fallback)
    if not counts:
        return
    nodes = {name for c in program.calls for name in c.sources or (c.label,)}
    nodes |= {c.label for c in program.host_calls}
    shown = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in counts.most_common())
    share = counts.total() / max(len(nodes), 1)
    warnings.warn(
        f"{counts.total()} of the model's {len(nodes)} nodes ({share:.0%}) have no native code and "
        f'run on the host, by ONNX\'s reference evaluator: {shown}; fallback="error" refuses them',
        FallbackWarning,
        stacklevel=3,
    )


def warn_of_cpu(program: Program) -> None:
    """One warning that names the operators that a device leaves to the CPU."""
    told = program.metadata["on_cpu"]
    shown = ", ".join(f"{name} ({n})" if n > 1 else name for name, _, n in told)
    reasons = "; ".join(dict.fromkeys(why for _, why, _ in told))
    count = len(program.transfers)
    warnings.warn(
        f"{sum(n for *_, n in told)} operators run on the CPU, not on {program.target.name!r}: "
        f'{shown} ({reasons}), and {count} values are copied; fallback="error" refuses them',
        FallbackWarning,
        stacklevel=3,
    )
