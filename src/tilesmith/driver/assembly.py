"""From kernels to a program: memory, constants, calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tilesmith.codegen.kernel import KernelCode
from tilesmith.codegen.sizes import SIZES, SizeProgram
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value
from tilesmith.graph.passes.layout import relayout_count
from tilesmith.graph.passes.localise import localise
from tilesmith.graph.passes.memory_plan import largest, plan
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.symbols import bound, expected, symbols_of
from tilesmith.ir.text import Names, print_expr
from tilesmith.ir.types import Dim, same_dim
from tilesmith.runtime.native import round_up, zeroed_bytes
from tilesmith.runtime.program import (
    ENTRY,
    Arg,
    Blob,
    Contents,
    KernelCall,
    Program,
    Symbol,
    TensorSpec,
    pack_constants,
)

from .session import Session

Packed: TypeAlias = tuple[Blob, list[int]]
"""The constants of a graph in one array of bytes, and where each begins."""


def pack(fused: Graph, session: Session, allocate: Callable[[int], Blob] = zeroed_bytes) -> Packed:
    """The constants as kernels want them, in memory that `allocate` gives."""
    with session.timings.stage("pack", under=()):
        return pack_constants([_contents(c) for c in fused.constants], session.jobs, allocate)


def assemble(
    fused: Graph, kernels: Mapping[Node, KernelCode], session: Session, packed: Packed | None = None
) -> Program:
    """Lay out memory and constants, where they are not `packed`, and list the kernel calls."""
    run = _Sizes(fused, kernels)
    memory = plan(fused, run.workspaces)
    blob, offsets = packed if packed is not None else pack(fused, session)
    where: dict[Value, Arg] = {v: Arg("input", i) for i, v in enumerate(fused.inputs)}
    where |= {c.value: Arg("constant", at) for c, at in zip(fused.constants, offsets, strict=True)}
    scratch = largest([run.scratch(n) for n in kernels])
    run.begin(memory.arena_bytes, scratch)
    where |= {v: run.place(at) for v, at in memory.offsets.items()}
    where |= {v: Arg("output", i) for i, v in enumerate(fused.outputs)}
    where |= {v: replace(where[home], offset=at) for v, (home, at) in memory.outside.items()}
    calls = [
        KernelCall(
            kernels[n].symbol,
            (*(where[v] for v in (*n.inputs, *n.outputs)), *run.scalars(n)),
            label=n.loc,
            workspace=run.place(memory.workspace.get(n, 0)),
            messages=kernels[n].messages,
            sources=sources(n),
        )
        for n in fused.nodes
        if n in kernels
    ]
    backend = session.backend
    fixed = {
        "arena_bytes": expected(memory.arena_bytes),
        "scratch_bytes": round_up(expected(scratch)),
    }
    sizes = run.program()
    main = backend.entry(calls, **fixed, sizes=len(sizes.values) if sizes else 0)
    objects = {ENTRY: main} | ({SIZES: backend.sizes(sizes)} if sizes else {})
    outputs = zip(fused.outputs, fused.output_names, strict=True)
    return Program(
        tuple(_spec(v, v.name, run.names) for v in fused.inputs),
        tuple(_spec(v, name, run.names) for v, name in outputs),
        tuple(calls),
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

    def __init__(self, fused: Graph, kernels: Mapping[Node, KernelCode]) -> None:
        self.names = Names()
        self.symbols = symbols_of(d for v in fused.inputs for d in v.shape)
        self._outputs = [d for v in fused.outputs for d in _physical(v)]
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
                self._own[n] = dict(zip(k.symbols, localise(n.op.body)[1], strict=True))
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
        self._values = [arena, scratch, *self._outputs]

    def place(self, offset: Dim) -> Arg:
        """An offset in the arena."""
        return (
            Arg("arena", offset) if isinstance(offset, int) else Arg("place", self._value(offset))
        )

    def scalars(self, node: Node) -> list[Arg]:
        """What the scalar parameters of a kernel get."""
        kernel, own = self._kernels[node], self._own.get(node, {})
        given = (own[kernel.symbols[i]] for i in kernel.scalars)
        return [
            Arg("scalar", d) if isinstance(d, int) else Arg("extent", self._value(d)) for d in given
        ]

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


def sources(node: Node) -> tuple[str, ...]:
    """The source model's nodes that a fused node computes."""
    inside = node.op.body.nodes if isinstance(node.op, Fused) else ()
    return tuple(dict.fromkeys(n.loc for n in inside if n.loc)) or (node.loc,)


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
