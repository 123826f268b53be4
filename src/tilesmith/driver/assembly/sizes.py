"""Sizes of a run: numbers, and values that the program computes from its symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilesmith.codegen.kernel import KernelCode
from tilesmith.codegen.sizes import SizeProgram
from tilesmith.graph.control import graphs_in
from tilesmith.graph.measure import Measure, Stage, stages_in
from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.graph.passes.localise import localise
from tilesmith.graph.passes.memory_bounds import known_before, largest_shape
from tilesmith.graph.passes.memory_plan import largest
from tilesmith.ir.expr import Const, Expr, Var, as_expr, minimum
from tilesmith.ir.extents import values_of
from tilesmith.ir.symbols import as_dim, bound, symbols_of
from tilesmith.ir.text import Names
from tilesmith.ir.types import Dim, same_dim
from tilesmith.program.functions import SIZES
from tilesmith.program.nodes import Extent, Measurement, Report
from tilesmith.runtime.program import (
    Arg,
)


class Sizes:
    """The sizes of a run: numbers, and values that the program computes from its symbols.

    symbols: symbols of the inputs, in the order of the extents that a caller gives.
    names: names of the symbols for users.
    workspaces: workspace bytes by node, for nodes that need a workspace.
    scratch: bytes of scratch memory for each thread, as far as they are known before a run.
    grown: numbers of the outputs whose extents a run measures.
    bounds: upper bounds on these extents, where they are known before a run.
    """

    def __init__(
        self,
        fused: Graph,
        kernels: Mapping[Node, KernelCode],
        given: Mapping[Node, Sequence[Dim]],
    ) -> None:
        self.names = Names()
        self.symbols = symbols_of(d for v in fused.inputs for d in v.shape)
        for s in self.symbols:  # the symbols that callers use come first
            self.names(s)
        graphs = list(graphs_in(fused))
        self._stages = list(stages_in(fused))
        self._all = [*self.symbols]  # in the order of the extents
        self._first: dict[Stage, int] = {}  # the number of a stage's first extent
        self._number_of: dict[Var, int] = {}  # numbers of stages, from 1
        for i, stage in enumerate(self._stages):
            self._first[stage] = len(self._all)
            self._all += stage.symbols
            self._number_of |= dict.fromkeys(stage.symbols, i + 1)
        self._results = [physical_shape(v) for v in fused.outputs]
        self._host = [i for i, v in enumerate(fused.outputs) if v.dtype.is_host]
        measured = (i for i, r in enumerate(self._results) if any(map(self.stage_of, r)))
        self.grown = [i for i in measured if i not in self._host]
        largest_shapes = ((i, largest_shape(self._results[i], self._stages)) for i in self.grown)
        self.bounds = {i: shape for i, shape in largest_shapes if shape is not None}
        extents = [d for v in fused.inputs for d in v.shape]
        self._formulas = [d for d in extents if not isinstance(d, (int, Var))]
        self._extents = dict.fromkeys(
            d
            for g in graphs
            for n in g.nodes
            for d in (*(d for v in n.outputs for d in v.shape), *_slack(n))
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
        """A size over a kernel's symbols, translated to the symbols of the program."""
        return bound(size, self._own.get(node, {}))

    def _number_at(self, size: Dim) -> int:
        """The number, from 1 on, of the stage at which a size becomes known; 0 if the size is known
        before a run.
        """
        return max((self._number_of.get(s, 0) for s in symbols_of((size,))), default=0)

    def stage_of(self, size: Dim) -> Stage | None:
        """The stage at which a size becomes known; None if the size is known before a run."""
        number = self._number_at(size)
        return self._stages[number - 1] if number else None

    def begin(self, arena: Dim, scratch: Dim) -> None:
        """Begin the list of values with those that callers read."""
        if self._all:
            unknown = {*self.grown, *self._host}
            known = (d for i, r in enumerate(self._results) if i not in unknown for d in r)
            most = (d for shape in self.bounds.values() for d in shape)
            self._values = [arena, scratch, *known, *self._formulas, *most]

    def place(self, offset: Dim, slot: int | None = None) -> Arg:
        """An argument for an offset in the arena, or in a slot."""
        if isinstance(offset, int):
            return Arg("arena", offset, slot=slot)
        return Arg("place", self._value(offset), slot=slot)

    def scalars(self, node: Node) -> list[Arg]:
        """Arguments for the scalar parameters of a kernel."""
        kernel, own = self._kernels[node], self._own.get(node, {})
        extents = (self.amount(own[kernel.symbols[i]]) for i in kernel.scalars)
        return [Arg("scalar", d) if isinstance(d, int) else d for d in extents]

    def amount(self, size: Dim) -> int | Arg:
        """A size as a number or an argument.  It is not simplified, since proofs about its maxima
        take long.
        """
        if isinstance(size, Const):
            return int(size.value)
        return size if isinstance(size, int) else Arg("extent", self._value(size))

    def _value(self, size: Expr) -> int:
        if size not in self._number:
            self._number[size] = len(self._values)
            self._values.append(size)
        return self._number[size]

    def measurement(self, stage: Stage, source: Arg) -> Measurement:
        """The step that reads the extents of a stage from `source`."""
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
        """Bytes of scratch memory that each thread needs, given the extents of a stage."""
        return largest([n for n, known_at in self._scratch_at if known_at == stage])

    def report(self) -> tuple[Report, ...]:
        """The step that reports measured extents of results to the caller; an empty tuple if no
        extent is measured.
        """
        shapes = ((i, tuple(map(self.amount, self._results[i]))) for i in self.grown)
        return (Report(len(self._results), tuple(shapes)),) if self.grown else ()

    @property
    def count(self) -> int:
        """Number of values."""
        return len(self._values)

    def programs(self) -> dict[str, SizeProgram]:
        """The functions that compute the values, by name.  There is one for the start of a run, if
        inputs have symbols, and one for each stage.
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


def _slack(node: Node) -> Iterator[Dim]:
    """Differences of extents that must not be negative.  Only a run can check them."""
    for n in node.op.body.nodes if isinstance(node.op, Fused) else (node,):
        for d in n.op.slack(*(v.type for v in n.inputs)):
            low = values_of(d).lo
            if low is None or low < 0:
                yield d


def physical_shape(value: Value) -> tuple[Dim, ...]:
    """The extents in memory."""
    shape = value.shape
    return value.layout.physical_shape(shape) if value.layout else shape  # type: ignore[arg-type]  # ints and Exprs mix
