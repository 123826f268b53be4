"""Search spaces for any tensor expression, made by rules.  Each rule applies where the structure
allows it.

    scan                       recurrences
    winograd                   convolutions with a 3x3 window by minimal filtering
    inline / store / root      where stages without reductions are computed
    rfactor                    long reductions to few elements, part by part
    block                      reductions in blocks of a loop of their reader, a reduction
    fuse, cache write          reductions in the tile of their reader, accumulators
    tile, pack, order, unroll  loops of each nest
    parallel

The first knobs of the space select rules and their form (the *sketch*); later knobs are numbers.
Without decisions the result is the analytic schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.ops.structure import stages
from tilesmith.strategy.group import Group
from tilesmith.support.errors import UsageError
from tilesmith.support.options import BOUNDS
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.stage import Axis
from tilesmith.te.tensor import Extern, Placeholder, Tensor

from .nest import schedule_nest
from .place import block_nests, factor_reductions, form_nests, merge_nests, place_injective
from .scans import schedule_scans
from .winograd import filter_windows, schedule_filtered

NAME = "generated 3"
"""Name of generated templates in tuning records.  The number is the version of the rules."""

BOUND = BOUNDS["default"]["f32"]

Generated: TypeAlias = "Callable[[Config], tuple[Schedule, Sequence[Tensor]]]"


def generated(args: Sequence[Tensor], target: Target, bound: float = BOUND) -> Generated:
    """A template over all schedules that the rules can make for an expression.

    args: the parameters of the kernel, placeholders and outputs.
    bound: the error that the accuracy policy allows for float32.

    Raises UsageError if nothing is computed.
    """
    inputs = tuple(a for a in args if isinstance(a.op, Placeholder))
    outputs = tuple(a for a in args if not isinstance(a.op, Placeholder))
    if not outputs:
        raise UsageError("none of the arguments is an output: give the computed tensors, too")
    group = Group(inputs, outputs, stages(outputs), {})

    def template(cfg: Config) -> tuple[Schedule, Sequence[Tensor]]:
        s = group.schedule()
        schedule_expression(s, group, target, cfg, bound)
        return s, args

    template.__name__ = NAME
    return template


def default_schedule(args: Sequence[Tensor], target: Target, bound: float = BOUND) -> Schedule:
    """The schedule of an expression that the rules choose by default; nothing is measured."""
    return generated(args, target, bound)(ANALYTIC)[0]


def schedule_expression(
    s: Schedule, group: Group, target: Target, cfg: Config, bound: float = 0.0
) -> None:
    """Schedule the whole of a group; the only steps of `s` so far are the layouts of parameters.

    bound: as for `generated`; by default no rewriting changes the rounding.
    """
    if any(same_dim(a.extent, 0) for st in group.stages for a in (*st.axis, *st.reduce_axis)):
        return  # empty loops and empty sums need no schedule
    filtered = filter_windows(s, target, bound, cfg)
    apart = {f.name for f in filtered} | {s[t].name for f in filtered for t in f.stages}
    apart |= schedule_scans(s, target)
    apart |= {st.name for st in s.stages if isinstance(st.op, Extern)}
    tiled = place_injective(s, target, cfg, apart)
    factor_reductions(s, target, cfg, apart)
    nests = merge_nests(s, form_nests(s, tiled, cfg, apart), target, cfg)
    block_nests(s, nests, target, cfg)
    blocks: dict[str, Axis] = {}
    for nest in nests:
        schedule_nest(s, group, nest, target, blocks, cfg)
    for f in filtered:
        schedule_filtered(s, f, target, cfg)
