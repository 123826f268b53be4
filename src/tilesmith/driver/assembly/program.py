"""Assembly of a program from kernels: memory, constants and calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tilesmith.codegen.kernel import KernelCode
from tilesmith.codegen.lower_main import lower_main
from tilesmith.codegen.sizes import sizes_function
from tilesmith.driver.assembly.sizes import Sizes, physical_shape
from tilesmith.driver.assembly.steps import Growth, Placement
from tilesmith.driver.session import Session
from tilesmith.graph.control import graphs_in
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.passes.layout import relayout_count
from tilesmith.graph.passes.rematerialise import computed_again
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected
from tilesmith.ir.text import Names, print_expr
from tilesmith.ir.types import Dim
from tilesmith.loop.verify import verify
from tilesmith.program.functions import ENTRY
from tilesmith.program.nodes import Copy, KernelCall, Step
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

Packed: TypeAlias = tuple[Blob, list[int]]
"""One array of bytes with the constants of a graph and then the defaults of its inputs, and the
offset of each of them.
"""


def pack(fused: Graph, session: Session, allocate: Callable[[int], Blob] = zeroed_bytes) -> Packed:
    """Pack the constants as kernels read them, into memory from `allocate`."""
    with session.timings.stage("pack", under=()):
        # The bodies of control flow share constants with one another and with the enclosing graphs.
        shared: dict[tuple[Data, Layout | None], Contents] = {}
        contents = []
        for c in constants_in(fused):
            origin = c.data if c.data.source is None else c.data.source.data
            key = (origin, c.value.layout)
            contents.append(shared.setdefault(key, _contents(c)))
        contents += _defaults(fused)
        return pack_constants(contents, session.jobs, allocate)


def pack_defaults(graph: Graph) -> tuple[Blob, tuple[tuple[int, int], ...]]:
    """The defaults of a graph's inputs in one array of bytes, and the offset for each input."""
    blob, offsets = pack_constants(_defaults(graph))
    return blob, tuple(zip((i for i, _ in graph.defaults), offsets, strict=True))


def _defaults(graph: Graph) -> list[Contents]:
    """Contents of inputs that a caller may leave out, in the layout that callers use."""
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
    """Assemble the program: plan memory, pack constants, and list the steps.

    packed: the constants, if they are packed already.
    extents: for each node, extents for those symbols of the kernel that the node's body does not
        define.
    """
    run = Sizes(fused, kernels, extents or {})
    blob, offsets = packed if packed is not None else pack(fused, session)
    first_default = len(offsets) - len(fused.defaults)
    places = zip(constants_in(fused), offsets[:first_default], strict=True)
    defaults = zip((i for i, _ in fused.defaults), offsets[first_default:], strict=True)
    where = {c.value: Arg("constant", offset) for c, offset in places}
    placement = Placement(kernels, where, run, len(fused.outputs))
    memory = placement.plan(fused)
    scratch = run.scratch
    run.begin(memory.arena_bytes, scratch)
    border = {v: Arg("input", i) for i, v in enumerate(fused.inputs)}
    border |= {v: Arg("output", i) for i, v in enumerate(fused.outputs)}
    growths = {fused.outputs[i]: Growth(i) for i in run.grown}
    border |= {v: Arg("arena", 0, slot=growth.slot) for v, growth in growths.items()}
    border |= {fused.outputs[o]: Arg("input", i) for o, i in fused.in_place}
    steps = (*placement.steps(fused, border, growths=growths), *run.report())
    backend = session.backend
    fixed = {
        "arena_bytes": expected(memory.arena_bytes),
        "scratch_bytes": round_up(expected(scratch)),
    }
    sizes = run.programs()
    objects: dict[str, str] = {}
    if backend.bare is not None:
        functions = [lower_main(steps, ENTRY, sizes=run.count, **fixed)]
        functions += (sizes_function(p, name) for name, p in sizes.items())
        for function in functions:
            verify(function, "final", "its lowering")
            objects[function.name] = backend.bare(function, session.target)
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
            # the main module only calls functions, so there is nothing to optimise
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
            "computed_again": len(computed_again(fused)),
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
    """Raises UnsupportedError for steps that a device's program can't contain."""
    refused = sorted({type(s).__name__ for s in steps if not isinstance(s, (KernelCall, Copy))})
    refused += ["sizes that only a run knows"] if is_sized else []
    if refused:
        raise UnsupportedError(
            f"target {target!r} runs kernels and copies of fixed sizes, found "
            f"{', '.join(refused)}; give shapes=, or compile for 'native'"
        )


def _contents(constant: Constant) -> Contents:
    """The contents of a constant, which packing writes directly into the blob."""
    value, data = constant.value, constant.data
    shape = value.type.static_shape
    shape = value.layout.physical_shape(shape) if value.layout else shape
    dtype = value.dtype.numpy
    return Contents(
        math.prod(shape) * value.dtype.bytes,
        lambda out: data.copy_to(out.view(dtype).reshape(shape)),
    )


def spec_of(value: Value, name: str, names: Names) -> TensorSpec:
    """The description of the array that a caller passes.  The array has the physical shape, which
    for inputs and outputs is the logical shape that users see.
    """
    return TensorSpec(name, value.dtype, _shown(physical_shape(value), names))


def _shown(dims: Sequence[Dim], names: Names) -> tuple[int | str, ...]:
    """Extents as callers see them: numbers and names."""
    return tuple(d if isinstance(d, int) else print_expr(d, names) for d in dims)
