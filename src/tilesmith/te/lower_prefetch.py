"""Lowering of prefetches: each iteration of a loop prefetches reads of a later iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from tilesmith.ir import expr as ir
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Expr, Var, const, minimum, reads_memory, substitute
from tilesmith.ir.loop_tables import SCOPES
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import Dim
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Stmt
from tilesmith.support.errors import ScheduleError

from .lower_plan import StageLoop, StagePlan, read_of
from .lower_region import regions_read
from .relations import dim_expr
from .state import PrefetchMark, State


class Nests(Protocol):
    """The attributes of `lower_nest.NestWriter` that prefetches use.

    parameters: the buffers of arguments, by stage and number of the value.
    """

    @property
    def parameters(self) -> Mapping[tuple[str, int], Buffer]: ...

    def physical(
        self, name: str, buffer: Buffer, logical: tuple[Expr, ...], ctx: Context
    ) -> tuple[Expr, ...]:
        """The indices into `buffer`, given the logical indices of an element of stage `name`."""
        ...

    def converted(
        self, roots: tuple[Expr, ...], points: Mapping[Expr, Expr], ctx: Context
    ) -> tuple[Expr, ...]:
        """Expressions over axes and tensors as expressions over loop variables and buffers."""
        ...


class PrefetchWriter:
    """Writes the prefetches of all stages of one function."""

    def __init__(self, nests: Nests, state: State, plans: Mapping[str, StagePlan]) -> None:
        self._nests = nests
        self._state = state
        self._plans = plans

    def statements(self, plan: StagePlan, depth: int, mark: PrefetchMark) -> list[Stmt]:
        """The prefetches in loop number `depth`.

        The prefetches cover the elements of `mark.source` that the body of loop `mark.axis` reads
        `mark.offset` iterations later.  Only reads by `plan` itself count.  The last iterations
        prefetch addresses past the end of the tensor, which may be unmapped.  This is safe, because
        a prefetch never faults, and cheaper than clamping the indices.  Only indices that are
        loaded from memory are clamped, because the load must be in bounds.
        """
        buffer = self._memory(plan, mark)
        if mark.of:
            return self._piece(plan, depth, mark, buffer)
        ahead = plan.depth(mark.axis)
        loop = plan.loops[ahead]
        if ahead > depth:
            raise ScheduleError(
                f"cannot spread the prefetch at {plan.stage.name}.{mark.axis} over {mark.over}: "
                "expected a loop inside it"
            )
        shape = self._state.stages[mark.source].op.shape
        if loop.is_unit or not shape:
            return []
        ctx = plan.context(depth)
        later: dict[Expr, Expr] = {loop.var: loop.var + mark.offset}
        bounded: dict[Expr, Expr] = {loop.var: minimum(loop.var + mark.offset, loop.last)}
        run, line = self._run_of_memory(mark.source, LINE_BYTES // buffer.dtype.bytes)
        logical: list[Expr] = []
        loops: list[tuple[Var, int]] = []
        for n, part in enumerate(regions_read(self._state, self._plans, plan, ahead, mark.source)):
            step = line if n == run else 1
            if not isinstance(part.extent, int):
                return []
            if reads_memory(part.start):
                start = substitute(part.start, bounded)  # the load of an index must be in bounds
                (index,) = self._nests.converted((start,), {}, ctx)
            else:
                index = substitute(part.start, later)
            if part.extent > step:
                count = -(-part.extent // step)
                if n == run and ahead < depth:
                    first, count = _share(count, plan.loops[depth])
                    index = index + first * step
                var = Var(f"p{n}")
                if count > 1:
                    loops.append((var, count))
                    index = index + var * step
            logical.append(index)
        for var, extent in loops:
            ctx = ctx.with_var(var, 0, extent - 1)
        indices = self._nests.physical(mark.source, buffer, tuple(logical), ctx)
        body: Stmt = nodes.Evaluate(ir.Call("prefetch", (ir.Load(buffer, indices),), buffer.dtype))
        for var, extent in reversed(loops):
            body = nodes.For(var, const(0), const(extent), "serial", body)
        return [body]

    def _run_of_memory(self, name: str, line: int) -> tuple[int, int]:
        """The dimension along which the elements of stage `name` are contiguous in memory, and the
        length of a contiguous run.  Lengths above `line` are given as `line`.
        """
        stage = self._state.stages[name]
        if stage.layout is None:
            return len(stage.op.shape) - 1, max(line, 1)
        last = stage.layout.dims[-1]
        return last.axis, max(1, min(line, last.block) if last.part == "inner" else line)

    def _memory(self, plan: StagePlan, mark: PrefetchMark) -> Buffer:
        """The buffer to prefetch from.  Raises ScheduleError if the buffer is not allocated yet."""
        if not any(
            self._state.tensors[read_of(r)] == (mark.source, mark.value) for r in plan.reads
        ):
            raise ScheduleError(
                f"cannot prefetch {mark.source} in {plan.stage.name}: it does not read it from "
                "memory (any more), since "
                f"{mark.source} is inlined or cached"
            )
        producer = self._plans.get(mark.source)
        if (
            producer is not None
            and producer.stage.attach != "root"
            and not producer.stage.is_output
        ):
            raise ScheduleError(
                f"cannot prefetch {mark.source} in {plan.stage.name}: it is computed at "
                f"{producer.stage.attach}, so the part of later iterations does not exist yet; "
                "prefetch arguments and stages at the root"
            )
        if producer is None:
            return self._nests.parameters[mark.source, mark.value]
        buffer = producer.buffers[mark.value]
        if not SCOPES[buffer.scope].is_addressed:
            raise ScheduleError(
                f"cannot prefetch {mark.source} in {plan.stage.name}: it is in scope "
                f"{buffer.scope!r}, which is no memory that could be loaded ahead; leave the "
                "prefetch out"
            )
        return buffer

    def _piece(self, plan: StagePlan, depth: int, mark: PrefetchMark, buffer: Buffer) -> list[Stmt]:
        """The result of `statements` if the loop `mark.axis` belongs to another stage, inside which
        `plan` is computed.

        The loops inside `mark.axis` run the nest of `plan`; each of their iterations prefetches the
        same number of cache lines, in memory order.  When no lines are left, the last iterations
        prefetch the last line again.
        """
        what = f"prefetch {mark.source} at {mark.of}.{mark.axis} in {plan.stage.name}"
        link = next((a for a in self._state.ancestors(plan.stage.name) if a.stage == mark.of), None)
        if link is None or plan.stage.attach != link:
            raise ScheduleError(
                f"cannot {what}: expected a loop of the stage that it is computed in, found "
                f"{plan.stage.name} at {plan.stage.attach}"
            )
        outer = self._plans[mark.of]
        last = outer.depth(link.axis)
        if mark.axis not in outer.stage.leaves[: last + 1]:
            raise ScheduleError(f"cannot {what}: {plan.stage.name} is computed outside that loop")
        ahead = outer.depth(mark.axis)
        loop = outer.loops[ahead]
        if loop.is_unit:
            return []
        regions = regions_read(self._state, self._plans, plan, ahead, mark.source, outer)
        later: dict[Expr, Expr] = {loop.var: minimum(loop.var + mark.offset, loop.last)}
        starts = tuple(substitute(r.start, later) for r in regions)
        ctx = outer.context(ahead)
        indices = self._nests.physical(mark.source, buffer, starts, ctx)
        sizes = [r.extent for r in regions]
        elements = math.prod(n for n in sizes if isinstance(n, int))
        if elements == 0:
            return []
        is_known = all(isinstance(n, int) for n in sizes)
        if not is_known or not any(
            _fills(elements, buffer.shape[n:], indices[n:]) for n in range(1, len(indices))
        ):
            raise ScheduleError(f"cannot {what}: it is not one piece of memory")
        line = max(1, LINE_BYTES // buffer.dtype.bytes)
        lines = -(-elements // line)
        inside = [*outer.loops[ahead + 1 : last + 1], *plan.loops[: depth + 1]]
        turn: Expr = loop.value % mark.parts if mark.parts > 1 else const(0)
        turns = mark.parts
        for each in inside:
            turn = turn * dim_expr(each.extent) + each.value
            turns *= expected(each.extent)
        if turns == 0:
            return []  # a loop of 0 iterations prefetches nothing
        each_turn = max(-(-lines // turns), 1)
        prefetches: list[Stmt] = []
        for n in range(each_turn):
            first = minimum(simplify(turn * each_turn + n, ctx), lines - 1) * line
            load = ir.Load(buffer, (*indices[:-1], first))
            prefetches.append(nodes.Evaluate(ir.Call("prefetch", (load,), buffer.dtype)))
        return prefetches


def _fills(elements: int, shape: Sequence[Dim], indices: Sequence[Expr]) -> bool:
    """Whether `elements` consecutive elements, beginning at `indices`, fill the axes of extents
    `shape` a whole number of times, at least once.
    """
    whole = [n for n in shape if isinstance(n, int)]
    size = math.prod(whole)
    is_whole = len(whole) == len(shape) and size > 0 and elements % size == 0
    return is_whole and all(i is const(0) for i in indices)


def _share(count: int, loop: StageLoop) -> tuple[Expr, int]:
    """The lines, of `count`, that one iteration of `loop` prefetches: the first, and how many."""
    if not isinstance(loop.extent, int) or loop.extent == 0:
        return const(0), count
    each = -(-count // loop.extent)
    first = loop.value * each if each > 1 else (loop.value * count) // loop.extent
    return first, each
