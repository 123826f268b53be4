"""Lowering of a graph of fused groups to the steps of the main function, with a place in memory for
each value.

Each body of control flow has its own memory plan, in a region of the arena that belongs to its node
while the node runs.  A body reads its inputs and writes its results in place:

- Both branches of an `If` write to the memory of its results.
- A carried value of a `Loop` alternates between the memory of the result and one other buffer.  If
  it is also collected, the next iteration reads it in the collected result.  If iterations append
  to it, it stays in one memory, which grows unless the result's size is known before the loop.
- A body reads the elements of sliced inputs in place, and writes elements of collected results in
  place.

If a body returns a value that it does not compute, such as one of its inputs, the value is copied.

At a stage, some extents become known.  Then the main function allocates the memory that depends on
them: regions of the memory plan, results of the program and results of control flow.  A branch
allocates the memory of its own results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilesmith.codegen.kernel import KernelCode
from tilesmith.driver.assembly.memory import (
    Base,
    Cells,
    Growth,
    LoopParts,
    appends,
    carries,
    extents_bytes,
    finds_size,
    results_of,
    stages_inside,
    takes_turns,
)
from tilesmith.driver.assembly.sizes import Sizes
from tilesmith.graph.control import Host, If, Loop
from tilesmith.graph.measure import Stage, stages_of, symbols_defined
from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.graph.passes.memory_plan import MemoryPlan, aligned, largest, plan, value_bytes
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.program.nodes import (
    Arg,
    Branch,
    Carried,
    Copy,
    Grow,
    HostArray,
    HostCall,
    KernelCall,
    Repeat,
    Slice,
    Step,
    Store,
)

START = Base()
"""The beginning of the arena."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Memory and steps under construction.

    kernels: the code of the kernels' nodes.
    constants: places of the constants of all graphs.
    sizes: sizes, of which some are known only at run time.
    outputs: number of the program's results, which are the first slots.
    """

    kernels: Mapping[Node, KernelCode]
    constants: Mapping[Value, Arg]
    sizes: Sizes
    outputs: int
    _plans: dict[Graph, MemoryPlan] = field(default_factory=dict)
    _pointers: list[int] = field(default_factory=list)
    _slots: list[int] = field(default_factory=list)

    def plan(self, graph: Graph, before: Sequence[Stage] = ()) -> MemoryPlan:
        """The memory plan of a graph.  The memory of a control flow node includes the memory of its
        bodies.

        before: for the body of a loop, the stages at which its symbols become known.
        """
        if graph not in self._plans:
            stages = [*before, *stages_of(graph)]
            extra = {n: self._extra(n, graph, stages) for n in graph.nodes}
            needed = {n: s for n, s in extra.items() if not same_dim(s, 0)}
            self._plans[graph] = plan(graph, needed, before)
        return self._plans[graph]

    def _extra(self, node: Node, graph: Graph, stages: Sequence[Stage]) -> Dim:
        if isinstance(node.op, If):
            arena = largest([self.plan(body).arena_bytes for body in node.op.bodies])
            return as_dim(extents_bytes(node.op) + arena)
        if isinstance(node.op, Loop):
            arena = self.plan(node.op.body, stages_inside(node)).arena_bytes
            return as_dim(Cells.of(node, node.op, graph, stages).bytes + arena)
        return self.sizes.workspaces.get(node, 0)

    def steps(
        self,
        graph: Graph,
        border: Mapping[Value, Arg],
        base: Base = START,
        growths: Mapping[Value, Growth] | None = None,
        before: Mapping[Stage, Arg] | None = None,
    ) -> tuple[Step, ...]:
        """The steps of a graph.

        border: places of the graph's inputs, and of those outputs that the graph computes.
        base: beginning of the graph's part of the arena.
        growths: memory to allocate for outputs that the graph computes.
        before: places of the extents that are known before the graph runs.
        """
        before = before or {}
        memory = self.plan(graph, [*before])
        scope = _Scope(self, graph, memory, growths or {}, [*before, *stages_of(graph)])

        def base_of(owner: Value | Node) -> Base:
            return scope.regions[memory.region[owner]] if owner in memory.region else base

        where = {c.value: self.constants[c.value] for c in graph.constants}
        where |= {v: self.place(base_of(v) + offset) for v, offset in memory.offsets.items()}
        where |= scope.grown
        where |= border
        where |= {v: where[home].at(offset) for v, (home, offset) in memory.outside.items()}
        steps_so_far = scope.taken_at(None)
        for stage, source in before.items():
            steps_so_far += [self.sizes.measurement(stage, source), *scope.taken_at(stage)]
        for node in graph.nodes:
            work = base_of(node) + memory.workspace.get(node, 0)
            behind: list[Step] = []
            source = where[node.inputs[0]] if node.inputs else None
            if isinstance(node.op, If):
                steps_so_far.append(self._branch(node, node.op, where, work, scope.growths))
                source = self.place(work)
            elif isinstance(node.op, Loop):
                steps, behind = self._loop(node, node.op, where, work, scope)
                steps_so_far += steps
                source = self.place(work + Cells.extents).at(8 * node.op.known)
            elif isinstance(node.op, Host):
                steps_so_far.append(self._host_call(node, node.op, where))
            elif node in self.kernels:
                steps_so_far.append(self._call(node, where, work))
            if symbols_defined(node):
                assert source is not None
                stage = Stage(node)
                steps_so_far += [self.sizes.measurement(stage, source), *scope.taken_at(stage)]
            steps_so_far += behind
        return tuple(steps_so_far)

    def grow(self, growth: Growth, value: Value) -> Grow:
        """The step that allocates the memory of a value."""
        keep = 0 if growth.shorter is None else self.amount(growth.shorter)
        return Grow(growth.slot, self.amount(value), target=growth.target, keep=keep)

    def slot(self, count: int = 1) -> int:
        """The first of `count` new slots."""
        first = self.outputs + len(self._slots)
        self._slots.extend(range(first, first + count))
        return first

    def pointer(self) -> int:
        """A new pointer."""
        self._pointers.append(len(self._pointers))
        return self._pointers[-1]

    def place(self, base: Base) -> Arg:
        return self.sizes.place(base.offset, base.slot)

    def amount(self, value: Value) -> int | Arg:
        """Bytes of a value."""
        return self.sizes.amount(value_bytes(value))

    def _call(self, node: Node, where: Mapping[Value, Arg], work: Base) -> KernelCall:
        code = self.kernels[node]
        return KernelCall(
            code.symbol,
            (*(where[v] for v in (*node.inputs, *node.outputs)), *self.sizes.scalars(node)),
            label=node.loc,
            workspace=self.place(work),
            messages=code.messages,
            sources=sources(node),
        )

    def _host_call(self, node: Node, op: Host, where: Mapping[Value, Arg]) -> HostCall:
        inputs, outputs = (
            tuple(
                HostArray(v.dtype, where[v], tuple(map(self.sizes.amount, v.shape))) for v in values
            )
            for values in (node.inputs, node.outputs)
        )
        return HostCall(
            op.function, op.settings, op.operator, node.loc, inputs, outputs, op.is_fallback
        )

    def _branch(
        self,
        node: Node,
        op: If,
        where: Mapping[Value, Arg],
        base: Base,
        growths: Mapping[Value, Growth],
    ) -> Branch:
        branches: list[tuple[Step, ...]] = []
        for body in op.bodies:
            border = dict(zip(body.inputs, (where[v] for v in node.inputs[1:]), strict=True))
            inside: dict[Value, Growth] = {}
            ends: list[Step] = []
            for v, outer in zip(body.outputs, node.outputs, strict=True):
                growth = growths.get(outer) if finds_size(node, outer) else None
                if v in body.producer and v not in border:
                    border[v] = where[outer]
                    inside |= {v: growth} if growth is not None else {}
                else:
                    source = border[v] if v in border else self.constants[v]
                    ends += [self.grow(growth, v)] if growth is not None else []
                    ends.append(Copy(source, where[outer], self.amount(v)))
            if op.symbols:
                extents = op.extents(body)
                numbers = tuple(self.sizes.amount(extents[s]) for s in op.symbols)
                ends.append(Store(self.place(base), numbers))
            work = base + extents_bytes(op)
            branches.append((*self.steps(body, border, work, inside), *ends))
        return Branch(where[node.inputs[0]], *branches)

    def _loop(
        self, node: Node, op: Loop, where: Mapping[Value, Arg], base: Base, scope: _Scope
    ) -> tuple[list[Step], list[Step]]:
        """The steps of a loop, and the steps to run once the extents of its results are known."""
        body, cells = op.body, Cells.of(node, op, scope.graph, scope.stages)
        carried, sliced, same = op.split(node.inputs)
        number, *rest = body.inputs
        current, elements = rest[: op.carried], rest[op.carried :][: len(sliced)]
        border = {number: self.place(base + cells.number)}
        border |= {v: Arg("pointer", self.pointer()) for v in (*current, *elements)}
        # Memory to which each pointer refers after the loop.
        for v, out in zip(current, node.outputs):
            border[v] = scope.grown.get(out, border[v])
        fixed = rest[op.carried + len(sliced) :]
        border |= {v: where[outer] for v, outer in zip(fixed, same, strict=True)}
        slices = [
            self._slice(border[v].index, where[outer], v, way)
            for v, outer, way in zip(elements, sliced, op.sliced, strict=True)
        ]
        loop = LoopParts(body, border, slices)
        if op.ran is None:  # the next iteration may read its carried values in a collected result
            self._collect(loop, node, op, where, scope)
        others = [None if offset is None else self.place(base + offset) for offset in cells.others]
        self._carry(loop, node, op, where, others, scope)
        if op.ran is not None:
            self._collect(loop, node, op, where, scope)
        again = None
        if op.conditional:
            v = body.outputs[0]
            if loop.computes(v):
                border[v] = self.place(base + cells.again)
            again = loop.place(v, self.constants)
        extents = self.place(base + cells.extents)
        before = dict.fromkeys(stages_inside(node), extents)
        if op.inside:
            loop.start.append(self._stored(extents, op, op.first_extents(carried)))
            loop.ends.append(self._stored(extents, op, op.next_extents()))
        steps = self.steps(body, border, base + cells.bytes, loop.growths, before)
        repeat = Repeat(
            self.sizes.amount(op.steps) if op.steps is not None else where[node.inputs[0]],
            (*steps, *loop.ends),
            tuple(loop.slices),
            tuple(loop.carried),
            border[number] if number in {*body.consumers, *body.outputs} else None,
            where[node.inputs[op.leading - 1]] if op.conditional else None,
            again,
            None if op.ran is None else extents.at(8 * len(op.inside)),
        )
        return [*loop.start, repeat], loop.behind

    def _collect(
        self,
        loop: LoopParts,
        node: Node,
        op: Loop,
        where: Mapping[Value, Arg],
        scope: _Scope,
    ) -> None:
        """Add the collected results, which have an element for each iteration."""
        results = zip(results_of(op)[1], node.outputs[op.carried :], op.collected, strict=True)
        for v, out, way in results:
            element, whole, slot = Arg("pointer", self.pointer()), where[out], None
            growth = scope.growths.get(out) if finds_size(node, out) else None
            if growth is not None:
                slot = growth.slot if growth.target is None else self.slot()
                whole = Arg("arena", 0, slot=slot)
                loop.start.append(Grow(slot, 0))
            if growth is not None and growth.target is not None:
                loop.behind += [self.grow(growth, out), Copy(whole, where[out], self.amount(out))]
            loop.slices.append(self._slice(element.index, whole, v, way, slot))
            if loop.computes(v):
                loop.border[v] = element
            else:
                source = loop.place(v, self.constants)
                loop.ends.append(Copy(source, element, self.amount(v)))

    def _carry(
        self,
        loop: LoopParts,
        node: Node,
        op: Loop,
        where: Mapping[Value, Arg],
        others: Sequence[Arg | None],
        scope: _Scope,
    ) -> None:
        """Add the carried values.

        others: for each carried value, the buffer that alternates with the result.
        """
        number, *rest = loop.body.inputs
        # Values whose memory changes from one iteration to the next.
        moving = {number, *rest[: op.carried]}
        carried = op.split(node.inputs)[0]
        values = zip(rest, results_of(op)[0], carried, node.outputs, others)
        for k, (current, v, before, out, other) in enumerate(values):
            if appends(op, k):
                home = where[out] if other is not None else self._longer(loop, out, where, scope)
                loop.start.append(Copy(where[before], home, self.amount(before)))
                loop.border |= {current: home, v: home}
                if other is None:
                    assert home.slot is not None
                    loop.start.insert(-1, Grow(home.slot, self.amount(before)))
                    loop.growths[v] = Growth(home.slot, shorter=current)
                continue
            current_place, first, end = loop.border[current], where[before], where[out]
            size = None if finds_size(node, out) else self.amount(out)
            if size is None and end != current_place:
                loop.behind.append(Copy(current_place, end, self.amount(out)))
            is_own = loop.computes(v)
            if other is not None and not is_own and (v not in moving or v is current):
                lies = loop.place(v, self.constants)
                loop.carried.append(Carried(current_place.index, first, lies, end, size))
                continue
            target, growth = Arg("pointer", self.pointer()), None
            if other is None:
                growth = Growth(self.slot(2), target.index)
                start, size_before = Arg("arena", 0, slot=growth.slot + 1), self.amount(before)
                loop.start += [Grow(growth.slot + 1, size_before), Copy(first, start, size_before)]
                first, end = start, None
            if is_own:
                loop.border[v] = target
                loop.growths |= {v: growth} if growth is not None else {}
            else:
                loop.ends += [self.grow(growth, v)] if growth is not None else []
                loop.ends.append(Copy(loop.place(v, self.constants), target, self.amount(v)))
            slot = None if growth is None else growth.slot
            loop.carried.append(
                Carried(current_place.index, first, target, end, size, target.index, other, slot)
            )

    def _longer(
        self, loop: LoopParts, out: Value, where: Mapping[Value, Arg], scope: _Scope
    ) -> Arg:
        """The slot of a carried value to which iterations append.  It is the result's slot if the
        result has one; otherwise the value is copied to the result.
        """
        growth = scope.growths.get(out)
        if growth is not None and growth.target is None:
            return Arg("arena", 0, slot=growth.slot)
        home = Arg("arena", 0, slot=self.slot())
        loop.behind += [self.grow(growth, out)] if growth is not None else []
        loop.behind.append(Copy(home, where[out], self.amount(out)))
        return home

    def _slice(
        self, pointer: int, whole: Arg, element: Value, way: int, slot: int | None = None
    ) -> Slice:
        """The pointer to one element of a stacked value."""
        return Slice(pointer, whole, self.amount(element), way < 0, slot)

    def _stored(self, to: Arg, op: Loop, extents: Mapping[Var, Dim]) -> Store:
        """The step that stores the extents of the body's carried inputs for the measurement of an
        iteration.
        """
        return Store(to, tuple(self.sizes.amount(extents[s]) for s in op.inside))


class _Scope:
    """The memory that a graph uses while it runs.

    graph: the graph.
    regions: places of the regions of its memory plan.
    growths: growths by value, those of this graph and those from the enclosing graph.
    grown: places of results of control flow that have separate memory.
    stages: where extents become known, in order.
    """

    def __init__(
        self,
        placement: Placement,
        graph: Graph,
        memory: MemoryPlan,
        given: Mapping[Value, Growth],
        stages: Sequence[Stage],
    ) -> None:
        self.graph, self.stages = graph, stages
        self._placement, self._memory = placement, memory
        self.regions = {stage: Base(0, placement.slot()) for stage in memory.regions}
        self.growths = {**given}
        self.grown: dict[Value, Arg] = {}
        for v in memory.grown:
            if takes_turns(graph.producer[v], v):
                self.grown[v] = Arg("pointer", placement.pointer())
            else:
                self.growths[v] = Growth(placement.slot())
                self.grown[v] = Arg("arena", 0, slot=self.growths[v].slot)
        here = {*stages}
        self._taken: dict[Stage | None, list[Grow]] = {}
        for v, growth in self.growths.items():
            node = graph.producer[v]
            if not finds_size(node, v) or carries(node, v):
                stage = placement.sizes.stage_of(value_bytes(v))
                known = stage if stage in here else None
                self._taken.setdefault(known, []).append(placement.grow(growth, v))

    def taken_at(self, stage: Stage | None) -> list[Step]:
        """The steps that allocate memory at a stage; None stands for the beginning of the graph."""
        grows: list[Step] = []
        sizes = self._placement.sizes
        if stage in self.regions:
            slot = self.regions[stage].slot
            assert slot is not None
            grows.append(Grow(slot, sizes.amount(self._memory.regions[stage])))
        grows += self._taken.get(stage, ())
        scratch: Dim = 0 if stage is None else sizes.scratch_at(stage)
        if not same_dim(scratch, 0):
            size = sizes.amount(aligned(scratch))
            grows.append(Grow(self._placement.slot(), size, for_threads=True))
        return grows


def sources(node: Node) -> tuple[str, ...]:
    """The source model's nodes that a fused node computes."""
    inside = node.op.body.nodes if isinstance(node.op, Fused) else ()
    return tuple(dict.fromkeys(n.loc for n in inside if n.loc)) or (node.loc,)
