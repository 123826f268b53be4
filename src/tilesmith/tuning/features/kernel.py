"""The features of a kernel: a fixed list of numbers for every schedule of every workload.

The features of the kernel as a whole come first, then those of its `STATEMENTS` largest statements;
missing ones are 0.
"""

from __future__ import annotations

from tilesmith.te.state import At, State

from .algebra import Number, add, largest, log, mul, product, total
from .footprint import SymbolicFootprints
from .nest import Statement, SymbolicNest
from .operations import operations
from .statement import (
    STATEMENT,
    FeatureSetting,
    StatementFeatures,
    nominal,
    size,
    statement_features,
)

STATEMENTS = 3

_KERNEL = (
    "seconds", "statements", "other_seconds", "arithmetic",
    *(f"traffic_{c}" for c in ("l1", "l2", "l3")),
    "forks", "body", "footprint", "allocated", "attached",
)  # fmt: skip

_KERNELS = tuple(f"kernel_{name}" for name in _KERNEL)
_STATEMENTS = tuple(f"s{n}_{name}" for n in range(STATEMENTS) for name in STATEMENT)
OWN = _KERNELS + _STATEMENTS
"""Names of the features that describe one schedule, without comparison to another."""
COMPARED = len(_KERNELS) + len(STATEMENT)
"""Number of features that are also compared with those of the analytic schedule.  They are the
features of the kernel and of its largest statement.  The difference hardly depends on the
workload's size.
"""
FEATURES: tuple[str, ...] = (*OWN, *(f"more_{name}" for name in OWN[:COMPARED]))
"""Names of all features, in order.  `kernel_seconds` is the prior's prediction, as `log(1 +
nanoseconds)`; other sizes, counts and times are `log(1 + x)` too.  `more_…` is the difference of a
feature from that of the analytic schedule.
"""

SECONDS = FEATURES.index("kernel_seconds")


def kernel_features(state: State, machine: FeatureSetting) -> list[Number]:
    """The values of `OWN` for a schedule's state."""
    nest = SymbolicNest(state)
    prints = SymbolicFootprints(nest)
    # Producers before consumers, and the largest first: this order does not depend on the knobs'
    # values.
    ranked = sorted(nest.statements.values(), key=_work, reverse=True)
    statements = [statement_features(nest, prints, s, machine) for s in ranked]
    values: dict[str, Number] = {
        f"kernel_{k}": v for k, v in _kernel(nest, prints, statements, ranked).items()
    }
    for n, f in enumerate(statements[:STATEMENTS]):
        values.update({f"s{n}_{k}": v for k, v in f.values.items()})
    return [values.get(name, 0.0) for name in OWN]


def _work(s: Statement) -> float:
    return nominal(a.extent for a in s.stage.root_axes) * (1 + sum(operations(s.body).values()))


def _kernel(
    nest: SymbolicNest,
    prints: SymbolicFootprints,
    statements: list[StatementFeatures],
    ranked: list[Statement],
) -> dict[str, Number]:
    seconds = total(f.seconds for f in statements)
    stages = [s.stage for s in ranked]
    allocated = total(
        mul(product(nest.shape((s.name, v))), t.dtype.bytes)
        for s in stages
        if not s.is_output
        for v, t in enumerate(s.op.outputs)
    )
    return {
        "seconds": log(add(mul(seconds, 1e9), 1.0)),
        "statements": float(len(statements)),
        "other_seconds": log(add(mul(total(f.seconds for f in statements[1:]), 1e9), 1.0)),
        "arithmetic": size(total(f.arithmetic for f in statements)),
        **{
            f"traffic_{c}": size(total(f.traffic[n] for f in statements))
            for n, c in enumerate(("l1", "l2", "l3"))
        },
        "forks": size(total(f.forks for f in statements)),
        "body": size(largest(f.body for f in statements)),
        "footprint": size(prints.whole),
        "allocated": size(allocated),
        "attached": float(sum(isinstance(s.attach, At) for s in stages)),
    }
