"""The tuner from top to bottom: from a model and some seconds to records and a faster executable.

compile untuned, profile            how long each kernel takes where it stands
choose algorithms                   whole variants of the model, profiled
tasks of the kernels --search-->    trials, each in the records at once
compile with the records
tuned against untuned, in turns     the better one is kept
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilesmith import driver
from tilesmith.codegen.kernel import KernelJob
from tilesmith.driver import Session
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, InPlace, Node
from tilesmith.graph.passes.repack import with_packing
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.ir.layout import Layout
from tilesmith.ops.conv import Conv
from tilesmith.ops.winograd import SQUARES, WinogradConv
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import TensorSpec
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.cpu import is_concat, schedule
from tilesmith.strategy.cpu.cost import constants_place
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.strategy.knobs import Config, Decisions
from tilesmith.support.errors import UsageError
from tilesmith.support.measure import interleave, ratio
from tilesmith.support.options import Options, records_path
from tilesmith.tuning.jobs import Argument
from tilesmith.tuning.measure import LocalMeasurer, Task
from tilesmith.tuning.records import Key, Records, Trial, trial
from tilesmith.tuning.scheduler import Budget, Progress, tune_tasks
from tilesmith.tuning.search import SEARCHES
from tilesmith.tuning.space import Candidate, Space
from tilesmith.tuning.workload import convolution_workload, group_workload

BUILDER = "tilesmith.worker"
ALGORITHMS_SHARE = 0.25
"""Of the seconds, what choosing algorithms may take."""
WORTH_SHARE = 2e-3
"""Of the model's time: workloads that take less are left alone."""
CHECK_ROUNDS = 7
"""Turns of each executable in the final check."""

Report = Callable[[str, Sequence[Progress]], object]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning led to: `executable` is the better of tuned and untuned; `speedup`: untuned over
    tuned time, measured in turns (1 when the untuned one is kept).
    """

    executable: Executable
    speedup: float
    tasks: tuple[Progress, ...]


@dataclass
class _Chosen:
    """Decisions from the records for a compilation, and which trials they are."""

    records: Records
    target: str
    threads: int
    used: dict[Key, Trial] = field(default_factory=dict)

    def __call__(self, workload: str) -> Decisions:
        key = Key.of(workload, self.target, self.threads)
        found = self.records.best(key)
        if found is None:
            return {}
        self.used[key] = found
        return found.candidate


def tune(
    model: Any,
    seconds: float = 60.0,
    trials: int | None = None,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
    search: str = "coordinate",
    seed: int = 0,
    pins: Decisions | None = None,
    report: Report = lambda _stage, _tasks: None,
) -> Executable:
    """Spend `seconds` (or `trials`) on making a model faster; returns the best executable found.

    What is measured goes to the records, which `compile` uses from then on.  Tuning again goes on
    where it ended.  `search`: one of `SEARCHES`.  `pins`: knobs that are to have these values where
    they exist.  Ctrl-C ends the search, not what it found.  Raises as `compile` does, and
    UsageError.
    """
    return tune_model(
        model, seconds, trials, target, threads, shapes, options, search, seed, pins, report
    ).executable


def tune_model(
    model: Any,
    seconds: float = 60.0,
    trials: int | None = None,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
    search: str = "coordinate",
    seed: int = 0,
    pins: Decisions | None = None,
    report: Report = lambda _stage, _tasks: None,
) -> Tuned:
    """`tune`, and what it did."""
    check_arguments(seconds, trials, search)
    session = Session.of(options, target=target, threads=threads)
    budget = Budget(seconds, float("inf") if trials is None else trials)
    graph = driver.load_graph(model, shapes, session)
    count = thread_count(session.options.threads)
    report("compiling untuned", ())
    plain = _Compiled.of(graph, session)
    compile_seconds = budget.elapsed
    states: list[Progress] = []
    with Records(records_path(session.options)) as records:
        try:
            report("choosing algorithms", ())
            until = budget.elapsed + ALGORITHMS_SHARE * seconds
            _choose_algorithms(graph, session, records, plain, lambda: budget.elapsed < until)
            variant = _Compiled.of(graph, _with_algorithms(graph, session, records))
            for t in _tasks(variant, session, pins or {}):
                states.append(Progress(t, SEARCHES[search](t.space, seed)))
                resume(states[-1], records.trials(t.key))
            left = seconds - budget.elapsed - compile_seconds - 0.2 * CHECK_ROUNDS
            with LocalMeasurer(BUILDER, count, session.jobs) as measurer:
                tune_tasks(
                    states,
                    measurer,
                    records,
                    Budget(max(left, 1.0), budget.trials),
                    2 * session.jobs,
                    lambda s: report("searching", s),
                )
        except KeyboardInterrupt:
            report("interrupted", states)
        report("comparing with untuned", states)
        better, speedup = _better(graph, session, plain.executable, records, count)
    return Tuned(better, speedup, tuple(states))


def check_arguments(seconds: float, trials: int | None, search: str) -> None:
    """Raises UsageError."""
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds!r}")
    if trials is not None and trials < 1:
        raise UsageError(f"trials must be at least 1, not {trials!r}")
    if search not in SEARCHES:
        raise UsageError(f"there is no search {search!r}; there are {', '.join(SEARCHES)}")


# --- kernels of a model, and their times


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """An executable, the graph it was made of, and the seconds that each kernel takes in it."""

    executable: Executable
    fused: Graph
    seconds: Mapping[Node, float]

    @staticmethod
    def of(graph: Graph, session: Session) -> _Compiled:
        fused, decisions = driver.apply_tuning(driver.optimise(graph, session), session)
        kernels = driver.compile_kernels(fused, session, decisions)
        exe = Executable(driver.assemble(fused, kernels, session), session.options.threads)
        profile = exe.profile(*driver.random_inputs(fused).values())
        called = [n for n in fused.nodes if n in kernels]
        return _Compiled(exe, fused, {n: k.seconds for n, k in zip(called, profile, strict=True)})


def _choose_algorithms(
    graph: Graph, session: Session, records: Records, plain: _Compiled, go_on: Callable[[], bool]
) -> None:
    """Find the fastest algorithm of each convolution that has a choice, by the times of its kernels
    in variants of the whole model.
    """
    choices = _convolutions(graph, session)
    threads = thread_count(session.options.threads)
    keys = {loc: Key.of(text, session.target.text, threads) for loc, text in choices.items()}
    if all(records.trials(key) for key in keys.values()):
        return  # decided before, or nothing to decide
    usual = _anchor_seconds(plain)
    best: dict[str, tuple[float, int | None]] = {k: (s, None) for k, s in usual.items()}
    for m in (0, *SQUARES):
        if not go_on():
            break
        forced = dataclasses.replace(
            session, tuned=lambda text, m=m: {"algorithm": m} if text in choices.values() else {}
        )
        found = _anchor_seconds(_Compiled.of(graph, forced))
        for loc, seconds in found.items():
            if loc in best and seconds < best[loc][0]:
                best[loc] = (seconds, m)
    for loc, key in keys.items():
        if loc in best:
            seconds, m = best[loc]
            decisions: Decisions = {} if m is None else {"algorithm": m}
            records.add(trial(key, decisions, "ok", f"conv {loc}", "", seconds, usual[loc]))


def _with_algorithms(graph: Graph, session: Session, records: Records) -> Session:
    """The session with the algorithms on record, and nothing else."""
    choices = set(_convolutions(graph, session).values())
    chosen = _Chosen(records, session.target.text, thread_count(session.options.threads))
    return dataclasses.replace(session, tuned=lambda text: chosen(text) if text in choices else {})


def _convolutions(graph: Graph, session: Session) -> dict[str, str]:
    """The workloads of the convolutions that have a choice, by the name of their source node."""
    asked: set[str] = set()

    def note(workload: str) -> Decisions:
        asked.add(workload)
        return {"algorithm": 0}

    fused = driver.optimise(graph, dataclasses.replace(session, tuned=note))
    found: dict[str, str] = {}
    for n in _anchors(fused).values():
        workload = convolution_workload(n, session.options.accuracy)
        if isinstance(n.op, Conv) and workload in asked:
            found[n.loc] = workload
    return found


def _anchors(fused: Graph) -> dict[Node, Node]:
    """The convolution in each kernel that has one with a name."""
    return {
        kernel: n
        for kernel in fused.nodes
        if isinstance(kernel.op, Fused)
        for n in kernel.op.body.nodes
        if isinstance(n.op, (Conv, WinogradConv)) and n.loc
    }


def _anchor_seconds(c: _Compiled) -> dict[str, float]:
    return {n.loc: c.seconds[k] for k, n in _anchors(c.fused).items() if k in c.seconds}


# --- tasks


def _tasks(c: _Compiled, session: Session, pins: Decisions) -> list[Task]:
    """One task for each distinct workload that has decisions and takes time."""
    found: dict[Key, Task] = {}
    threads = thread_count(session.options.threads)
    program = c.executable.program
    size = program.constants.nbytes + program.arena_bytes
    cold = {"dram": 2 * session.target.l3_bytes, "l3": 2 * session.target.l2_bytes}.get(
        constants_place(size, session.target), 0
    )
    for node in c.fused.nodes:
        if node not in c.seconds or not isinstance(node.op, Fused) or isinstance(node.op, InPlace):
            continue
        body = driver.canonical(node.op.body)
        primitive = all(n.op.is_primitive() for n in body.nodes)
        if is_concat(body) or not primitive or constants_of(body):
            continue
        constants = [i for i, v in enumerate(node.inputs) if v in c.fused.constant]
        key = Key.of(group_workload(body, constants), session.target.text, threads)
        if key in found:
            more = found[key].seconds + c.seconds[node]
            found[key] = dataclasses.replace(found[key], seconds=more)
            continue
        found[key] = _task(body, key, constants, cold, session, pins, c.seconds[node])
    worth = WORTH_SHARE * sum(c.seconds.values())
    return [t for t in found.values() if t.seconds >= worth and t.space.free(t.space.start)]


def _task(
    body: Graph,
    key: Key,
    constants: Sequence[int],
    cold: int,
    session: Session,
    pins: Decisions,
    seconds: float,
) -> Task:
    def packed(cfg: Config) -> Graph:
        return with_packing(body, packed_layouts(body, constants, session.target, cfg))

    def ask(cfg: Config) -> object:
        return schedule(packed(cfg), session.target, cfg)

    def build(candidate: Candidate) -> bytes:
        text = print_graph(packed(Config(candidate)))
        options, target = session.options, session.target
        return KernelJob(text, f"k_{key.workload}", options, target, candidate).to_bytes()

    def arguments(candidate: Candidate) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
        chosen = packed(Config(candidate))
        inputs = (
            Argument(v.dtype.name, v.type.static_shape, _text(v.layout), cold * (i in constants))
            for i, v in enumerate(chosen.inputs)
        )
        outputs = (
            Argument(v.dtype.name, v.type.static_shape, _text(v.layout)) for v in chosen.outputs
        )
        return tuple(inputs), tuple(outputs)

    def reference() -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        given = list(driver.random_inputs(body).values())
        return given, list(evaluate(body, given).values())

    knobs: dict[str, Any] = {}
    ask(Config(seen=knobs))
    space = Space(ask, {k: v for k, v in pins.items() if k in knobs})
    bound = max(session.options.bound(str(v.dtype)) for v in body.outputs)
    label = " ".join(dict.fromkeys(n.op.name for n in body.nodes))
    label = f"{label[:34]} {body.outputs[0].type}"
    return Task(key, label, space, build, arguments, reference, bound, seconds)


def _text(layout: Layout | None) -> str | None:
    return None if layout is None else str(layout)


def resume(state: Progress, trials: Iterable[Trial]) -> None:
    """Take up what an earlier run measured."""
    for t in trials:
        if t.status != "lost" and state.task.space.legal(t.candidate) == t.candidate:
            state.note(t)


def _better(
    graph: Graph, session: Session, plain: Executable, records: Records, threads: int
) -> tuple[Executable, float]:
    """The executable with the decisions on record, or `plain` where that is no slower; in that case
    the decisions are marked as worse.
    """
    chosen = _Chosen(records, session.target.text, threads)
    tuned = Executable(
        driver.compile_program(graph, dataclasses.replace(session, tuned=chosen)),
        session.options.threads,
    )
    if not chosen.used:
        return plain, 1.0
    rng = np.random.default_rng(0)
    inputs = [random_array(rng, s) for s in plain.inputs]
    samples = interleave(
        {"untuned": lambda: plain(*inputs), "tuned": lambda: tuned(*inputs)}, rounds=CHECK_ROUNDS
    )
    speedup = ratio(samples["untuned"], samples["tuned"])
    if speedup > 1:
        return tuned, speedup
    worse = "the model as a whole was slower with it"
    records.add(
        *(dataclasses.replace(t, status="worse", cause=worse) for t in chosen.used.values())
    )
    return plain, 1.0


def random_array(rng: np.random.Generator, spec: Argument | TensorSpec) -> np.ndarray:
    """Logical contents for an argument: standard normal floats, integers 0 and 1."""
    dtype = spec.type if isinstance(spec, Argument) else spec.dtype
    if dtype.is_float:
        return rng.standard_normal(spec.shape).astype(dtype.numpy)
    return rng.integers(0, 2, spec.shape).astype(dtype.numpy)
