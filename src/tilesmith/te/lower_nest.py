"""Lowering, third pass: write planned stages as statements.

    for outer spatial loops:
        attached producers
        initial value (in a copy of the spatial loops below)
        for outermost reduction loop:
            ...
                update

The nest of a stage without reduction has no initial value.

A guard is placed just inside the innermost loop on which it depends.  But some stages computed in
that loop must run even where the guard is false: stages that slide ahead (`lower_slide`), and
stages that all threads of a block compute together.  Then the guard is placed after these stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilesmith.ir import expr as ir
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Var, const, free_vars, substitute
from tilesmith.ir.loop_tables import ALLOCATED, LOOP_KINDS, SCOPES
from tilesmith.ir.simplify import simplify
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, If, Stmt, seq
from tilesmith.support.errors import ScheduleError

from .lower_exchange import exchanged, is_exchanged
from .lower_extern import extern_nest
from .lower_memory import physical_indices
from .lower_pipeline import Pipeline, slots
from .lower_plan import NOT_AHEAD, PlacedGuard, StageLoop, StagePlan, read_of
from .lower_prefetch import PrefetchWriter
from .lower_threads import bound_loop, by_one, by_warp, check_intrinsic, is_of_warp, is_shared
from .relations import Guard, dim, dim_expr
from .rewrite import map_loads
from .state import At, State
from .tensor import Extern, Reduce


class NestWriter:
    """Writes the nests of all stages of one function."""

    def __init__(
        self,
        state: State,
        plans: dict[str, StagePlan],
        parameters: Mapping[tuple[str, int], Buffer],
    ) -> None:
        self.state = state
        self.plans = plans
        self.parameters = parameters
        self._prefetches = PrefetchWriter(self, state, plans)
        self.loops: dict[Var, tuple[str, StageLoop]] = {}
        """Stage and loop of each loop variable, to check that register indices are unrolled."""
        self.slots = slots(state, plans)
        """For each stage that is computed ahead, the leading index into its memory at which the
        current iteration reads (its slot).
        """
        self.attached: dict[At, list[StagePlan]] = {}
        """For each loop, the stages computed at that loop."""
        self.stored: dict[At | str, list[StagePlan]] = {}
        """For each loop, or stage as a whole, the stages whose memory is allocated there."""
        for name in state.stages:
            stage = state.stages[name]
            if name in plans and isinstance(stage.attach, At):
                self.attached.setdefault(stage.attach, []).append(plans[name])
                if stage.store is not None:
                    own = isinstance(stage.store, At) and stage.store.stage == stage.attach.stage
                    place = stage.store if own else stage.attach.stage
                    self.stored.setdefault(place, []).append(plans[name])

    def nest(self, plan: StagePlan) -> Stmt:
        """The loops of one stage, with all attached stages inside."""
        if isinstance(plan.stage.op, Extern):
            return self._extern(plan)
        for loop in plan.loops:
            self.loops[loop.var] = (plan.stage.name, loop)
        body = self._update(plan)
        split, tensorized = plan.first_reduce, plan.stage.tensorized
        together = is_of_warp(plan.stage)
        if together and tensorized is None:
            body = by_warp(self.state, self.plans, plan, body)
        if split is not None and tensorized is not None:
            split = min(split, plan.depth(tensorized[0]))
        entry = self._entry(plan)
        for depth in reversed(range(len(plan.loops))):
            loop = plan.loops[depth]
            place = At(plan.stage.name, loop.name)
            here = self.attached.get(place, [])
            ahead = [p for p in here if p.stage.buffers > 1 and not loop.is_unit]
            for mark in plan.stage.prefetches:
                if mark.place == loop.name:
                    body = seq(*self._prefetches.statements(plan, depth, mark), body)
            if depth == entry:
                body = entered(plan, depth, NOT_AHEAD, body)
            body = guarded(body, [g for g in plan.guards if g.is_inner and g.depth == depth])
            for producer in reversed([p for p in here if p not in ahead]):
                nest = self.nest(producer)
                if depth <= entry:
                    nest = entered(plan, depth, producer.ahead, nest)
                body = self._owned(producer, seq(nest, body))
            for producer in self.stored.get(place, ()):
                body = self.allocated(producer, body)
            body = guarded(
                body,
                [
                    g
                    for g in plan.guards
                    if g.depth == depth and not g.is_inner and not is_late(plan, g, entry)
                ],
            )
            pipeline = Pipeline(loop, [(p.stage, self.nest(p)) for p in ahead])
            body = pipeline.iteration(body)
            if not loop.is_unit:
                early = plan.early.get(loop.var, 0)
                extent = dim_expr(dim(loop.extent + early))
                made = nodes.For(loop.var, const(-early), extent, loop.kind, body)
                body = bound_loop(self.state, self.plans, plan, loop, made)
            elif LOOP_KINDS[loop.kind].level and plan.stage.attach == "root":
                # a loop over a device index makes a launch, even if it has one iteration
                made = nodes.For(loop.var, const(0), const(1), loop.kind, body)
                body = bound_loop(self.state, self.plans, plan, loop, made)
            if tensorized is not None and tensorized[0] == loop.name:
                check_intrinsic(plan.stage, tensorized[1])
                body = nodes.Tensorize(tensorized[1], body)
                if together:
                    body = by_warp(self.state, self.plans, plan, body)
            body = pipeline.filled(body)
            for producer in ahead:
                body = self.allocated(producer, body)
            if depth == split:
                initial = self._initial(plan, depth)
                if together:
                    initial = by_warp(self.state, self.plans, plan, initial)
                if depth <= entry:
                    initial = entered(plan, depth - 1, NOT_AHEAD, initial)
                body = seq(initial, body)
                if is_exchanged(plan):
                    body = seq(body, self._over_elements(plan, depth, self._exchanged(plan)))
        for producer in self.stored.get(plan.stage.name, ()):
            body = self.allocated(producer, body)
        body = guarded(body, [g for g in plan.guards if g.depth < 0])
        if is_shared(plan.stage):
            body = by_one(self.state, self.plans, plan, body)
        return guarded(body, [PlacedGuard(Guard(c, "peel"), -1, False) for c in plan.conditions])

    def _extern(self, plan: StagePlan) -> Stmt:
        """The loops of a stage that a user wrote."""
        ctx, name = plan.context(), plan.stage.name
        return extern_nest(
            plan, self._loader(ctx), lambda buffer, at: self.physical(name, buffer, at, ctx)
        )

    def _entry(self, plan: StagePlan) -> int:
        """The number of the innermost loop at which an attached stage slides; -1 if there is none.
        Guards of `plan` that may be false while attached stages slide are placed in that loop.
        """
        own = [loop.var for loop in plan.loops]
        return max(
            (
                depth
                for depth, loop in enumerate(plan.loops)
                for p in self.attached.get(At(plan.stage.name, loop.name), ())
                if any(v in p.ahead for v in own)
            ),
            default=-1,
        )

    def _owned(self, plan: StagePlan, body: Stmt) -> Stmt:
        """`body` inside the allocations of `plan`, unless the memory of the stage is allocated
        further out.
        """
        return body if plan.stage.store is not None else self.allocated(plan, body)

    def allocated(self, plan: StagePlan, body: Stmt) -> Stmt:
        """`body` inside the allocations of `plan`'s buffers that the caller does not provide."""
        for buffer in reversed(plan.buffers):
            if buffer.scope in ALLOCATED:
                body = nodes.Allocate(buffer, body)
        return body

    def _initial(self, plan: StagePlan, depth: int) -> Stmt:
        """The initial values of a reduction, over the spatial loops from number `depth` on."""
        reduce = plan.body[0]
        assert isinstance(reduce, Reduce)
        values = reduce.reducer.identity(tuple(s.dtype for s in reduce.sources))

        def initial(at: tuple[Expr, ...]) -> Stmt:
            stores = zip(plan.buffers, values, strict=True)
            return seq(*(nodes.Store(b, at, v) for b, v in stores))

        return self._over_elements(plan, depth, initial)

    def _exchanged(self, plan: StagePlan) -> Callable[[tuple[Expr, ...]], Stmt]:
        return lambda at: exchanged(self.state, self.plans, plan, at)

    def _over_elements(
        self, plan: StagePlan, depth: int, make: Callable[[tuple[Expr, ...]], Stmt]
    ) -> Stmt:
        """The statements `make(indices)` of all elements, in the spatial loops from `depth` on."""
        fresh: dict[Expr, Expr] = {}
        spatial: list[tuple[int, StageLoop, Var]] = []
        for number, loop in enumerate(plan.loops):
            if number >= depth and not loop.is_reduce and not loop.is_unit:
                var = Var(loop.name)
                fresh[loop.var] = var
                spatial.append((number, loop, var))
                self.loops[var] = (plan.stage.name, loop)
        body = make(tuple(substitute(i, fresh) for i in self._own_indices(plan)))
        guards = [
            replace(g, guard=replace(g.guard, cond=substitute(g.guard.cond, fresh)))
            for g in plan.guards
            if g.depth >= depth and not g.is_reduce
        ]
        inner = [g for g in guards if g.is_inner]
        own = {var for _, _, var in spatial}
        body = guarded(body, [g for g in inner if free_vars(g.guard.cond) & own])
        for number, loop, var in reversed(spatial):
            here = [g for g in guards if g.depth == number and not g.is_inner]
            extent = dim_expr(loop.extent)
            made = nodes.For(var, const(0), extent, loop.kind, guarded(body, here))
            body = bound_loop(self.state, self.plans, plan, loop, made)
        return guarded(body, [g for g in inner if not free_vars(g.guard.cond) & own])

    def _update(self, plan: StagePlan) -> Stmt:
        """The innermost statement: store the elements, or combine them with one more term."""
        own = self._own_indices(plan)
        ctx = plan.context()
        first = plan.body[0]
        if not isinstance(first, Reduce):
            values = self.converted(plan.body, plan.points, ctx)
            return seq(*(nodes.Store(b, own, v) for b, v in zip(plan.buffers, values, strict=True)))
        terms = self.converted(first.sources, plan.points, ctx)
        before = tuple(ir.Load(b, own) for b in plan.buffers)
        values = first.reducer.combine(before, terms)
        if len(values) == 1:
            return nodes.Store(plan.buffers[0], own, values[0])
        # A reduction of several values computes all new values before it stores any of them.
        names = [Var(f"{b.name}_new", v.dtype) for b, v in zip(plan.buffers, values, strict=True)]
        body: Stmt = seq(
            *(nodes.Store(b, own, n) for b, n in zip(plan.buffers, names, strict=True))
        )
        for name, value in zip(reversed(names), reversed(values)):
            body = nodes.LetStmt(name, value, body)
        return body

    def _own_indices(self, plan: StagePlan) -> tuple[Expr, ...]:
        """The indices at which `plan` stores the element of the current iteration."""
        ctx = plan.context()
        axes = plan.stage.compute.axis
        points = tuple(plan.points[a.var] for a in axes)
        if plan.stage.is_output:
            logical = points
        elif plan.storage is None and not plan.folds:
            logical = plan.locals
        else:
            logical = plan.positions(points)
        return self.physical(plan.stage.name, plan.buffers[0], logical, ctx)

    def physical(
        self, name: str, buffer: Buffer, logical: tuple[Expr, ...], ctx: Context
    ) -> tuple[Expr, ...]:
        indices = tuple(
            simplify(i, ctx) for i in physical_indices(self.state.stages[name], logical)
        )
        if name in self.slots:
            indices = (self.slots[name], *indices)
        if not SCOPES[buffer.scope].is_addressed:
            self._check_register(name, buffer, indices)
        return indices

    def _check_register(self, name: str, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        for index in indices:
            for var in free_vars(index):
                stage, loop = self.loops.get(var, ("", None))
                kind = None if loop is None else LOOP_KINDS[loop.kind]
                is_part = SCOPES[buffer.scope].owner == "warp" and kind and kind.level == "thread"
                if kind is None or not (kind.is_expanded or is_part):
                    where = f"loop {var.name} of {stage}" if stage else var.name
                    raise ScheduleError(
                        f"{name} is in register memory, so its indices must be constants once "
                        "loops are unrolled and "
                        f"vectorised; found index {index}, which depends on {where}: unroll or "
                        "vectorise that loop, "
                        f"attach {name} inside it, or keep {name} on the stack"
                    )

    def converted(
        self, roots: tuple[Expr, ...], points: Mapping[Expr, Expr], ctx: Context
    ) -> tuple[Expr, ...]:
        """Expressions over axes and tensors as expressions over loop variables and buffers."""
        bound = tuple(substitute(r, dict(points)) for r in roots)
        return tuple(simplify(r, ctx) for r in map_loads(bound, self._loader(ctx)))

    def _loader(self, ctx: Context) -> Callable[[ir.Load], Expr]:
        def load(node: ir.Load) -> Expr:
            tensor = read_of(node)
            name, value = self.state.tensors[tensor]
            plan = self.plans.get(name)
            if plan is None or plan.buffers[value].scope not in ALLOCATED:
                buffer = self.parameters[name, value]
                return ir.Load(buffer, self.physical(name, buffer, node.indices, ctx))
            buffer = plan.buffers[value]
            return ir.Load(buffer, self.physical(name, buffer, plan.positions(node.indices), ctx))

        return load


def with_inner_guards(state: State, plan: StagePlan) -> StagePlan:
    """`plan` with its guards placed after the stages that all threads of a block compute together.
    A guard around these stages would exclude the threads for which it is false.
    """
    depth = -1
    for stage in state.stages.values():
        if is_shared(stage):
            for place in state.ancestors(stage.name):
                if place.stage == plan.stage.name:
                    depth = max(depth, plan.depth(place.axis))
    if all(g.depth > depth for g in plan.guards):
        return plan
    guards = (g if g.depth > depth else replace(g, depth=depth, is_inner=True) for g in plan.guards)
    return replace(plan, guards=tuple(guards), contexts={})


def is_late(plan: StagePlan, g: PlacedGuard, entry: int) -> bool:
    """Whether guard `g` is placed in loop `entry`, because sliding stages run while it is false."""
    return g.depth <= entry and g.depth >= 0 and not plan.is_closing(g)


def entered(plan: StagePlan, depth: int, ahead: Mapping[Var, int], body: Stmt) -> Stmt:
    """`body` in loop number `depth` of `plan`.  It runs only if each variable `v` of the loops
    around it is at least `-ahead[v]`.
    """
    inside = [x.var for x in plan.loops[: depth + 1]]
    conditions = [v >= -ahead.get(v, 0) for v in inside if plan.early.get(v, 0) > ahead.get(v, 0)]
    guards = [PlacedGuard(Guard(c, "peel"), depth, is_reduce=False) for c in conditions]
    if not any(v in ahead for v in inside):
        guards += [g for g in plan.guards if is_late(plan, g, depth)]
    return guarded(body, guards)


def guarded(body: Stmt, guards: list[PlacedGuard]) -> Stmt:
    """`body` inside guards, the first one outermost."""
    for g in reversed(guards):
        body = If(g.guard.cond, body, likely=g.guard.tail != "guard")
    return body
