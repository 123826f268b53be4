"""From kernels to a program: memory, constants, calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tilesmith.codegen.kernel import KernelCode
from tilesmith.codegen.sizes import SIZES, SizeProgram
from tilesmith.graph.control import graphs_in
from tilesmith.graph.nodes import Constant, Data, Fused, Graph, Node, Value
from tilesmith.graph.passes.layout import relayout_count
from tilesmith.graph.passes.localise import localise
from tilesmith.graph.passes.memory_plan import largest
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import as_dim, bound, expected, symbols_of
from tilesmith.ir.text import Names, print_expr
from tilesmith.ir.types import Dim, same_dim
from tilesmith.runtime.native import round_up, zeroed_bytes
from tilesmith.runtime.program import (
    ENTRY,
    Arg,
    Blob,
    Contents,
    Program,
    Symbol,
    TensorSpec,
    pack_constants,
)

from .session import Session
from .steps import Placement

Packed: TypeAlias = tuple[Blob, list[int]]
"""The constants of a graph in one array of bytes, and where each begins."""


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
        return pack_constants(contents, session.jobs, allocate)


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
    places = zip(constants_in(fused), offsets, strict=True)
    placement = Placement(kernels, {c.value: Arg("constant", at) for c, at in places}, run)
    memory = placement.plan(fused)
    scratch = largest([run.scratch(n) for n in kernels])
    run.begin(memory.arena_bytes, scratch)
    border = {v: Arg("input", i) for i, v in enumerate(fused.inputs)}
    border |= {v: Arg("output", i) for i, v in enumerate(fused.outputs)}
    steps = placement.steps(fused, border, 0)
    backend = session.backend
    fixed = {
        "arena_bytes": expected(memory.arena_bytes),
        "scratch_bytes": round_up(expected(scratch)),
    }
    sizes = run.program()
    main = backend.entry(steps, **fixed, sizes=len(sizes.values) if sizes else 0)
    objects = {ENTRY: main} | ({SIZES: backend.sizes(sizes)} if sizes else {})
    outputs = zip(fused.outputs, fused.output_names, strict=True)
    return Program(
        tuple(_spec(v, v.name, run.names) for v in fused.inputs),
        tuple(_spec(v, name, run.names) for v, name in outputs),
        steps,
        fixed["arena_bytes"],
        fixed["scratch_bytes"],
        blob,
        {
            **{k.symbol: k.code for k in kernels.values()},
            # calls only: nothing to optimize
            **{name: backend.compile(text, session.target, 0) for name, text in objects.items()},
        },
        session.target,
        {
            "name": fused.name,
            "arena_lower_bound": memory.lower_bound,
            "relayouts": relayout_count(fused),
        },
        {k.symbol: k.info for k in kernels.values()},
        tuple(Symbol(run.names(v), v.sizes) for v in run.symbols if v.sizes is not None),
        len(sizes.values) if sizes else 0,
    )


class _Sizes:
    """The sizes of a run: numbers, and values that the program computes from its symbols.

    symbols: in the order of the extents that a caller gives.
    names: the names of symbols for users.
    workspaces: of each node, if it needs some.
    """

    def __init__(
        self,
        fused: Graph,
        kernels: Mapping[Node, KernelCode],
        given: Mapping[Node, Sequence[Dim]],
    ) -> None:
        self.names = Names()
        self.symbols = symbols_of(d for v in fused.inputs for d in v.shape)
        self._outputs = [d for v in fused.outputs for d in _physical(v)]
        extents = [d for v in fused.inputs for d in v.shape]
        self._formulas = [d for d in extents if not isinstance(d, (int, Var))]
        self._extents = dict.fromkeys(
            d
            for n in fused.nodes
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

    def _outside(self, node: Node, size: Dim) -> Dim:
        """A size in a kernel's own symbols, in those of the program."""
        return bound(size, self._own.get(node, {}))

    def scratch(self, node: Node) -> Dim:
        return self._outside(node, self._kernels[node].workspace_per_thread)

    def begin(self, arena: Dim, scratch: Dim) -> None:
        """Make the first values those that callers read."""
        self._values = [arena, scratch, *self._outputs, *self._formulas]

    def place(self, offset: Dim) -> Arg:
        """An offset in the arena."""
        return (
            Arg("arena", offset) if isinstance(offset, int) else Arg("place", self._value(offset))
        )

    def scalars(self, node: Node) -> list[Arg]:
        """What the scalar parameters of a kernel get."""
        kernel, own = self._kernels[node], self._own.get(node, {})
        given = (self.amount(own[kernel.symbols[i]]) for i in kernel.scalars)
        return [Arg("scalar", d) if isinstance(d, int) else d for d in given]

    def amount(self, size: Dim) -> int | Arg:
        """A size."""
        found = as_dim(size)
        return found if isinstance(found, int) else Arg("extent", self._value(found))

    def _value(self, size: Expr) -> int:
        if size not in self._number:
            self._number[size] = len(self._values)
            self._values.append(size)
        return self._number[size]

    def program(self) -> SizeProgram | None:
        """What a run computes first; None if all sizes are numbers."""
        if not self.symbols:
            return None
        return SizeProgram(self.symbols, tuple(self._values), tuple(self._extents))


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


def _spec(value: Value, name: str, names: Names) -> TensorSpec:
    """What a caller passes: the physical array, for users always the logical one."""
    shape = tuple(d if isinstance(d, int) else print_expr(d, names) for d in _physical(value))
    return TensorSpec(name, value.dtype, shape)


def _physical(value: Value) -> tuple[Dim, ...]:
    """The extents in memory."""
    shape = value.shape
    return value.layout.physical_shape(shape) if value.layout else shape  # type: ignore[arg-type]  # ints and Exprs mix
