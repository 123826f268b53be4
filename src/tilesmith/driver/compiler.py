"""From a model, or a schedule, to native code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

from tilesmith.codegen import targets
from tilesmith.frontend.load import facts
from tilesmith.frontend.load import load as load_source
from tilesmith.graph.bind import bind
from tilesmith.graph.control import graphs_in, nodes_in
from tilesmith.graph.custom import uses_of
from tilesmith.graph.expectations import with_possible_sizes
from tilesmith.graph.indices import index_limits
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parts import Part
from tilesmith.graph.text import print_graph
from tilesmith.ir.expr import Var
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic
from tilesmith.ir.text import Names
from tilesmith.ir.types import same_shape
from tilesmith.loop.in_place import shareable
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.ops.base import OPS
from tilesmith.runtime.arguments import Arguments, KernelFunction
from tilesmith.runtime.device_memory import device_memory
from tilesmith.runtime.program import Program
from tilesmith.strategy.intrinsics import available
from tilesmith.support.arguments import checked
from tilesmith.support.cache import cache_key
from tilesmith.support.child import Children
from tilesmith.support.depth import at_depth, depth_checked
from tilesmith.support.errors import ModelError, ScheduleError, UsageError
from tilesmith.support.garbage import rarely_collected
from tilesmith.support.mapped import check_unchanged
from tilesmith.support.options import Accuracy, Options
from tilesmith.te.lower import lower as lower_schedule
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Tensor

from .assembly.program import Packed, assemble, pack
from .kernels import compile_kernels, start_early
from .partitioned import joined, on_cpu, parts_of
from .passes import lower_loops, optimise
from .precision import check_precision
from .request import Request
from .saved.constants import completed
from .saved.program import SavedProgram
from .session import Session, recorded
from .tuned import apply_tuning
from .workers import kernel_workers


def compile_model(
    request: Request, saved: SavedProgram | None = None, workers: Children | None = None
) -> Program:
    """The compiled program of a model.  If possible, it is kept in `saved`.

    workers: processes that compile kernels; more are started where that pays (default: no processes
        at first).
    """
    with rarely_collected(), depth_checked(ModelError, "the model", "divide it into several"):
        graph, session = _requested(request)
        with recorded(session) as session:
            program = compile_program(graph, session, saved, workers)
    told = {
        "narrowed": [n.to_json() for n in session.narrowed],
        "left": session.left,
        "indices": index_limits(graph),
        **facts(request.model, request.signature),
    }
    told = {key: value for key, value in told.items() if value}
    program = replace(program, metadata={**program.metadata, **told})
    if saved is not None and not session.outside:
        with session.timings.stage("save"):
            saved.keep(program, uses_of(graph))
    if request.options.time_passes:
        print(session.timings.report(), plan_report(program), sep="\n", file=sys.stderr)
    return program


def fused_graph(request: Request) -> tuple[Graph, Session]:
    """The fused groups of a model, as `compile_model` makes them, and the session."""
    graph, session = _requested(request)
    with recorded(session) as session:
        return apply_tuning(optimise(graph, session), session)[0], session


def _requested(request: Request) -> tuple[Graph, Session]:
    """The graph of a request, and the session that compiles it."""
    session = Session.of_request(request)
    graph = load_graph(request, session)
    graph = bind(graph, named_symbols(graph, request.sizes))
    if any(n.op.custom and OPS.get(n.op.name) is not type(n.op) for _, n in nodes_in(graph)):
        session.outside.add("an operator that is not registered")
    check_precision(graph, session)
    return graph, session


def structure(fused: Graph) -> str:
    """A hash of a program without the contents of its constants."""
    holes = (*fused.inputs, *(c.value for c in fused.constants))
    return cache_key(print_graph(replace(fused, inputs=holes, constants=(), defaults=())))


def plan_report(program: Program) -> str:
    """One line with the arena's size and its lower bound, the size of the constants, and the number
    of remaining layout conversions.
    """
    if program.parts:
        return "\n".join(f"part {i}: {plan_report(p)}" for i, p in enumerate(program.parts))
    bound = program.metadata["arena_lower_bound"]
    arena, constants = program.arena_bytes, program.constants.nbytes
    return (
        f"arena {arena / 1e6:.2f} MB (at least {bound / 1e6:.2f} MB are alive at one time), "
        f"constants {constants / 1e6:.1f} MB, layout conversions {program.metadata['relayouts']}, "
        f"kernels that compute a value again {program.metadata['computed_again']}"
    )


def load_graph(request: Request, session: Session | None = None) -> Graph:
    """The graph of a model, as its frontend makes it; see `frontend.load`.

    session: the compilation's session (default: a new session for the request).

    Raises UsageError for outputs that can't live in the memory of an input.
    """
    r, session = request, session or Session.of_request(request)
    with session.timings.stage("load"):
        fallback = session.options.fallback != "error"
        homes = r.in_place or {}
        graph = load_source(
            r.model, r.shapes, r.values, session.outside, r.dynamic, r.expected, fallback, homes,
            r.weights, r.optional, session.narrowed, r.signature,
        )  # fmt: skip
        graph = with_possible_sizes(living_in(graph, homes))
    if graph is not r.model:
        session.dumper("load", graph, print_graph)
    return graph


def living_in(graph: Graph, homes: Mapping[str, str]) -> Graph:
    """`graph` with outputs that live in the memory of inputs.

    homes: for each output by name, the name of its input.

    Raises UsageError for unknown names, for two outputs in one input, and if types
    differ.
    """
    inputs = {v.name: i for i, v in enumerate(graph.inputs)}
    outputs = {name: i for i, name in enumerate(graph.output_names)}
    taken: dict[str, str] = {}
    pairs = [*graph.in_place]
    defaults = {graph.inputs[i].name for i, _ in graph.defaults}
    for out, home in homes.items():
        for what, name, names in (("output", out, outputs), ("input", home, inputs)):
            if name not in names:
                raise UsageError(
                    f"in_place: no {what} is called {name!r}; the {what}s are {', '.join(names)}"
                )
        if home in defaults:
            raise UsageError(
                f"in_place: {out!r} can't live in {home!r}, whose default value no run may change; "
                "leave it out of optional="
            )
        if taken.setdefault(home, out) != out:
            raise UsageError(f"in_place: {taken[home]!r} and {out!r} are to live in {home!r}")
        result_type, wanted = graph.outputs[outputs[out]].type, graph.inputs[inputs[home]].type
        if result_type.dtype is not wanted.dtype or not same_shape(result_type.shape, wanted.shape):
            raise UsageError(
                f"in_place: output {out!r} can't live in {home!r}: expected the input's type "
                f"{wanted}, found {result_type}; compile without it, or for shapes that agree"
            )
        if result_type.dtype.is_host:
            raise UsageError(f"in_place: {out!r} is {result_type}, which has no memory to live in")
        pairs.append((outputs[out], inputs[home]))
    return replace(graph, in_place=tuple(pairs)) if homes else graph


def named_symbols(graph: Graph, sizes: Mapping[str, int]) -> dict[Var, int]:
    """Sizes of the symbols of `graph`, from sizes by name.

    Raises UsageError for a name that no symbol has and for a size outside its range.
    """
    names = Names()
    known = {names(v): v for v in graph.symbols}
    for name, size in sizes.items():
        if name not in known:
            raise UsageError(
                f"no dimension is called {name!r}; the open ones are {', '.join(known) or 'none'}"
            )
        allowed = known[name].sizes
        if allowed is not None and not allowed.low <= size <= allowed.high:
            raise UsageError(
                f"dimension {name!r}: expected {allowed.low} to {allowed.high}, found {size}"
            )
    return {known[name]: size for name, size in sizes.items()}


def compile_program(
    graph: Graph,
    session: Session,
    saved: SavedProgram | None = None,
    workers: Children | None = None,
) -> Program:
    """A program from a graph: kernels, memory plan, constants.

    saved: where the program will be kept; its constants are packed there.
    workers: processes that compile kernels (default: no processes at first).

    Raises ModelError if the model's file changed since the graph was loaded.  Raises
    UnsupportedError for operators that a device can't run, if the CPU may not run them
    (`fallback="error"`).
    """
    with (
        kernel_workers() if workers is None else nullcontext(workers) as workers,
        ThreadPoolExecutor(1) as pool,
    ):
        outer, reasons = parts_of(graph, session)
        if outer is None:
            program = _program(graph, session, saved, workers, pool)
        else:
            whole = _without_limit(session)  # the limit is that of all parts together
            sessions = {True: whole, False: on_cpu(whole)}
            parts = {}
            for node in outer.nodes:
                if isinstance(node.op, Part):
                    with recorded(sessions[node.op.on_device]) as own:
                        parts[node] = _program(node.op.body, own, None, workers, pool)
            program = joined(outer, parts, reasons, session)
    constants = (c for g in graphs_in(graph) for c in g.constants)
    check_unchanged(c.data.array for c in constants if c.data.is_read)
    return program


def _program(
    graph: Graph,
    session: Session,
    saved: SavedProgram | None,
    workers: Children,
    pool: ThreadPoolExecutor,
) -> Program:
    """A program all of whose kernels run on one target, within `Options.memory_limit`.

    The graph pass that bounds the bytes alive knows neither the workspace of kernels nor the gaps
    between values, nor what else a device's memory holds.  So it gets a lower limit where these
    exceed it.  The runner of a device refuses a program that stays above the limit.
    """
    limit = session.options.memory_limit
    if limit is None:
        return _unbounded(graph, session, session, saved, workers, pool)
    on_device = session.target.device is not None
    plain, aim = _without_limit(session), limit
    fewest: int | None = None
    while True:
        bounded = replace(session, options=replace(session.options, memory_limit=aim))
        program = _unbounded(graph, bounded, plain, None, workers, pool)
        needed = device_memory(program).total if on_device else program.arena_bytes
        if needed <= limit:
            return program
        room = limit - (needed - program.arena_bytes)  # for the arena
        if aim > room:
            aim = room
        elif fewest is None or needed < fewest:
            aim, fewest = aim - (needed - limit), needed
        else:
            break
        if aim < 1:
            break
    if on_device:
        return program
    raise ModelError(
        f"memory_limit: expected at most {limit} bytes of intermediate values, found {needed} even "
        "if values are computed again; raise the limit"
    )


def _without_limit(session: Session) -> Session:
    return replace(session, options=replace(session.options, memory_limit=None))


def _unbounded(
    graph: Graph,
    of_graph: Session,
    session: Session,
    saved: SavedProgram | None,
    workers: Children,
    pool: ThreadPoolExecutor,
) -> Program:
    """A program whose graph passes have a session of their own."""
    start_early(workers, graph, session)
    fused, decisions = apply_tuning(optimise(graph, of_graph), session)
    # This thread mostly runs without Python's lock.
    packing = pool.submit(_pack, fused, session, saved)
    kernels = compile_kernels(fused, session, decisions, workers)
    with session.timings.stage("link"):
        program = assemble(fused, kernels, session, packing.result())
        told = {**program.metadata, "structure": structure(fused)}
        return replace(program, metadata=told)


def _pack(fused: Graph, session: Session, saved: SavedProgram | None) -> Packed:
    """A program's constants, packed into the memory of the file that keeps the program."""
    if saved is None:
        return pack(fused, session)
    packed = pack(fused, session, saved.allocate)
    with session.timings.stage("hash", under=()):
        completed(packed[0])
    return packed


@checked(UsageError)
@at_depth(ScheduleError, "an expression", "store a stage in between, with compute_root")
def build(
    schedule: Schedule | Literal["auto"],
    args: Sequence[Tensor],
    target: str | Target | None = None,
    threads: int | None = None,
    name: str = "main",
    options: Options | None = None,
    in_place: Mapping[Tensor, Tensor] | None = None,
    accuracy: Accuracy | None = None,
) -> KernelFunction:
    """Compile a schedule to a function of arrays.  The function takes an array for each of `args`
    in order, and writes the arrays of outputs.

    schedule: the schedule; for "auto", rules choose one by the structure of the expressions.
    args: every placeholder, and at least one value of each output.
    in_place: output -> the input into whose array the output is written.  Such an output is not a
        parameter of the function.  All other outputs are parameters.  A caller may pass the array
        of an input for such a parameter if `in_place` would allow this pair.
    accuracy: "strict" fixes every bit of the results (docs/accuracy.md).
    options: all other options.

    Raises UsageError and ScheduleError.  An output may be in `in_place` only if the iteration that
    overwrites an element of the input is the last one to read this element.  Otherwise
    ScheduleError is raised.
    """
    session = Session.of(
        options,
        target=target if isinstance(target, str) else None,
        threads=threads,
        accuracy=accuracy,
    )
    if not name:
        raise UsageError("build: expected a name of a letter or more, found ''")
    if isinstance(target, Target):
        session = replace(session, target=target)
    if isinstance(schedule, str):
        if schedule != "auto":
            raise UsageError(f'schedule is a Schedule or "auto", not {schedule!r}')
        bound = session.options.algorithm_bound
        schedule = session.backend.auto_schedule(args, session.target, bound)
    func = lower_schedule(schedule, args, name)
    may_be = shareable(func)
    lives_in = _homes(func, args, in_place or {}, may_be)
    number = {b: i for i, b in enumerate(func.buffers)}
    shared = {number[b] for out, inputs in may_be.items() if inputs for b in (out, *inputs)}
    with session.timings.stage("build"):
        backend, made_for = session.backend, session.target
        strict = session.options.is_strict
        kernel = backend.emit(lower_loops(func, session), made_for, shared=shared, strict=strict)
        return backend.tools.function(
            kernel,
            Arguments(func, may_be, lives_in),
            made_for,
            opt=session.options.opt_level,
            threads=session.options.threads,
        )


def _homes(
    func: Func,
    args: Sequence[Tensor],
    wanted: Mapping[Tensor, Tensor],
    may_be: Mapping[Buffer, Sequence[Buffer]],
) -> dict[Buffer, Buffer]:
    """For each buffer of an output, the buffer of the input whose memory the output uses."""
    buffer = dict(zip(args, func.buffers, strict=True))
    homes: dict[Buffer, Buffer] = {}
    for out, home in wanted.items():
        if out not in buffer or buffer[out] not in func.outputs or home not in buffer:
            raise UsageError(
                f"in_place: expected an output and an input among the arguments, found {out!r} in "
                f"{home!r}"
            )
        if buffer[home] in homes.values():
            raise UsageError(f"in_place: two outputs are to live in {home.name}")
        if buffer[home] not in may_be.get(buffer[out], ()):
            raise ScheduleError(
                f"{out.name} can't be written into {home.name}: expected one loop nest that writes "
                f"each element of {out.name} once and reads {home.name} only there, at the same "
                "indices, and arrays of equal shape and element size; inline the stages between "
                f"them, or give {out.name} an array of its own"
            )
        homes[buffer[out]] = buffer[home]
    return homes


@checked(UsageError)
def tensor_intrinsics(target: str | Target | None = None) -> Mapping[str, TensorIntrinsic]:
    """The shipped intrinsics that a target has, by name, for `Stage.tensorize`.

    target: a target or its name; by default the target in the environment's options, as for
        `build`.

    `str(intrinsic)` shows what it computes.  `te.decl_tensor_intrin` declares others.  Raises
    UsageError for an unknown target.
    """
    return available(targets.target(target or Options.from_environment().target))
