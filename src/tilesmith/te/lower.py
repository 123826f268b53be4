"""Lowering: a scheduled tensor expression becomes a loop function (stage "nest").

    inline -> plan every stage, consumers first -> write the nests, with allocations around them

The schedule never changes the expression of an element.  An index that cannot be proved to be
inside its tensor gets a guard.  Where no guard is possible, ScheduleError is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.ir import interval as iv
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Load, Var, const, free_vars, substitute
from tilesmith.ir.extents import larger
from tilesmith.ir.simplify import EMPTY
from tilesmith.ir.types import Dim
from tilesmith.loop.nodes import Buffer, Func, Stmt, seq
from tilesmith.loop.passes.barriers import add_barriers
from tilesmith.loop.passes.bind_parts import bind_parts
from tilesmith.loop.passes.share import share
from tilesmith.support.arguments import checked
from tilesmith.support.depth import at_depth
from tilesmith.support.errors import ScheduleError, UsageError

from .lower_extern import extern_plan
from .lower_memory import STACK_BYTES, allocation, bytes_of_stack, halo, parameter
from .lower_nest import NestWriter, with_inner_guards
from .lower_plan import Region, StagePlan, make_plan
from .lower_region import region
from .lower_round import check_rounding
from .lower_scan import fold_steps, step_condition, whole_steps
from .lower_size import check_code, copies_around
from .lower_slide import ahead_of_readers, slid
from .lower_threads import check_scope
from .ranges import Readable, check_reads
from .relations import SplitRelation, dim
from .rewrite import map_loads
from .schedule import Schedule
from .state import At, StageState, State
from .tensor import Compute, Extern, Tensor

_SHALLOWER = "store a stage in between, with compute_root, instead of inlining all of them"


@checked(ScheduleError)
@at_depth(ScheduleError, "an expression", _SHALLOWER)
def lower(schedule: Schedule, args: Sequence[Tensor], name: str = "main") -> Func:
    """The loop function that computes the outputs of `schedule`.

    args: the tensors of the buffer parameters, in order.  They include each placeholder and at
        least one value of each output.

    Free variables of symbolic extents become scalar parameters after the buffers.  Raises
    ScheduleError if the schedule cannot be carried out, and UsageError for wrong `args`.
    """
    state = schedule.state
    _check_factors(state)
    bodies = inline(state)
    parameters = _parameters(state, args)
    symbols = _symbols(state)
    facts: Context = EMPTY
    for symbol in symbols:
        facts = facts.with_interval(symbol, iv.make(0, None))
    asserted = check_reads(schedule.ops, _readable(state), frozenset(symbols), facts)

    plans: dict[str, StagePlan] = {}
    needed: dict[str, list[Dim]] = {}
    stack = STACK_BYTES
    for stage_name in reversed(bodies):
        stage = state.stages[stage_name]
        plan = _plan(state, plans, stage, bodies[stage_name], facts)
        fold_steps(state, plans, plan, facts)
        plans[stage_name] = plan
        # the number of copies is 0 inside an unrolled loop of 0 iterations
        copies = max(copies_around(plans, plan), 1)
        _allocate(plan, parameters, needed.get(stage_name), stack // copies)
        stack -= copies * sum(map(bytes_of_stack, plan.buffers))
        check_scope(state, plans, plan)
        check_rounding(state, plans, plan, needed)
    check_code(plans)
    writer = NestWriter(state, plans, parameters)

    body: Stmt | None = None
    for plan in plans.values():  # consumers come first, so each nest is put before the earlier ones
        if plan.stage.attach == "root":
            nest = writer.nest(plan)
            body = writer.allocated(plan, nest if body is None else seq(nest, body))
    assert body is not None  # every schedule has an output
    body = seq(*asserted, body)
    outputs = tuple(b for (n, _), b in parameters.items() if not state.stages[n].is_placeholder)
    attrs = tuple(
        (f"pragma {n}.{axis} {key}", value)
        for n, s in state.stages.items()
        for axis, key, value in s.pragmas
    )
    func = Func(name, (*parameters.values(), *symbols), outputs, body, attrs)
    return bind_parts(add_barriers(share(func)))


def _readable(state: State) -> Readable:
    """The range of indices of a tensor that may be read: those of its elements and, for an
    argument, those of the zeros in its halo.
    """

    def room(tensor: Tensor, dimension: int) -> tuple[int, Dim]:
        stage = state.stages[state.tensors[tensor][0]]
        extent = tensor.shape[dimension]
        return halo(stage.layout, dimension, extent) if stage.is_placeholder else (0, extent)

    return room


def _check_factors(state: State) -> None:
    """Raises ScheduleError if the factor of a split is not a constant."""
    for stage in state.stages.values():
        for rel in stage.relations:
            if isinstance(rel, SplitRelation):
                size = rel.factor if rel.factor is not None else rel.nparts
                if not isinstance(size, int):
                    raise ScheduleError(
                        f"cannot lower {stage.name}: loop {rel.parent} is split by {size}, which "
                        "has no value yet; make the schedule with a number for it"
                    )


def _plan(
    state: State,
    plans: dict[str, StagePlan],
    stage: StageState,
    body: tuple[Expr, ...],
    facts: Context,
) -> StagePlan:
    op = stage.compute
    attach = stage.attach
    if isinstance(attach, At):
        target = plans[attach.stage]
        depth = target.depth(attach.axis)
        ahead = ahead_of_readers(state, plans, stage.name, target, depth)
        if stage.buffers > 1:
            outside = target.unguarded(depth)
        else:
            outside = target.context(depth, ahead)
        if isinstance(op, Extern):
            return extern_plan(stage, outside, ahead)
        condition = step_condition(state, plans, stage)
        regions = region(state, plans, stage.name, attach, ahead, condition)
        if stage.store is not None:
            return slid(state, plans, stage, body, regions, ahead)
        if condition is not None:
            outside = outside.assuming(condition)
        plan = make_plan(stage, body, whole_steps(stage, regions), outside)
        plan = with_inner_guards(state, plan)
        plan.ahead = ahead
        plan.conditions = () if condition is None else (condition,)
        return plan
    if isinstance(op, Extern):
        return extern_plan(stage, facts)
    whole = tuple(Region(const(0), dim(a.extent)) for a in op.axis)
    return with_inner_guards(state, make_plan(stage, body, whole, facts))


def _allocate(
    plan: StagePlan,
    parameters: dict[tuple[str, int], Buffer],
    needed: list[Dim] | None,
    stack: int,
) -> None:
    """Give `plan` its buffers.  Outputs use the caller's buffers.  Other buffers are as large as
    the region that the stage computes or must hold.

    needed: lower bounds on the extents of the buffers, or None.
    stack: bytes of stack that are left for the buffers.
    """
    stage = plan.stage
    axes = stage.compute.axis
    if stage.is_output:
        plan.origin = tuple(const(0) for _ in axes)
    else:
        plan.origin = tuple(r.start for r in plan.storage or plan.regions)
    if isinstance(stage.op, Extern):
        shape = list(stage.op.shape)
    elif stage.is_output:  # such a stage is indexed like an argument
        shape = [dim(a.extent) for a in axes]
    else:
        shape = [plan.spans[a.var] for a in axes]
    if plan.storage is not None:
        shape = [r.extent for r in plan.storage]
    for n, size in enumerate(needed or ()):
        shape[n] = larger(shape[n], size)
    for n, factor in enumerate(plan.folds):
        shape[n] = factor or shape[n]
    buffers: list[Buffer] = []
    for v in range(len(stage.op.outputs)):
        made = parameters.get((stage.name, v))
        several = isinstance(stage.op, Extern) and v > 0  # results may have different shapes
        size = stage.op.outputs[v].shape if several else tuple(shape)
        made = made or allocation(_unlaid(stage, plan), v, size, stack)
        stack -= bytes_of_stack(made)
        buffers.append(made)
    plan.buffers = tuple(buffers)


def _unlaid(stage: StageState, plan: StagePlan) -> StageState:
    """`stage` with the pipeline depth 1 if `stage` is an output; other stages are unchanged.  So an
    output value that is not among the arguments gets a single buffer.
    """
    return replace(stage, buffers=1) if stage.is_output else stage


def _parameters(state: State, args: Sequence[Tensor]) -> dict[tuple[str, int], Buffer]:
    """The buffers of `args`, in order, by stage name and value number.  Raises UsageError for
    `args` that `lower` refuses.
    """
    buffers: dict[tuple[str, int], Buffer] = {}
    for arg in args:
        key = state.tensors.get(arg) if isinstance(arg, Tensor) else None
        if key is None:
            raise UsageError(f"lower: argument {arg!r} is no tensor of this schedule")
        stage = state.stages[key[0]]
        if not stage.is_placeholder and not stage.is_output:
            raise UsageError(
                f"lower: {arg.name} is an intermediate result; arguments are placeholders and "
                "outputs of the "
                "schedule (name it in create_schedule to make it one)"
            )
        if key in buffers:
            raise UsageError(f"lower: {arg.name} is given twice")
        buffers[key] = parameter(stage, key[1])
    passed = {name for name, _ in buffers}
    missing = [
        n for n, s in state.stages.items() if (s.is_placeholder or s.is_output) and n not in passed
    ]
    if missing:
        raise UsageError(
            f"lower: args lack {', '.join(missing)}; give every placeholder and output"
        )
    return buffers


def _symbols(state: State) -> tuple[Var, ...]:
    """The free variables of extents and the symbolic dimensions used in elements, by first use."""
    symbols: dict[Var, None] = {}
    for stage in state.stages.values():
        shapes = (n for t in stage.op.outputs for n in t.shape)
        for extent in (*shapes, *(a.extent for a in stage.root_axes)):
            if isinstance(extent, Expr):
                symbols.update(dict.fromkeys(sorted(free_vars(extent), key=lambda v: v.name)))
        if isinstance(stage.op, Compute):
            inside = (v for e in stage.op.body for v in free_vars(e) if v.sizes is not None)
            symbols.update(dict.fromkeys(sorted(inside, key=lambda v: v.name)))
    return tuple(symbols)


Read = tuple[str, int]


def inline(state: State) -> dict[str, tuple[Expr, ...]]:
    """The bodies of the stages that have loops, with inlined stages substituted.  If a rewrite has
    replaced the operation of a stage, Loads of its old tensors become Loads of the new ones.

    A stage that is no output and that no stage reads any more is left out.
    """
    tensors: dict[Read, Tensor] = {}
    for name, stage in state.stages.items():
        for t in stage.op.outputs:
            tensors[name, t.index] = t
    inlined: dict[str, tuple[Expr, ...]] = {}
    bodies: dict[str, tuple[Expr, ...]] = {}

    def resolve(load: Load) -> Expr:
        assert isinstance(load.buffer, Tensor)
        read = state.tensors[load.buffer]
        body = inlined.get(read[0])
        if body is None:
            current = tensors[read]
            return load if current is load.buffer else Load(current, load.indices)
        axes = state.stages[read[0]].compute.axis
        return substitute(
            body[read[1]], {a.var: i for a, i in zip(axes, load.indices, strict=True)}
        )

    consumers = state.consumers()
    for name, stage in state.stages.items():
        if stage.is_placeholder or not (consumers[name] or stage.is_output):
            continue
        body = map_loads(stage.compute.body, resolve)
        (inlined if stage.attach == "inline" else bodies)[name] = body
    return bodies
