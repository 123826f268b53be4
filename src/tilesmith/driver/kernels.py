"""Code for fused groups.  Each distinct group is compiled once, and its code is kept on disk.

The cache has two levels.  The first key is a group's text without names, the target, the number of
threads and the decisions of its schedule.  It leads to a symbol, which is a hash of the loops.  The
symbol is the key of the code.  So schedules for different numbers of threads share code if their
loops are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from tilesmith.codegen.kernel import KernelCode, KernelJob, with_head, without_head
from tilesmith.graph.bind import expected_graph
from tilesmith.graph.control import kernels_in
from tilesmith.graph.custom import has_custom, meanings
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.fuse import node_structure
from tilesmith.graph.passes.localise import localise
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.ir.expr import Var, index_of
from tilesmith.ir.symbols import symbols_of
from tilesmith.ir.target import Target
from tilesmith.loop.in_place import may_lie_over
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.search_space.groups import user_template
from tilesmith.strategy.describe import describe
from tilesmith.support.cache import Cache, cache_key
from tilesmith.support.child import ChildError, Children
from tilesmith.support.errors import (
    DeviceError,
    ExpressionError,
    ModelError,
    OpenDimensionError,
    ScheduleError,
    TilesmithError,
    UsageError,
)
from tilesmith.support.logs import TOPICS, collected, log_progress, logger, repeat
from tilesmith.support.options import Options
from tilesmith.te.knobs import Config, Decisions

from .passes import lower_loops
from .saved.program import kernel_cache
from .session import Session
from .workers import kernel_workers, worker_limit

_caching, _compiling, _records, _schedules = map(
    logger, ("cache", "compile", "records", "schedule")
)
T = TypeVar("T")


EMPTY = Graph("", (), (), (), (), ())
"""The body of a kernel that is given as a loop nest, without a graph."""


def canonical(body: Graph) -> Graph:
    """`body` without names and with its own symbols, so that equal groups have equal text."""
    body, _ = localise(body)
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
        body.in_place,
    )


def tuned_body(body: Graph) -> Graph | None:
    """The canonical `body` at its expected sizes, which is the key of tuning records.  None for an
    open group that can't have these sizes.
    """
    sized = expected_graph(replace(canonical(body), in_place=()))
    if body.symbols:
        try:
            for node in sized.nodes:
                node_structure(node)
        except ModelError:
            return None
    return sized


def kernel_key(text: str, options: Options, target: Target, decisions: Decisions) -> str:
    """Key of a kernel in the cache: its fused body's text and the decisions of its schedule."""
    chosen = [json.dumps(decisions)] if decisions else []
    return cache_key(text, options.key(), target.text, f"threads={target.threads}", *chosen)


def _cached(cache: Cache | None, key: str) -> KernelCode | None:
    """The code of a kernel, if the cache has it."""
    symbol = cache.get(key) if cache is not None else None
    return _code_of(cache, symbol.decode()) if symbol is not None else None


def _code_of(cache: Cache | None, symbol: str) -> KernelCode | None:
    blob = cache.get(_code_key(symbol)) if cache is not None else None
    return KernelCode.from_bytes(blob) if blob is not None else None


def _code_key(symbol: str) -> str:
    return cache_key("code", symbol)


_made = 0
_counting = Lock()


def kernels_made() -> int:
    """Number of kernels that this process has generated."""
    return _made


def _count_one() -> None:
    global _made
    with _counting:
        _made += 1


def generate(body: Graph, nest: Func, session: Session, under: tuple[str, ...] = ()) -> KernelCode:
    """Object code for a loop nest, the kernel of the fused `body`."""
    _count_one()
    shared = _shared(body, nest)
    backend = session.backend
    final = lower_loops(nest, session, under)
    with session.timings.stage("describe", under=under):
        info = describe(body, nest, final, session.target)
    with session.timings.stage("emit", under=under):
        strict = session.options.is_strict
        kernel = backend.emit(final, session.target, shared=shared, strict=strict)
    session.dumper("code", kernel, lambda k: k.text, unit=nest.name)
    _compiling.debug("compiling %s", nest.name)
    with session.timings.stage("compile", under=under):
        code = backend.tools.code(kernel, session.target, session.options.opt_level)
    return KernelCode(
        kernel.symbol,
        code,
        kernel.workspace_bytes_shared,
        kernel.workspace_bytes_per_thread,
        kernel.messages,
        info,
        body.symbols,
        tuple(index_of(body.symbols, p) for p in nest.params if isinstance(p, Var)),
    )


def _shared(body: Graph, nest: Func) -> set[int]:
    """The numbers of the kernel's parameters that share memory with one another.

    Raises ScheduleError if the loops don't allow that.
    """
    numbers = set()
    for out, operand in body.in_place:
        if not may_lie_over(nest, out, operand):
            raise ScheduleError(f"result {out} can't lie over operand {operand} in these loops")
        numbers |= {operand, len(body.inputs) + out}
    return numbers


def start_early(workers: Children, graph: Graph, session: Session) -> None:
    """Start processes for the kernels of `graph`, before the number of kernels is known.  The new
    processes import the compiler while this process runs the graph passes.
    """
    _start(workers, len(graph.nodes) // NODES_PER_KERNEL, session)


def _start(workers: Children, kernels: int, session: Session) -> int:
    """Start processes for this number of `kernels`.  Returns how many processes to use."""
    count = min(worker_limit(session.options), kernels // WORTH_A_WORKER)
    workers.grow(count)
    return count


def compile_kernels(
    fused: Graph,
    session: Session,
    decisions: Mapping[Node, Decisions] | None = None,
    workers: Children | None = None,
) -> dict[Node, KernelCode]:
    """Code for each fused node.  Equal groups share one kernel; distinct groups are compiled in
    parallel, in this process and in `workers` (default: no workers at first).  More workers are
    started if that pays.
    """
    options = session.options
    cache = kernel_cache(options)
    target = session.target
    codes: dict[str, KernelCode] = {}
    missing: dict[str, _Missing] = {}
    of_node: dict[Node, str] = {}
    with session.timings.stage("kernels"):
        for _, node in kernels_in(fused):
            assert isinstance(node.op, Fused)
            body = canonical(node.op.body)
            text = print_graph(body)
            chosen = (decisions or {}).get(node, {})
            key = of_node[node] = kernel_key(
                _cached_text(body, text, session, chosen), options, target, chosen
            )
            if key in codes or key in missing:
                continue
            # Code that is to be dumped is compiled again.
            code = None if session.dumper.enabled else _cached(cache, key)
            if code is not None:
                codes[key] = code
            else:
                missing[key] = _Missing(body, text, node.loc, chosen)
        _caching.info("kernels: %d in the cache, %d to compile", len(codes), len(missing))
        with kernel_workers() if workers is None else nullcontext(workers) as helping:
            codes.update(_compile_all(missing, session, helping, cache))
    return {node: codes[key] for node, key in of_node.items()}


def _cached_text(body: Graph, text: str, session: Session, decisions: Decisions) -> str:
    """The text that identifies a kernel.

    Decisions do not determine what users' code does.  So the text includes the meaning of users'
    operators.  If a user's template schedules the kernel, the text is the kernel's loops.
    """
    if user_template(decisions) is None:
        return text + meanings(body.nodes)
    return print_func(session.group(body).lower("k", Config(decisions)))


@dataclass(frozen=True, slots=True)
class _Missing:
    """A kernel to compile: the body, its text, its name and the decisions of its schedule."""

    body: Graph
    text: str
    loc: str
    decisions: Decisions


WORTH_A_WORKER = 8
"""Number of kernels for which one more process pays.  Its start takes a third of a second."""
NODES_PER_KERNEL = 6
"""A model is expected to need at least one distinct kernel for this many nodes.  Nodes are counted
before the graph passes.
"""


def _compile_all(
    missing: Mapping[str, _Missing], session: Session, workers: Children, cache: Cache | None
) -> Iterator[tuple[str, KernelCode]]:
    """Code for each missing kernel by key, compiled in this process and in other processes.

    LLVM and Python each have a global lock, so threads alone can't keep two cores busy.
    """
    count = _start(workers, len(missing), session)
    path = session.timings.path
    with ThreadPoolExecutor(count + 1 if count else session.jobs) as pool:

        def code_of(item: tuple[str, _Missing]) -> tuple[str, KernelCode]:
            key, m = item
            reply = None
            if count and not constants_of(m.body) and not belongs_here(m.body, m.decisions):
                folder = cache.directory if cache is not None else None
                job = KernelJob(
                    m.text, session.options, session.target, m.decisions, cache_dir=folder
                )
                try:
                    reply = workers.call_if_idle(job.to_bytes())
                except ChildError as e:  # compiling here gives the kernel's error again
                    _compiling.info("a kernel is compiled in this process; in a worker: %s", e)
            if reply is None:
                return key, if_possible(
                    m.decisions,
                    session,
                    lambda d: _compile_anyhow(replace(m, decisions=d), key, session, path, cache),
                )
            (times, messages), code = without_head(reply)
            repeat(messages)
            for name, seconds in times:
                session.timings.add(name, seconds, path)
            return key, KernelCode.from_bytes(code)

        for done, compiled in enumerate(pool.map(code_of, missing.items()), 1):
            log_progress("compile", "kernels", done, len(missing))
            yield compiled


def belongs_here(body: Graph, decisions: Decisions) -> bool:
    """True if only this process can make a kernel's loops, because users registered its template or
    an operator in it.
    """
    return user_template(decisions) is not None or has_custom(body)


def if_possible(decisions: Decisions, session: Session, make: Callable[[Decisions], T]) -> T:
    """The result of `make` for decisions about a kernel.  If a record's decisions are illegal,
    `make` is called without decisions.

    Raises ScheduleError if the user requested the decisions, or if there are none.
    """
    try:
        return make(decisions)
    except ScheduleError as e:
        wanted = session.constraints.names if session.constraints else set()
        if not decisions or wanted & decisions.keys():
            raise
        _records.warning("a tuning record is not used: %s", e)
        return make({})


def answer(request: bytes) -> bytes:
    """The answer of a worker process to a `KernelJob`.  It contains the times of stages, the log
    messages, and the `KernelCode`.
    """
    job = KernelJob.from_bytes(request)
    session = Session(job.options, job.target)
    with collected(TOPICS) as messages:
        code = _answered(job, session)
    times = [(r.name, r.seconds) for r in session.timings.rows()]
    return with_head([times, messages], code.to_bytes())


def _answered(job: KernelJob, session: Session) -> KernelCode:
    if job.nest:
        return generate(EMPTY, parse_func(job.text), session)
    cache = Cache(job.cache_dir, job.options.cache_bytes) if job.cache_dir is not None else None
    key = kernel_key(job.text, job.options, job.target, job.decisions)
    code = _cached(cache, key)
    if code is None:
        missing = _Missing(parse_graph(job.text), job.text, "", job.decisions)
        code = _compile_kernel(missing, key, session, (), cache)
    return code


def _compile_anyhow(
    m: _Missing, key: str, session: Session, path: tuple[str, ...], cache: Cache | None
) -> KernelCode:
    """Like `_compile_kernel`, but with the simplest schedule if the rule's schedule can't be
    compiled.
    """
    plain = session.backend.rules.lower_plain
    try:
        return _compile_kernel(m, key, session, path, cache)
    except TilesmithError as e:
        irregular = any(n.op.is_irregular() for n in m.body.nodes)
        if m.decisions or irregular or isinstance(e, (UsageError, DeviceError)):
            raise
        _schedules.warning(
            "%s gets a plain schedule, since there is no code for its own: %s",
            m.loc or "a kernel", e,
        )  # fmt: skip
        return _compile_kernel(m, key, session, path, None, plain)


def _compile_kernel(
    m: _Missing,
    key: str,
    session: Session,
    path: tuple[str, ...],
    cache: Cache | None,
    lower: Callable[[Graph, Target, str], Func] | None = None,
) -> KernelCode:
    """The code of a kernel, which `cache` keeps under `key`.  If another schedule led to equal
    loops, the code of that schedule is used.

    lower: makes the kernel's loops (default: by its decisions and the rules).
    """
    try:
        with session.timings.stage("lower", under=path):
            if lower is None:
                func = session.group(m.body).lower("k", Config(m.decisions))
            else:
                func = lower(m.body, session.target, "k")
            parts = (print_func(func), m.text, session.options.key(), session.target.text)
            symbol = f"k_{cache_key(*parts)[:16]}"
        session.dumper.name(symbol, m.loc)
        code = None if session.dumper.enabled else _code_of(cache, symbol)
        if code is None:
            code = generate(m.body, replace(func, name=symbol), session, path)
            if cache is not None:
                cache.put(_code_key(symbol), code.to_bytes())
        if cache is not None:
            cache.put(key, symbol.encode())
        return code
    except TilesmithError as e:
        e.add_note(f"while compiling {m.loc or 'a kernel'}:\n{print_graph(m.body)}")
        dims = (d for v in m.body.inputs for d in v.type.shape)
        if isinstance(e, ExpressionError) and symbols_of(dims):
            raise OpenDimensionError(
                f"{m.loc or 'a kernel'} can't be compiled for all sizes; give shapes, or a smaller "
                f"range with dynamic=: {e}"
            ) from e
        raise
