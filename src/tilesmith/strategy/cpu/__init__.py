"""Default schedules for CPUs, chosen by an analytic model without measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tilesmith.graph.nodes import Graph
from tilesmith.ir.target import Target
from tilesmith.ir.types import same_dim
from tilesmith.loop.nodes import Func
from tilesmith.strategy import attempts
from tilesmith.strategy.attempts import Rule
from tilesmith.strategy.group import STEP, Group, group_tensors
from tilesmith.strategy.irregular import is_irregular
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule

from .ahead import is_used_again
from .attention import is_attention, schedule_attention, with_scaled_results
from .borders import with_zero_halos
from .concat import is_concat, lower_concat
from .dots import schedule_dots
from .injective import schedule_injective
from .irregular import lower_irregular
from .matmul import schedule_contraction
from .product import Product, product_of
from .reduction import schedule_reductions
from .rows import row_producer, schedule_rows
from .scaled_chunks import schedule_scaled_chunks
from .scaled_rows import schedule_scaled_rows
from .tile_dots import schedule_tiles
from .winograd import schedule_winograd, winograd_op


def expressions(body: Graph) -> Group:
    """The tensor expressions of a fused group that rules schedule."""
    group = group_tensors(body)
    return with_scaled_results(group) if is_attention(group) else group


def schedules(
    body: Graph, target: Target, cfg: Config = ANALYTIC
) -> Iterator[tuple[Schedule, Group]]:
    """Schedules of a fused group, one from each rule that applies, best first, each with the tensor
    expressions that it schedules.
    """
    group = expressions(body)

    def named(rule: _Form) -> Rule:
        def made(cfg: Config) -> tuple[Schedule, Group] | None:
            s = group.schedule()
            return None if rule(s, group, target, cfg) is False else (s, group)

        return made

    return attempts.schedules(((n, named(r)) for n, r in _forms(body, group, target)), body, cfg)


def schedule(body: Graph, target: Target, cfg: Config = ANALYTIC) -> tuple[Schedule, Group]:
    """The best schedule of a fused group, and its tensor expressions.  The default decisions are
    analytic.
    """
    return next(schedules(body, target, cfg))


_Form: TypeAlias = Callable[[Schedule, Group, Target, Config], "bool | None"]
"""Adds steps to an empty schedule.  Returns False without adding steps for an unknown form of
group.
"""


def _forms(body: Graph, group: Group, target: Target) -> Iterator[tuple[str, _Form]]:
    """The rules to try, by name."""
    if any(same_dim(a.extent, 0) for st in group.stages for a in (*st.axis, *st.reduce_axis)):
        pass  # empty loops and empty sums need no schedule
    elif is_attention(group):
        yield "attention", lambda s, group, target, cfg: schedule_attention(s, group, target)
    elif (op := winograd_op(body)) is not None:
        yield "Winograd's convolutions", partial(schedule_winograd, op)
    else:
        yield "products in scaled chunks", schedule_scaled_chunks
        if (product := product_of(group, target)) is not None:
            for name, form in _PRODUCTS:
                yield name, partial(_product, form, product)
        if len({t.op for t in group.outputs}) == 1 and any(st.reduce_axis for st in group.stages):
            yield "reductions", schedule_reductions
        yield "elementwise loops", _stage_by_stage
    yield "plain loops", lambda s, group, target, cfg: None


_PRODUCTS = (
    ("products with sums along lanes", schedule_dots),
    ("products with scaled rows", schedule_scaled_rows),
    ("products on tiles", schedule_tiles),
    ("products", schedule_contraction),
)


def _product(
    form: Callable[[Schedule, Product, Config], bool],
    product: Product,
    s: Schedule,
    group: Group,
    target: Target,
    cfg: Config,
) -> bool:
    return form(s, product, cfg)


def _stage_by_stage(s: Schedule, group: Group, target: Target, cfg: Config) -> None:
    """Give results, reductions and repeatedly read values their own loop nests; inline other
    stages.
    """
    outputs = {t.op for t in group.outputs}
    reductions = {st for st in group.stages if st.reduce_axis}
    kept = [
        st for st in group.stages if st in outputs or st in reductions or is_used_again(group, st)
    ]
    rows = {st: row_producer(group, st, kept, target) for st in kept if not st.reduce_axis}
    buffered = {r.producer for r in rows.values() if r is not None}
    for st in group.stages:
        if st not in kept and st not in buffered:
            s[st.outputs[0]].compute_inline()
    for i, st in enumerate(kept):  # every kept stage has its own loop nest
        own = cfg.under(str(i)) if i else cfg
        if (in_rows := rows.get(st)) is not None:
            schedule_rows(s, group, st, in_rows, target, kept, own)
        else:
            schedule_injective(s, group, st, target, keep=kept, cfg=own)


def is_generic(body: Graph, group: Group) -> bool:
    """Whether generic schedules apply: the tensor expressions describe the whole group."""
    return not is_attention(group) and winograd_op(body) is None


def lower_by_rule(body: Graph, target: Target, name: str, cfg: Config = ANALYTIC) -> Func:
    """The loop nest of a fused group's kernel.  Parameters are inputs, then outputs."""
    if is_concat(body):
        return lower_concat(body, target, name)
    if is_irregular(body):
        return lower_irregular(body, target, name)
    return attempts.first_lowered(
        schedules(body, target, cfg),
        lambda s, group: lower_scheduled(s, group, target, name),
        body,
        cfg,
    )


def lower_plain(body: Graph, target: Target, name: str) -> Func:
    """The kernel of a fused group with a loop nest for each of its stages."""
    group = group_tensors(body)
    return lower_scheduled(group.schedule(), group, target, name)


def lower_scheduled(s: Schedule, group: Group, target: Target, name: str) -> Func:
    """The kernel of a group with a given schedule."""
    func = with_zero_halos(lower(s, group.args, name), group, target)
    steps = tuple((STEP, line) for line in s.text().splitlines())
    return replace(func, attrs=(*func.attrs, *steps))
