"""The compiler from top to bottom.

    model --load--> Graph --GRAPH_PASSES, layout, fuse, place--> Graph of Fused nodes
      --lower_group--> loop IR --LOOP_PASSES--> loop IR
      --expand_math, emit--> LLVM --compile_object--> object code
      --memory plan, entry point, constants--> Program --> Executable

Each distinct fused group is compiled once: its text, without names, is the key in this run and in
the cache on disk.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from tilesmith.codegen.emit import emit
from tilesmith.codegen.kernel import KernelCode, KernelJob, with_head, without_head
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.targets import target as resolve_target
from tilesmith.frontend import onnx
from tilesmith.graph.evaluate import evaluate, logical_array
from tilesmith.graph.nodes import Constant, Fused, Graph, InPlace, Node, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.algebra import algebra
from tilesmith.graph.passes.cse import cse
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.fold import fold
from tilesmith.graph.passes.fold_batch_norm import fold_batch_norm
from tilesmith.graph.passes.fuse import fuse
from tilesmith.graph.passes.halo import add_halos
from tilesmith.graph.passes.layout import assign_layouts
from tilesmith.graph.passes.memory_plan import plan
from tilesmith.graph.passes.place import place
from tilesmith.graph.passes.repack import repack
from tilesmith.graph.passes.sub_pixel import sub_pixel
from tilesmith.graph.passes.winograd import winograd
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify as verify_graph
from tilesmith.ir.layout import Layout
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.trim import trim
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vectorize import vectorize
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify as verify_loops
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.function import NativeFunction
from tilesmith.runtime.machine import machine
from tilesmith.runtime.program import Arg, Contents, KernelCall, Program, TensorSpec, pack_constants
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.cpu import lower_group
from tilesmith.strategy.cpu.cost import Place, Setting, predict
from tilesmith.strategy.cpu.layouts import layout_policy
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.strategy.cpu.winograd_cost import winograd_choice
from tilesmith.strategy.cpu.work import work_of
from tilesmith.strategy.describe import describe
from tilesmith.strategy.knobs import Config, Decisions, values_from_json
from tilesmith.strategy.windows import windows
from tilesmith.support.cache import Cache, cache_key
from tilesmith.support.difference import difference
from tilesmith.support.dump import Dumper
from tilesmith.support.errors import ScheduleError, TilesmithError, UsageError
from tilesmith.support.options import Options, cache_dir_from_environment, records_path
from tilesmith.support.timing import Timings
from tilesmith.support.workers import Workers
from tilesmith.te.lower import lower as lower_schedule
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Tensor
from tilesmith.tuning.family import Family, group_family
from tilesmith.tuning.groups import GroupSpace
from tilesmith.tuning.lookup import Lookup, Match
from tilesmith.tuning.records import Records
from tilesmith.tuning.sketch import auto_schedule
from tilesmith.tuning.workload import convolution_workload, group_workload

_log = logging.getLogger("tilesmith")

BELIEVED = 1.05
"""Of the analytic kernel's predicted time: decisions of a relative that are predicted to take
longer are not believed."""

GraphPass = Callable[[Graph], Graph]
LoopPass = Callable[[Func], Func]

EMPTY = Graph("", (), (), (), (), ())
"""The body of a kernel that is a loop nest by itself."""

GRAPH_PASSES: tuple[tuple[str, GraphPass], ...] = (
    ("decompose", decompose),
    ("sub-pixel", sub_pixel),
    ("fold", fold),
    ("algebra", algebra),
    ("fold-again", fold),
    ("fold-batch-norm", fold_batch_norm),
    ("cse", cse),
    ("dce", dce),
)

LOOP_PASSES: tuple[tuple[str, LoopPass], ...] = (
    ("simplify", simplify_func),
    ("flatten", flatten),
    ("trim", trim),
    ("peel", peel),
    ("vectorize", vectorize),
    ("unroll", unroll),
    ("simplify-again", simplify_func),
    ("hoist", hoist),
)


class Tuned(Protocol):
    """What tuning found for the text of a workload, or for a relative in its `family`."""

    def __call__(self, workload: str, family: Callable[[], Family] | None = None) -> Match: ...


@dataclass(frozen=True, slots=True)
class Session:
    """What one compilation carries along: options, what tuning found and where to report."""

    options: Options
    target: Target
    timings: Timings = field(default_factory=Timings)
    dumper: Dumper = field(default_factory=Dumper)
    tuned: Tuned | None = None

    @staticmethod
    def of(options: Options | None, **overrides: Any) -> Session:
        options = options or Options.from_environment()
        options = options.with_(**overrides)
        return Session(options, resolve_target(options.target), Timings(), Dumper(options.dump))

    def decisions(self, workload: str) -> Decisions:
        """What is known to be best for a workload; nothing where the analytic choices are."""
        return self.tuned(workload).decisions if self.tuned is not None else {}

    @property
    def jobs(self) -> int:
        """How much to do at the same time."""
        return self.options.jobs or len(os.sched_getaffinity(0))


def compile(
    model: Any,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> Executable:
    """Compile a model to native code.

    `model`: a path to an ONNX file, its bytes, an `onnx.ModelProto`, or a `Graph`.  `target`:
    "native" or a named level such as "x86-64-v3".  `shapes`: for inputs whose dimensions the model
    leaves open. Raises ModelError, UnsupportedError or UsageError.
    """
    session = Session.of(options, target=target, threads=threads)
    graph = load_graph(model, shapes, session)
    with recorded(session) as session:
        program = compile_program(graph, session)
    if session.options.time_passes:
        print(session.timings.report(), memory_report(program), sep="\n", file=sys.stderr)
    return Executable(program, session.options.threads)


def memory_report(program: Program) -> str:
    """One line: the arena beside the least that any plan needs, and the constants."""
    bound = program.metadata["arena_lower_bound"]
    arena, constants = program.arena_bytes, program.constants.nbytes
    return (
        f"arena {arena / 1e6:.2f} MB (at least {bound / 1e6:.2f} MB are alive at one time), "
        f"constants {constants / 1e6:.1f} MB"
    )


def load_graph(
    model: Any, shapes: Mapping[str, Sequence[int]] | None = None, session: Session | None = None
) -> Graph:
    """The graph of a model, as the frontend makes it."""
    if isinstance(model, Graph):
        return model
    session = session or Session.of(None)
    if isinstance(model, (str, bytes, os.PathLike)) or hasattr(model, "SerializeToString"):
        with session.timings.stage("load"):
            graph = onnx.load(model, shapes)
        session.dumper("load", graph, print_graph)
        return graph
    raise UsageError(
        "expected a path to an ONNX model, its bytes, an onnx.ModelProto or a Graph, got "
        f"{type(model).__name__}"
    )


@contextmanager
def recorded(session: Session) -> Iterator[Session]:
    """The session with the decisions on record for its target and number of threads."""
    path = records_path(session.options)
    if not session.options.use_records or not path.is_file():
        yield session
        return
    with Records(path) as records:
        yield replace(session, tuned=lookup(records, session))


def lookup(records: Records, session: Session) -> Lookup:
    """What records say to a compilation."""
    options = session.options
    threads = thread_count(options.threads)
    return Lookup(records, session.target.text, threads, options.nearest, session.timings)


def graph_passes(session: Session) -> tuple[tuple[str, GraphPass], ...]:
    """All graph passes in order, the target's own last."""
    policy = layout_policy(session.target)
    choice = winograd_choice(
        session.target,
        session.options.bound("f32"),
        lambda n: Config(session.decisions(convolution_workload(n, session.options.accuracy))),
    )
    return (
        *GRAPH_PASSES,
        ("winograd", lambda g: winograd(g, choice)),
        ("layout", lambda g: assign_layouts(g, policy)),
        ("halo", add_halos),
        ("fuse", fuse),
        ("place", lambda g: place(g, windows)),
    )


def optimise(graph: Graph, session: Session) -> Graph:
    """The graph as fused groups with layouts."""
    for name, run in graph_passes(session):
        with session.timings.stage("graph"), session.timings.stage(name):
            graph = run(graph)
        if session.options.verify_each:
            verify_graph(graph, after=name)
        session.dumper(name, graph, print_graph)
    verify_graph(graph, after="graph passes")
    return graph


def run_loop_passes(func: Func, session: Session, under: tuple[str, ...] = ()) -> Func:
    """From a loop nest to the form that code generation takes."""
    verify_loops(func, "nest", after="lower")
    session.dumper("lower", func, print_func, unit=func.name)
    for name, run in LOOP_PASSES:
        with session.timings.stage(name, under=under):
            func = run(func)
        if session.options.verify_each:
            verify_loops(func, _stage_after(name), after=name)
        session.dumper(name, func, print_func, unit=func.name)
    verify_loops(func, "final", after="loop passes")
    return func


def _stage_after(name: str) -> Any:
    names = [n for n, _ in LOOP_PASSES]
    if names.index(name) < names.index("flatten"):
        return "nest"
    return "final" if names.index(name) >= names.index("unroll") else "flat"


def generate(body: Graph, nest: Func, session: Session, under: tuple[str, ...] = ()) -> KernelCode:
    """Object code for a loop nest, the kernel of the fused `body`."""
    final = expand_math(run_loop_passes(nest, session, under), session.target)
    with session.timings.stage("describe", under=under):
        info = describe(body, nest, final, session.target)
    with session.timings.stage("emit", under=under):
        kernel = emit(final, session.target)
    session.dumper("llvm", kernel, lambda k: k.llvm_text, unit=nest.name)
    with session.timings.stage("llvm", under=under):
        code = compile_object(kernel.llvm_text, session.target, session.options.opt_level)
    return KernelCode(
        kernel.symbol,
        code,
        kernel.workspace_bytes_shared,
        kernel.workspace_bytes_per_thread,
        kernel.messages,
        info,
    )


def compile_program(graph: Graph, session: Session) -> Program:
    """A program from a graph: kernels, memory plan, constants."""
    fused, decisions = apply_tuning(optimise(graph, session), session)
    kernels = compile_kernels(fused, session, decisions)
    with session.timings.stage("link"):
        return assemble(fused, kernels, session)


def canonical(body: Graph) -> Graph:
    """`body` without names, so that equal groups have equal text."""
    fresh = {v: replace(v, name=f"in{i}") for i, v in enumerate(body.inputs)}

    def of(v: Value) -> Value:
        if v not in fresh:
            fresh[v] = replace(v, name="")
        return fresh[v]

    return Graph(
        "k",
        tuple(of(v) for v in body.inputs),
        tuple(Constant(of(c.value), c.data) for c in body.constants),
        tuple(Node(n.op, tuple(map(of, n.inputs)), tuple(map(of, n.outputs))) for n in body.nodes),
        tuple(of(v) for v in body.outputs),
        tuple(f"out{i}" for i in range(len(body.outputs))),
    )


def apply_tuning(fused: Graph, session: Session) -> tuple[Graph, dict[Node, Decisions]]:
    """The graph with constants packed as tuning found best, and its other decisions by node."""
    decisions: dict[Node, Decisions] = {}
    layouts: dict[Node, Mapping[int, Layout]] = {}
    if session.tuned is None:
        return fused, decisions
    fitted: dict[str, Decisions] = {}
    for node in fused.nodes:
        if isinstance(node.op, InPlace):
            continue
        assert isinstance(node.op, Fused)
        constants = [i for i, v in enumerate(node.inputs) if v in fused.constant]
        group = GroupSpace(canonical(node.op.body), constants, session.target)
        workload = group_workload(group.body, constants)
        if workload not in fitted:
            fitted[workload] = _known_decisions(group, workload, session)
        found = fitted[workload]
        if not found:
            continue
        try:
            wanted = packed_layouts(node.op.body, constants, session.target, Config(found))
        except ScheduleError as e:  # of another version of us
            _log.warning("a tuning record is not used: %s", e)
            continue
        decisions[node] = found
        if wanted:
            layouts[node] = wanted
    new = repack(fused, layouts)
    again = dict(zip(fused.nodes, new.nodes, strict=True))
    return new, {again[n]: d for n, d in decisions.items()}


def _known_decisions(group: GroupSpace, workload: str, session: Session) -> Decisions:
    """What records say of a group; what they say of a relative is fitted to it."""
    assert session.tuned is not None
    match = session.tuned(workload, lambda: group_family(group.body, group.constants))
    if match.is_exact:
        return match.decisions
    cache = kernel_cache(session.options)
    parts = (workload, session.options.key(), session.target.text, json.dumps(match.decisions))
    threads = thread_count(session.options.threads)
    key = cache_key("refit", *parts, str(threads))
    blob = cache.get(key) if cache is not None else None
    if blob is not None:
        return values_from_json(json.loads(blob))
    with session.timings.stage("refit"):
        found = refit(group, match.decisions, session, threads)
    if cache is not None:
        cache.put(key, json.dumps(found).encode())
    return found


def refit(group: GroupSpace, wanted: Decisions, session: Session, threads: int) -> Decisions:
    """Decisions made for a relative of a group, as far as they are possible for it; none when the
    performance model expects them to be slower than the analytic ones: nothing is measured here.
    """
    found = group.space().refitted(wanted)
    if not found:
        return {}
    try:
        ours, analytic = (
            predicted_seconds(group, chosen, session, threads) for chosen in (found, {})
        )
    except ScheduleError:
        return {}
    return found if ours <= BELIEVED * analytic else {}


def predicted_seconds(
    group: GroupSpace, decisions: Decisions, session: Session, threads: int
) -> float:
    """What the performance model expects of a group's kernel, its constants in the L3 cache."""
    cfg = Config(decisions)
    func = lower_group(group.packed(cfg), session.target, "k", cfg)
    quiet = Session(session.options, session.target)
    final = expand_math(run_loop_passes(func, quiet), session.target)
    places: list[Place] = ["l1"] * len(group.body.inputs)
    for i in group.constants:
        places[i] = "l3"
    work = work_of(final, session.target)
    return predict(work, machine(), session.target, Setting(threads, places)).seconds


def kernel_cache(options: Options) -> Cache | None:
    """The cache of compiled kernels, if it is to be used."""
    if not options.use_cache:
        return None
    return Cache(options.cache_dir or cache_dir_from_environment(), options.cache_bytes)


def compile_kernels(
    fused: Graph, session: Session, decisions: Mapping[Node, Decisions] | None = None
) -> dict[Node, KernelCode]:
    """Code for each fused node; equal groups share one kernel, distinct ones are compiled at the
    same time.
    """
    options = session.options
    cache = kernel_cache(options)
    target = session.target
    found: dict[str, KernelCode] = {}
    missing: dict[str, _Missing] = {}
    of_node: dict[Node, str] = {}
    with session.timings.stage("kernels"):
        for node in fused.nodes:
            assert isinstance(node.op, Fused)
            if isinstance(node.op, InPlace):
                continue
            body = canonical(node.op.body)
            text = print_graph(body)
            chosen = (decisions or {}).get(node, {})
            key = of_node[node] = kernel_key(text, options, target, chosen)
            if key in found or key in missing:
                continue
            blob = cache.get(key) if cache is not None else None
            if blob is not None:
                found[key] = KernelCode.from_bytes(blob)
            else:
                missing[key] = _Missing(body, text, node.loc, chosen)
        for key, code in _compile_all(missing, session):
            found[key] = code
            if cache is not None:
                cache.put(key, code.to_bytes())
    return {node: found[key] for node, key in of_node.items()}


def kernel_key(text: str, options: Options, target: Target, decisions: Decisions) -> str:
    """What the cache knows a kernel by: the text of its fused body, and how it is compiled."""
    chosen = [json.dumps(decisions)] if decisions else []
    return cache_key(text, options.key(), target.text, *chosen)


def kernel_symbol(key: str) -> str:
    """The name of a kernel in object code."""
    return f"k_{key[:16]}"


@dataclass(frozen=True, slots=True)
class _Missing:
    """A kernel to compile: the body, its text, its name and the decisions of its schedule."""

    body: Graph
    text: str
    loc: str
    decisions: Decisions


WORTH_A_WORKER = 8
"""Kernels for which it pays to start one more process (a third of a second)."""


def _compile_all(
    missing: Mapping[str, _Missing], session: Session
) -> Iterator[tuple[str, KernelCode]]:
    """Code for each missing kernel by key: in this process and in others.

    LLVM and Python have a lock each, so that threads alone keep no two cores busy.
    """
    count = min(session.jobs - 1, len(missing) // WORTH_A_WORKER)
    if session.dumper.enabled or session.options.verify_each:
        count = 0  # what is shown or checked on the way stays in one process
    path = session.timings.path
    with (
        Workers("tilesmith.worker", count) as workers,
        ThreadPoolExecutor(count + 1 if count else session.jobs) as pool,
    ):

        def code_of(item: tuple[str, _Missing]) -> tuple[str, KernelCode]:
            key, m = item
            symbol = kernel_symbol(key)
            reply = None
            if count and not constants_of(m.body):
                job = KernelJob(m.text, symbol, session.options, session.target, m.decisions)
                reply = workers.call(job.to_bytes())
            if reply is None:
                try:
                    found = _compile_kernel(m.body, symbol, m.loc, session, path, m.decisions)
                except ScheduleError as e:
                    if not m.decisions:
                        raise
                    _log.warning("a tuning record is not used: %s", e)
                    found = _compile_kernel(m.body, symbol, m.loc, session, path, {})
                return key, found
            times, code = without_head(reply)
            for name, seconds in times:
                session.timings.add(name, seconds, path)
            return key, KernelCode.from_bytes(code)

        yield from pool.map(code_of, missing.items())


def answer(request: bytes) -> bytes:
    """What a worker process makes of a `KernelJob`: times per stage, then the `KernelCode`."""
    job = KernelJob.from_bytes(request)
    session = Session(job.options, job.target)
    if job.nest:
        return _answer(session, generate(EMPTY, parse_func(job.text), session).to_bytes())
    cache = Cache(job.cache_dir, job.options.cache_bytes) if job.cache_dir is not None else None
    key = kernel_key(job.text, job.options, job.target, job.decisions)
    code = cache.get(key) if cache is not None else None
    if code is None:
        body = parse_graph(job.text)
        code = _compile_kernel(body, job.symbol, "", session, (), job.decisions).to_bytes()
        if cache is not None:
            cache.put(key, code)
    return _answer(session, code)


def _answer(session: Session, code: bytes) -> bytes:
    return with_head([(r.name, r.seconds) for r in session.timings.rows()], code)


def _compile_kernel(
    body: Graph,
    symbol: str,
    loc: str,
    session: Session,
    path: tuple[str, ...],
    decisions: Decisions,
) -> KernelCode:
    try:
        with session.timings.stage("lower", under=path):
            func = lower_group(body, session.target, symbol, Config(decisions))
        return generate(body, func, session, path)
    except TilesmithError as e:
        e.add_note(f"while compiling {loc or 'a kernel'}:\n{print_graph(body)}")
        raise


def assemble(fused: Graph, kernels: Mapping[Node, KernelCode], session: Session) -> Program:
    """Lay out memory and constants and list the kernel calls."""
    memory = plan(fused, {n: k.workspace for n, k in kernels.items() if k.workspace})
    blob, offsets = pack_constants([_contents(c) for c in fused.constants], session.jobs)
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
    return Program.build(
        [_spec(v, v.name) for v in fused.inputs],
        [_spec(v, name) for v, name in zip(fused.outputs, fused.output_names, strict=True)],
        calls,
        memory.arena_bytes,
        max((k.workspace_per_thread for k in kernels.values()), default=0),
        blob,
        {k.symbol: k.code for k in kernels.values()},
        session.target,
        {"name": fused.name, "arena_lower_bound": memory.lower_bound},
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


def load(path: str | os.PathLike[str], threads: int | None = None) -> Executable:
    """The executable in a `.tsm` file; ModelError when it is damaged or needs another CPU."""
    return Executable.load(Path(path), threads)


def build(
    schedule: Schedule | Literal["auto"],
    args: Sequence[Tensor],
    target: str | Target = "native",
    threads: int | None = None,
    name: str = "main",
    options: Options | None = None,
) -> NativeFunction:
    """Native code for a schedule: a function of arrays for `args` in order, outputs (which it
    fills) included.

    `schedule`: "auto" stands for the one that rules choose by the structure of the expressions.
    Raises ScheduleError and UsageError.
    """
    session = replace(Session.of(options), target=resolve_target(target))
    if isinstance(schedule, str):
        if schedule != "auto":
            raise UsageError(f'schedule is a Schedule or "auto", not {schedule!r}')
        schedule = auto_schedule(args, session.target)
    func = lower_schedule(schedule, args, name)
    with session.timings.stage("build"):
        final = run_loop_passes(func, session)
        kernel = emit(expand_math(final, session.target), session.target)
        code = compile_object(kernel.llvm_text, session.target, session.options.opt_level)
    threads = threads if threads is not None else session.options.threads
    return NativeFunction(kernel, code, func.params, func.outputs, session.target, threads)


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """How one kernel compares with the graph evaluator on the same inputs.

    `error`: largest difference over the largest magnitude of the reference; `bound`: what the
    accuracy policy allows.
    """

    index: int
    loc: str
    operators: tuple[str, ...]
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


def check(
    model: Any,
    inputs: Mapping[str, np.ndarray] | None = None,
    target: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> list[KernelCheck]:
    """Run every kernel of a model by itself, on what the reference computes for its inputs, and
    compare.

    `inputs` by name; random ones of the right types by default.  The reference is `graph.evaluate`.
    """
    session = Session.of(options, target=target)
    fused = optimise(load_graph(model, shapes, session), session)
    kernels = compile_kernels(fused, session)
    given = inputs if inputs is not None else random_inputs(fused)
    known: dict[Value, np.ndarray] = {v: np.asarray(given[v.name]) for v in fused.inputs}
    known |= {c.value: logical_array(c) for c in fused.constants}
    last_use = {v: i for i, n in enumerate(fused.nodes) for v in n.inputs}
    results = []
    for i, node in enumerate(fused.nodes):
        assert isinstance(node.op, Fused)
        arrays = [known[v] for v in node.inputs]
        expected = tuple(evaluate(node.op.body, arrays).values())
        known |= zip(node.outputs, expected, strict=True)
        if node in kernels:
            found = _run_alone(node, kernels[node], arrays, session)
            error = max(map(difference, found, expected))
            bound = max(session.options.bound(str(v.dtype)) for v in node.outputs)
            ops = tuple(n.op.name for n in node.op.body.nodes)
            results.append(KernelCheck(i, node.loc, ops, error, bound))
        for v in node.inputs:
            if last_use[v] == i:
                del known[v]
    return results


def _run_alone(
    node: Node, kernel: KernelCode, arrays: Sequence[np.ndarray], session: Session
) -> list[np.ndarray]:
    """The results of one kernel for logical input arrays, as logical arrays."""
    renamed = {v: replace(v, name=f"in{i}") for i, v in enumerate(dict.fromkeys(node.inputs))}
    single = replace(node, inputs=tuple(renamed[v] for v in node.inputs))
    names = tuple(f"out{i}" for i in range(len(node.outputs)))
    alone = Graph("check", tuple(renamed.values()), (), (single,), node.outputs, names)
    exe = Executable(assemble(alone, {single: kernel}, session), session.options.threads)
    by_value = dict(zip(node.inputs, arrays, strict=True))
    physical = [
        np.asarray(v.layout.pack(by_value[v]) if v.layout else by_value[v], order="C")
        for v in renamed
    ]
    out = exe.run({f"in{i}": a for i, a in enumerate(physical)})
    return [
        v.layout.unpack(a, v.type.static_shape) if v.layout else a
        for v, a in zip(node.outputs, out.values(), strict=True)
    ]


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of the right types: standard normal floats, integers 0 and 1, random bools."""
    rng = np.random.default_rng(seed)
    result = {}
    for v in graph.inputs:
        shape = v.type.static_shape
        if v.dtype.is_float:
            result[v.name] = rng.standard_normal(shape).astype(v.dtype.numpy)
        else:
            result[v.name] = rng.integers(0, 2, shape).astype(v.dtype.numpy)
    return result
