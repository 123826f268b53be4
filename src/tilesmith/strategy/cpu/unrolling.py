"""The number of reduction steps that a micro-kernel unrolls."""

from __future__ import annotations

from tilesmith.ir.target import Target

UNROLL_FACTORS = (1, 2, 3, 4, 5, 7, 8)
"""Steps that may be unrolled if they divide the reduction: powers of two, and sizes of windows."""

MAX_UNROLLED = 128
"""Upper bound on multiply-adds in an unrolled loop body, which must fit the instruction caches."""

DISPLACED = 1 / 32
"""Upper bound on loop overhead (counter and branch), as a fraction of the time of the
multiply-adds.
"""


def unrolled_steps(extent: int, fmas: int, target: Target) -> int:
    """The number of reduction steps to unroll, each with `fmas` multiply-adds."""
    lost = target.model.loop_fmas / fmas
    fitting = (n for n in UNROLL_FACTORS if extent % n == 0 and n * fmas <= MAX_UNROLLED)
    enough = (n for n in UNROLL_FACTORS if lost <= DISPLACED * n)
    least = next(enough, UNROLL_FACTORS[-1])
    return max((n for n in fitting if n <= least), default=1)
