"""From kernels to a program: memory, constants, calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tilesmith.codegen.kernel import KernelCode
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value
from tilesmith.graph.passes.layout import relayout_count
from tilesmith.graph.passes.memory_plan import plan
from tilesmith.runtime.native import zeroed_bytes
from tilesmith.runtime.program import (
    ENTRY,
    Arg,
    Blob,
    Contents,
    KernelCall,
    Program,
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
    memory = plan(fused, {n: k.workspace for n, k in kernels.items() if k.workspace})
    blob, offsets = packed if packed is not None else pack(fused, session)
    where: dict[Value, Arg] = {v: Arg("input", i) for i, v in enumerate(fused.inputs)}
    where |= {c.value: Arg("constant", at) for c, at in zip(fused.constants, offsets, strict=True)}
    where |= {v: Arg("arena", at) for v, at in memory.offsets.items()}
    where |= {v: Arg("output", i) for i, v in enumerate(fused.outputs)}
    where |= {v: replace(where[home], offset=at) for v, (home, at) in memory.outside.items()}
    calls = [
        KernelCall(
            kernels[n].symbol,
            tuple(where[v] for v in (*n.inputs, *n.outputs)),
            label=n.loc,
            workspace=memory.workspace.get(n, 0),
            messages=kernels[n].messages,
            sources=sources(n),
        )
        for n in fused.nodes
        if n in kernels
    ]
    scratch = max((k.workspace_per_thread for k in kernels.values()), default=0)
    backend = session.backend
    main = backend.entry(calls, arena_bytes=memory.arena_bytes, scratch_bytes=scratch)
    outputs = zip(fused.outputs, fused.output_names, strict=True)
    return Program(
        tuple(_spec(v, v.name) for v in fused.inputs),
        tuple(_spec(v, name) for v, name in outputs),
        tuple(calls),
        memory.arena_bytes,
        scratch,
        blob,
        {
            **{k.symbol: k.code for k in kernels.values()},
            ENTRY: backend.compile(main, session.target, 0),  # calls only: nothing to optimize
        },
        session.target,
        {
            "name": fused.name,
            "arena_lower_bound": memory.lower_bound,
            "relayouts": relayout_count(fused),
        },
        {k.symbol: k.info for k in kernels.values()},
    )


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


def _spec(value: Value, name: str) -> TensorSpec:
    """What a caller passes: the physical array, for users always the logical one."""
    shape = value.type.static_shape
    return TensorSpec(
        name, value.dtype, value.layout.physical_shape(shape) if value.layout else shape
    )
