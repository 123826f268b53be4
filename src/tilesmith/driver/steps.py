"""From a graph of fused groups to the steps of the main function: where every value lies.

Each body of control flow has a region of the arena that belongs to its node while that runs, with a
memory plan of its own.  A body reads and writes the memory of the values at its border in place:

- Both branches of an `If` write to the memory of its results.
- A carried value of a `Loop` takes turns between the memory of the result and one other buffer.  If
  it is collected too, the next iteration reads it there.
- A body sees the elements of sliced inputs where they lie, and writes those of collected results to
  their place.

A result that a body does not compute, such as one of its inputs, is copied where it must be.

Behind a `Measure` the main function takes the memory that depends on it: for regions of the memory
plan, and for results of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tilesmith.codegen.kernel import KernelCode
from tilesmith.codegen.steps import (
    Arg,
    Branch,
    Carried,
    Copy,
    Grow,
    HostArray,
    HostCall,
    KernelCall,
    Measurement,
    Repeat,
    Slice,
    Step,
)
from tilesmith.graph.control import If, Loop
from tilesmith.graph.host import Host
from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.graph.passes.memory_plan import MemoryPlan, aligned, largest, plan, value_bytes
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.target import LINE_BYTES
from tilesmith.ir.types import Dim, same_dim


class Sizes(Protocol):
    """What may be known to a run only.

    workspaces: of the kernels' nodes that need some, in bytes.
    """

    @property
    def workspaces(self) -> Mapping[Node, Dim]: ...

    def place(self, offset: Dim, slot: int | None = None) -> Arg:
        """An offset in the arena, or in a slot."""
        ...

    def amount(self, size: Dim) -> int | Arg:
        """A number of bytes."""
        ...

    def scalars(self, node: Node) -> list[Arg]:
        """What the scalar parameters of a kernel get."""
        ...

    def measurement(self, node: Node, source: Arg) -> Measurement:
        """The step of a `Measure` whose operand lies at `source`."""
        ...

    def results(self, node: Node) -> Mapping[int, Dim]:
        """The results of the program, by number, whose sizes are known behind a `Measure`."""
        ...

    def scratch_behind(self, node: Node) -> Dim:
        """Bytes of scratch memory that each thread needs as a `Measure` says."""
        ...


@dataclass(frozen=True, slots=True)
class _Base:
    """Where a part of a memory begins.

    offset: in bytes.
    slot: number of the memory; None for the arena.
    """

    offset: Dim = 0
    slot: int | None = None

    def __add__(self, distance: Dim) -> _Base:
        return _Base(as_dim(self.offset + distance), self.slot)


@dataclass(frozen=True, slots=True)
class Placement:
    """Memory and steps under construction.

    kernels: the code of the kernels' nodes.
    constants: where the constants of all graphs lie.
    sizes: what may be known to a run only.
    outputs: number of the program's results, which are the first slots.
    """

    kernels: Mapping[Node, KernelCode]
    constants: Mapping[Value, Arg]
    sizes: Sizes
    outputs: int
    _plans: dict[Graph, MemoryPlan] = field(default_factory=dict)
    _pointers: list[int] = field(default_factory=list)
    _slots: list[int] = field(default_factory=list)

    def plan(self, graph: Graph) -> MemoryPlan:
        """The memory plan of a graph, in which its control flow has the memory of its bodies."""
        if graph not in self._plans:
            extra = {n: self._extra(n) for n in graph.nodes}
            self._plans[graph] = plan(graph, {n: s for n, s in extra.items() if not same_dim(s, 0)})
        return self._plans[graph]

    def _extra(self, node: Node) -> Dim:
        if isinstance(node.op, If):
            return largest([self.plan(body).arena_bytes for body in node.op.bodies])
        if isinstance(node.op, Loop):
            return as_dim(_Cells.of(node.op).bytes + self.plan(node.op.body).arena_bytes)
        return self.sizes.workspaces.get(node, 0)

    def steps(
        self, graph: Graph, border: Mapping[Value, Arg], base: _Base = _Base()
    ) -> tuple[Step, ...]:
        """The steps of a graph.

        border: where its inputs lie, and those outputs that it computes.
        base: where its part of the arena begins.
        """
        memory = self.plan(graph)
        regions = {node: _Base(0, self._slot()) for node in memory.regions}

        def base_of(owner: Value | Node) -> _Base:
            return regions[memory.region[owner]] if owner in memory.region else base

        where = {c.value: self.constants[c.value] for c in graph.constants}
        where |= {v: self._place(base_of(v) + at) for v, at in memory.offsets.items()}
        where |= border
        where |= {v: where[home].at(at) for v, (home, at) in memory.outside.items()}
        found: list[Step] = []
        for node in graph.nodes:
            work = base_of(node) + memory.workspace.get(node, 0)
            if isinstance(node.op, If):
                found.append(self._branch(node, node.op, where, work))
            elif isinstance(node.op, Loop):
                found.append(self._loop(node, node.op, where, work))
            elif isinstance(node.op, Host):
                found.append(self._host_call(node, node.op, where))
            elif isinstance(node.op, Measure):
                found.append(self.sizes.measurement(node, where[node.inputs[0]]))
                if node in regions:
                    found.append(self._grow(regions[node].slot, memory.regions[node]))
                found += self._taken_behind(node)
            elif node in self.kernels:
                found.append(self._call(node, where, work))
        return tuple(found)

    def _taken_behind(self, node: Node) -> list[Step]:
        """Memory for results of the program and for threads."""
        found: list[Step] = [self._grow(i, n) for i, n in self.sizes.results(node).items()]
        scratch = self.sizes.scratch_behind(node)
        if not same_dim(scratch, 0):
            found.append(Grow(self._slot(), self.sizes.amount(aligned(scratch)), for_threads=True))
        return found

    def _grow(self, slot: int | None, size: Dim) -> Grow:
        assert slot is not None
        return Grow(slot, self.sizes.amount(size))

    def _slot(self) -> int:
        self._slots.append(self.outputs + len(self._slots))
        return self._slots[-1]

    def _place(self, base: _Base) -> Arg:
        return self.sizes.place(base.offset, base.slot)

    def _call(self, node: Node, where: Mapping[Value, Arg], work: _Base) -> KernelCall:
        code = self.kernels[node]
        return KernelCall(
            code.symbol,
            (*(where[v] for v in (*node.inputs, *node.outputs)), *self.sizes.scalars(node)),
            label=node.loc,
            workspace=self._place(work),
            messages=code.messages,
            sources=sources(node),
        )

    def _host_call(self, node: Node, op: Host, where: Mapping[Value, Arg]) -> HostCall:
        inputs, outputs = (
            tuple(
                HostArray(v.dtype.name, where[v], tuple(map(self.sizes.amount, v.shape)))
                for v in values
            )
            for values in (node.inputs, node.outputs)
        )
        return HostCall(
            op.function, op.settings, op.operator, node.loc, inputs, outputs, op.is_fallback
        )

    def _branch(self, node: Node, op: If, where: Mapping[Value, Arg], base: _Base) -> Branch:
        branches: list[tuple[Step, ...]] = []
        for body in op.bodies:
            border = dict(zip(body.inputs, (where[v] for v in node.inputs[1:]), strict=True))
            copies: list[Copy] = []
            for v, outer in zip(body.outputs, node.outputs, strict=True):
                if v in body.producer and v not in border:
                    border[v] = where[outer]
                else:
                    source = border[v] if v in border else self.constants[v]
                    copies.append(Copy(source, where[outer], self._amount(v)))
            branches.append((*self.steps(body, border, base), *copies))
        return Branch(where[node.inputs[0]], *branches)

    def _pointer(self) -> int:
        self._pointers.append(len(self._pointers))
        return self._pointers[-1]

    def _loop(self, node: Node, op: Loop, where: Mapping[Value, Arg], base: _Base) -> Repeat:
        body, cells = op.body, _Cells.of(op)
        carried, sliced, same = op.split(node.inputs)
        number, *rest = body.inputs
        current, elements = rest[: op.carried], rest[op.carried :][: len(sliced)]
        border = {number: self._place(base + cells.number)}
        border |= {v: Arg("pointer", self._pointer()) for v in (*current, *elements)}
        fixed = rest[op.carried + len(sliced) :]
        border |= {v: where[outer] for v, outer in zip(fixed, same, strict=True)}
        moving = {number, *current}  # memory that is another's in the next iteration
        slices = [
            self._slice(border[v].index, where[outer], v, way)
            for v, outer, way in zip(elements, sliced, op.sliced, strict=True)
        ]
        copies: list[Copy] = []
        following, stacked = _results(op)
        for v, outer, way in zip(stacked, node.outputs[op.carried :], op.collected, strict=True):
            slot = Arg("pointer", self._pointer())
            slices.append(self._slice(slot.index, where[outer], v, way))
            if v in body.producer and v not in border:
                border[v] = slot
            else:
                source = border[v] if v in border else self.constants[v]
                copies.append(Copy(source, slot, self._amount(v)))
        going: list[Carried] = []
        for k, v in enumerate(following):
            at, end, size = border[current[k]].index, where[node.outputs[k]], self._amount(v)
            first = where[carried[k]]
            is_own = v in body.producer and v not in border
            if not is_own and (v not in moving or v is current[k]):
                lies = border[v] if v in border else self.constants[v]
                going.append(Carried(at, first, lies, end, size))
                continue
            target = Arg("pointer", self._pointer())
            if is_own:
                border[v] = target
            else:
                copies.append(Copy(border[v], target, size))
            other = self._place(base + cells.others[k])
            going.append(Carried(at, first, target, end, size, target.index, other))
        again = None
        if op.conditional:
            v = body.outputs[0]
            if v in body.producer and v not in border:
                border[v] = self._place(base + cells.again)
            again = border[v] if v in border else self.constants[v]
        steps = self.steps(body, border, base + cells.bytes)
        return Repeat(
            self.sizes.amount(op.steps) if op.steps is not None else where[node.inputs[0]],
            (*steps, *copies),
            tuple(slices),
            tuple(going),
            border[number] if _reads(body, number) else None,
            where[node.inputs[op.leading - 1]] if op.conditional else None,
            again,
        )

    def _amount(self, value: Value) -> int | Arg:
        return self.sizes.amount(value_bytes(value))

    def _slice(self, pointer: int, whole: Arg, element: Value, way: int) -> Slice:
        """The pointer to an element in the memory of all of them."""
        return Slice(pointer, whole, self.sizes.amount(value_bytes(element)), way < 0)


@dataclass(frozen=True, slots=True)
class _Cells:
    """What a loop itself needs of the arena, as offsets.

    number: of the iteration's number.
    again: of the condition.
    others: for each carried value, of the buffer that takes turns with the result.
    bytes: of all.
    """

    number: int
    again: int
    others: tuple[Dim, ...]
    bytes: Dim

    @staticmethod
    def of(op: Loop) -> _Cells:
        end: Dim = 2 * LINE_BYTES
        others: list[Dim] = []
        following, stacked = _results(op)
        for v in following:
            others.append(end)
            is_collected = v in stacked and v in op.body.producer
            if not is_collected:
                end = as_dim(end + aligned(value_bytes(v)))
        return _Cells(0, LINE_BYTES, tuple(others), end)


def _results(op: Loop) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The body's carried results, and those that are collected."""
    results = op.body.outputs[op.conditional :]
    return results[: op.carried], results[op.carried :]


def _reads(body: Graph, value: Value) -> bool:
    return value in body.consumers or value in body.outputs


def sources(node: Node) -> tuple[str, ...]:
    """The source model's nodes that a fused node computes."""
    inside = node.op.body.nodes if isinstance(node.op, Fused) else ()
    return tuple(dict.fromkeys(n.loc for n in inside if n.loc)) or (node.loc,)
