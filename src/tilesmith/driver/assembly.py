"""From kernels to a program: memory, constants, calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tilesmith.codegen.kernel import KernelCode
from tilesmith.codegen.sizes import SizeProgram, sizes_function
from tilesmith.graph.control import graphs_in
from tilesmith.graph.measure import Measure, Stage, stages_in
from tilesmith.graph.nodes import Constant, Data, Fused, Graph, Node, Value
from tilesmith.graph.passes.layout import relayout_count
from tilesmith.graph.passes.localise import localise
from tilesmith.graph.passes.memory_bounds import known_before, largest_shape
from tilesmith.graph.passes.memory_plan import largest
from tilesmith.ir.expr import Const, Expr, Var, as_expr, minimum
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import as_dim, bound, expected, symbols_of
from tilesmith.ir.text import Names, print_expr
from tilesmith.ir.types import Dim, same_dim
from tilesmith.loop.verify import verify
from tilesmith.program.functions import ENTRY, SIZES
from tilesmith.program.nodes import Copy, Extent, KernelCall, Measurement, Report, Step
from tilesmith.program.verify import verify as verify_program
from tilesmith.runtime.native import round_up, zeroed_bytes
from tilesmith.runtime.program import (
    Arg,
    Blob,
    Contents,
    Program,
    Symbol,
    TensorSpec,
    pack_constants,
)
from tilesmith.support.errors import UnsupportedError

from .session import Session
from .steps import Placement, Room

Packed: TypeAlias = tuple[Blob, list[int]]
"""The constants of a graph, then its inputs' defaults, in one array of bytes, and where each
begins.
"""


def pack(fused: Graph, session: Session, allocate: Callable[[int], Blob] = zeroed_bytes) -> Packed:
    """The constants as kernels want them, in memory that `allocate` gives."""
    with session.timings.stage("pack", under=()):
        # Bodies of control flow share constants with one another and with the graphs around them.
        shared: dict[tuple[Data, Layout | None], Contents] = {}
        contents = []
        for c in constants_in(fused):
            origin = c.data if c.data.source is None else c.data.source.data
            key = (origin, c.value.layout)
            contents.append(shared.setdefault(key, _contents(c)))
        contents += _defaults(fused)
        return pack_constants(contents, session.jobs, allocate)


def pack_defaults(graph: Graph) -> tuple[Blob, tuple[tuple[int, int], ...]]:
    """The defaults of a graph's inputs in one array of bytes, and where each input's begins."""
    blob, offsets = pack_constants(_defaults(graph))
    return blob, tuple(zip((i for i, _ in graph.defaults), offsets, strict=True))


def _defaults(graph: Graph) -> list[Contents]:
    """What inputs hold that a caller leaves out, in the layout that callers know."""
    return [_contents(c) for c in graph.default_of.values()]


def constants_in(fused: Graph) -> Iterator[Constant]:
    """The constants of a graph and of its control flow."""
    return (c for graph in graphs_in(fused) for c in graph.constants)


def assemble(
    fused: Graph,
    kernels: Mapping[Node, KernelCode],
    session: Session,
    packed: Packed | None = None,
    extents: Mapping[Node, Sequence[Dim]] | None = None,
) -> Program:
    """Lay out memory and constants, where they are not `packed`, and list the kernel calls.

    extents: what the symbols of kernels stand for, where the node's body does not say it.
    """
    run = _Sizes(fused, kernels, extents or {})
    blob, offsets = packed if packed is not None else pack(fused, session)
    first_default = len(offsets) - len(fused.defaults)
    places = zip(constants_in(fused), offsets[:first_default], strict=True)
    defaults = zip((i for i, _ in fused.defaults), offsets[first_default:], strict=True)
    where = {c.value: Arg("constant", at) for c, at in places}
    placement = Placement(kernels, where, run, len(fused.outputs))
    memory = placement.plan(fused)
    scratch = run.scratch
    run.begin(memory.arena_bytes, scratch)
    border = {v: Arg("input", i) for i, v in enumerate(fused.inputs)}
    border |= {v: Arg("output", i) for i, v in enumerate(fused.outputs)}
    rooms = {fused.outputs[i]: Room(i) for i in run.grown}
    border |= {v: Arg("arena", 0, slot=room.slot) for v, room in rooms.items()}
    border |= {fused.outputs[o]: Arg("input", i) for o, i in fused.in_place}
    steps = (*placement.steps(fused, border, rooms=rooms), *run.report())
    backend = session.backend
    fixed = {
        "arena_bytes": expected(memory.arena_bytes),
        "scratch_bytes": round_up(expected(scratch)),
    }
    sizes = run.programs()
    objects: dict[str, str] = {}
    if backend.entry is not None and backend.bare is not None:
        objects[ENTRY] = backend.entry(steps, session.target, **fixed, sizes=run.count)
        for name, p in sizes.items():
            function = sizes_function(p, name)
            verify(function, "final", "the sizes of a run")
            objects[name] = backend.bare(function, session.target)
    else:
        check_steps(steps, session.target.name, bool(sizes))
    outputs = zip(fused.outputs, fused.output_names, strict=True)
    program = Program(
        tuple(spec_of(v, v.name, run.names) for v in fused.inputs),
        tuple(spec_of(v, name, run.names) for v, name in outputs),
        steps,
        fixed["arena_bytes"],
        fixed["scratch_bytes"],
        blob,
        {
            **{k.symbol: k.code for k in kernels.values()},
            # calls only: nothing to optimize
            **{
                name: backend.tools.compile(text, session.target, 0)
                for name, text in objects.items()
            },
        },
        session.target,
        {
            "name": fused.name,
            "arena_lower_bound": memory.lower_bound,
            "relayouts": relayout_count(fused),
        },
        {k.symbol: k.info for k in kernels.values()},
        tuple(Symbol.of(run.names(v), v.sizes) for v in run.symbols if v.sizes is not None),
        run.count,
        fused.in_place,
        defaults=tuple(defaults),
        bounds=tuple((i, _shown(dims, run.names)) for i, dims in run.bounds.items()),
    )
    verify_program(program.main, program.objects)
    return program


def check_steps(steps: Sequence[Step], target: str, is_sized: bool) -> None:
    """Raises UnsupportedError for what a program on a device does not do."""
    found = sorted({type(s).__name__ for s in steps if not isinstance(s, (KernelCall, Copy))})
    found += ["sizes that only a run knows"] if is_sized else []
    if found:
        raise UnsupportedError(
            f"target {target!r} runs kernels and copies of fixed sizes, found {', '.join(found)}; "
            "give shapes=, or compile for 'native'"
        )


class _Sizes:
    """The sizes of a run: numbers, and values that the program computes from its symbols.

    symbols: that inputs have, in the order of the extents that a caller gives.
    names: the names of symbols for users.
    workspaces: of each node, if it needs some.
    scratch: bytes of scratch memory for each thread that are known before a run.
    grown: numbers of the outputs whose extents a run measures.
    bounds: what these extents do not exceed, where that is known before.
    """

    def __init__(
        self,
        fused: Graph,
        kernels: Mapping[Node, KernelCode],
        given: Mapping[Node, Sequence[Dim]],
    ) -> None:
        self.names = Names()
        self.symbols = symbols_of(d for v in fused.inputs for d in v.shape)
        for s in self.symbols:  # the names that callers use come first
            self.names(s)
        graphs = list(graphs_in(fused))
        self._stages = list(stages_in(fused))
        self._all = [*self.symbols]  # in the order of the extents
        self._first: dict[Stage, int] = {}  # the number of a stage's first extent
        self._number_of: dict[Var, int] = {}  # the number of the stage, from 1
        for i, stage in enumerate(self._stages):
            self._first[stage] = len(self._all)
            self._all += stage.symbols
            self._number_of |= dict.fromkeys(stage.symbols, i + 1)
        self._results = [_physical(v) for v in fused.outputs]
        self._host = [i for i, v in enumerate(fused.outputs) if v.dtype.is_host]
        measured = (i for i, r in enumerate(self._results) if any(map(self.stage_of, r)))
        self.grown = [i for i in measured if i not in self._host]
        found = ((i, largest_shape(self._results[i], self._stages)) for i in self.grown)
        self.bounds = {i: shape for i, shape in found if shape is not None}
        extents = [d for v in fused.inputs for d in v.shape]
        self._formulas = [d for d in extents if not isinstance(d, (int, Var))]
        self._extents = dict.fromkeys(
            d
            for g in graphs
            for n in g.nodes
            for v in n.outputs
            for d in v.shape
            if isinstance(d, Expr) and not isinstance(d, Var)
        )
        self._kernels = kernels
        self._own: dict[Node, dict[Expr, Dim]] = {}
        for n, k in kernels.items():
            if k.symbols:
                assert isinstance(n.op, Fused)
                own = given[n] if n in given else localise(n.op.body)[1]
                self._own[n] = dict(zip(k.symbols, own, strict=True))
        self._number: dict[Expr | int, int] = {}
        self._values: list[Dim] = []
        sizes = {n: self._outside(n, k.workspace) for n, k in kernels.items()}
        self.workspaces = {n: size for n, size in sizes.items() if not same_dim(size, 0)}
        scratch = [self._outside(n, k.workspace_per_thread) for n, k in kernels.items()]
        needed = [(n, known_before([n], self._stages)) for n in scratch]
        self.scratch = largest([known for _, known in needed if not isinstance(known, Stage)])
        self._scratch_at = [(n, stage) for n, stage in needed if isinstance(stage, Stage)]

    def _outside(self, node: Node, size: Dim) -> Dim:
        """A size in a kernel's own symbols, in those of the program."""
        return bound(size, self._own.get(node, {}))

    def _number_at(self, size: Dim) -> int:
        """The number of the stage, from 1, at which a size is known; 0 if it is before."""
        return max((self._number_of.get(s, 0) for s in symbols_of((size,))), default=0)

    def stage_of(self, size: Dim) -> Stage | None:
        """Where a size becomes known; None if it is before a run."""
        number = self._number_at(size)
        return self._stages[number - 1] if number else None

    def begin(self, arena: Dim, scratch: Dim) -> None:
        """Make the first values those that callers read."""
        if self._all:
            unknown = {*self.grown, *self._host}
            known = (d for i, r in enumerate(self._results) if i not in unknown for d in r)
            most = (d for shape in self.bounds.values() for d in shape)
            self._values = [arena, scratch, *known, *self._formulas, *most]

    def place(self, offset: Dim, slot: int | None = None) -> Arg:
        """An offset in the arena, or in a slot."""
        if isinstance(offset, int):
            return Arg("arena", offset, slot=slot)
        return Arg("place", self._value(offset), slot=slot)

    def scalars(self, node: Node) -> list[Arg]:
        """What the scalar parameters of a kernel get."""
        kernel, own = self._kernels[node], self._own.get(node, {})
        given = (self.amount(own[kernel.symbols[i]]) for i in kernel.scalars)
        return [Arg("scalar", d) if isinstance(d, int) else d for d in given]

    def amount(self, size: Dim) -> int | Arg:
        """A size.  It is not simplified: proofs about the maxima in it would take long."""
        if isinstance(size, Const):
            return int(size.value)
        return size if isinstance(size, int) else Arg("extent", self._value(size))

    def _value(self, size: Expr) -> int:
        if size not in self._number:
            self._number[size] = len(self._values)
            self._values.append(size)
        return self._number[size]

    def measurement(self, stage: Stage, source: Arg) -> Measurement:
        """The step of a stage whose extents lie at `source`."""
        return Measurement(
            source,
            self._first[stage],
            tuple(self._extent(s, limit, stage) for s, limit in zip(stage.symbols, stage.bounds)),
            f"{SIZES}{self._stages.index(stage) + 1}",
            stage.node.loc,
        )

    def _extent(self, symbol: Var, limit: Dim, stage: Stage) -> Extent:
        assert symbol.sizes is not None
        op = stage.node.op
        return Extent(
            (isinstance(op, Measure) and op.of) or self.names(symbol),
            symbol.sizes.low,
            self.amount(as_dim(minimum(as_expr(limit), symbol.sizes.high))),
        )

    def scratch_at(self, stage: Stage) -> Dim:
        """Bytes of scratch memory that each thread needs as the extents of a stage say."""
        return largest([n for n, at in self._scratch_at if at == stage])

    def report(self) -> tuple[Report, ...]:
        """The step that tells extents of results to the caller, if there are such."""
        shapes = ((i, tuple(map(self.amount, self._results[i]))) for i in self.grown)
        return (Report(len(self._results), tuple(shapes)),) if self.grown else ()

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self._values)

    def programs(self) -> dict[str, SizeProgram]:
        """The functions that compute the values, by name: one that a run calls first, if inputs
        have symbols, and one for each stage.
        """
        stages = range(0 if self.symbols else 1, len(self._stages) + 1)
        symbols = tuple(self._all)
        return {
            f"{SIZES}{stage or ''}": SizeProgram(
                symbols if stage else self.symbols,
                {i: v for i, v in enumerate(self._values) if self._number_at(v) == stage},
                tuple(d for d in self._extents if self._number_at(d) == stage),
                checks=not stage,
            )
            for stage in stages
        }


def _contents(constant: Constant) -> Contents:
    """What the blob of constants holds for one: packed straight into it."""
    value, data = constant.value, constant.data
    shape = value.type.static_shape
    shape = value.layout.physical_shape(shape) if value.layout else shape
    dtype = value.dtype.numpy
    return Contents(
        math.prod(shape) * value.dtype.bytes,
        lambda out: data.copy_to(out.view(dtype).reshape(shape)),
    )


def spec_of(value: Value, name: str, names: Names) -> TensorSpec:
    """What a caller passes: the physical array, for users always the logical one."""
    return TensorSpec(name, value.dtype, _shown(_physical(value), names))


def _shown(dims: Sequence[Dim], names: Names) -> tuple[int | str, ...]:
    """Extents as callers see them."""
    return tuple(d if isinstance(d, int) else print_expr(d, names) for d in dims)


def _physical(value: Value) -> tuple[Dim, ...]:
    """The extents in memory."""
    shape = value.shape
    return value.layout.physical_shape(shape) if value.layout else shape  # type: ignore[arg-type]  # ints and Exprs mix
