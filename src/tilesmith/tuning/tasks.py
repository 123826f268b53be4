"""The kernels of a model: their times in it, and tasks for the search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesmith import driver
from tilesmith.codegen.kernel import KernelJob
from tilesmith.driver import Session
from tilesmith.driver.kernels import belongs_here
from tilesmith.driver.places import placed
from tilesmith.driver.saved.program import kernel_cache
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.text import print_graph
from tilesmith.host_functions.values import sample
from tilesmith.ir.layout import Layout
from tilesmith.loop.text import print_func
from tilesmith.perf.cost import constants_place
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.profile import KernelTime
from tilesmith.runtime.program import TensorSpec
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.family import group_family
from tilesmith.search_space.groups import GroupSpace
from tilesmith.search_space.records import Key, Records
from tilesmith.search_space.space import Candidate, Space
from tilesmith.te.knobs import Config, Decisions
from tilesmith.tuning.jobs import Argument
from tilesmith.tuning.measure import Arrays, Task
from tilesmith.tuning.scheduler import Progress

BUILDER = "tilesmith.driver.worker"
SLACK = (0.1, 0.5)
"""Bounds on the fraction of a kernel's time that tuning may be expected to save."""
PROFILES = 4
"""Runs in which every kernel is timed."""
RELATIVES = 4
"""Upper bound on the similar workloads (of a task's family) whose decisions are tried first.  It
also holds for the candidates from other versions that are tried first.
"""
WORTH_SHARE = 2e-3
"""Fraction of the model's time below which workloads are not tuned."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """An executable and its origin.

    executable: the executable.
    fused: its fused graph.
    called: the node of each of its calls.
    """

    executable: Executable
    fused: Graph
    called: tuple[Node, ...]

    @staticmethod
    def of(graph: Graph, session: Session) -> Compiled:
        return Compiled.of_groups(*Compiled.groups(graph, session), session)

    @staticmethod
    def groups(graph: Graph, session: Session) -> tuple[Graph, Mapping[Node, Decisions]]:
        """The fused groups of a model, and the decisions about their kernels."""
        return driver.apply_tuning(driver.optimise(graph, session), session)

    @staticmethod
    def of_groups(fused: Graph, decisions: Mapping[Node, Decisions], session: Session) -> Compiled:
        kernels = driver.compile_kernels(fused, session, decisions)
        exe = placed(driver.assemble(fused, kernels, session), session.options)
        return Compiled(exe, fused, tuple(n for _, n in kernels_in(fused)))

    def times(self) -> dict[Node, KernelTime]:
        """The time of each kernel of the executable, by its node."""
        measured = self.executable.profile(*random_inputs(self.executable), repeats=PROFILES)
        return dict(zip(self.called, measured, strict=True))


def tasks_of(c: Compiled, session: Session) -> list[Task]:
    """One task for each distinct workload that has decisions and takes time."""
    tasks: dict[Key, Task] = {}
    spaces = session.constraints.spaces if session.constraints is not None else {}
    times = c.times()
    threads = thread_count(session.options.threads)
    program = c.executable.program
    size = program.constants.nbytes + program.arena_bytes
    cold = {"dram": 2 * session.target.model.l3_bytes, "l3": 2 * session.target.model.l2_bytes}.get(
        constants_place(size, session.target), 0
    )
    for graph, node in kernels_in(c.fused):
        found_group = driver.group_space(node, graph, session)
        if found_group is None:
            continue
        workload, group = found_group
        key = Key.of(workload, session.target.text, threads)
        if key in tasks:
            more = tasks[key].seconds + times[node].seconds
            tasks[key] = dataclasses.replace(tasks[key], seconds=more)
            continue
        space = spaces.get(workload) or group.space()
        tasks[key] = _task(group, space, key, cold, session, times[node])
    worth = WORTH_SHARE * sum(t.seconds for t in times.values())
    return [t for t in tasks.values() if t.seconds >= worth and _has_choice(t.space)]


def _has_choice(space: Space) -> bool:
    """Whether there is anything to measure."""
    return space.start != space.baseline or bool(space.free(space.start))


def _task(
    group: GroupSpace, space: Space, key: Key, cold: int, session: Session, now: KernelTime
) -> Task:
    body, constants = group.body, group.constants
    cache = kernel_cache(session.options)
    cache_dir = cache.directory if cache is not None else None

    def build(candidate: Candidate) -> bytes:
        options, target = session.options, session.target
        # Builders in other processes can't make the loops of such a candidate.  They get the loops
        # as text.
        if belongs_here(body, candidate):
            cfg = Config(candidate)
            func = group.lower(f"k_{key.workload}", cfg)
            return KernelJob(print_func(func), options, target, nest=True).to_bytes()
        text = print_graph(group.packed(Config(candidate)))
        return KernelJob(text, options, target, candidate, cache_dir=cache_dir).to_bytes()

    def arguments(candidate: Candidate) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
        chosen = group.packed(Config(candidate))
        inputs = (
            Argument(v.dtype.name, v.type.static_shape, _text(v.layout), cold * (i in constants))
            for i, v in enumerate(chosen.inputs)
        )
        outputs = (
            Argument(v.dtype.name, v.type.static_shape, _text(v.layout)) for v in chosen.outputs
        )
        return tuple(inputs), tuple(outputs)

    def reference() -> tuple[Arrays, Sequence[Arrays]]:
        inputs = list(driver.random_inputs(body).values())
        return inputs, driver.references(body, inputs, session.options)

    bounds = tuple(session.options.bound(str(v.dtype)) for v in body.outputs)
    label = " ".join(dict.fromkeys(n.op.name for n in body.nodes))
    label = f"{label[:34]} {body.outputs[0].type}"
    family = group_family(body, constants)
    return Task(
        key, label, space, build, arguments, reference, bounds, now.seconds,
        family, slack(now.ratio),
    )  # fmt: skip


def slack(ratio: float | None) -> float:
    """Fraction of a kernel's time that tuning may be expected to save.

    It is the part of the time beyond the prediction, within the bounds `SLACK`.  It is never 0,
    since the prediction is for one schedule.

    ratio: predicted over measured time; None without a prediction.
    """
    least, most = SLACK
    return (least + most) / 2 if ratio is None else min(max(1 - ratio, least), most)


def _text(layout: Layout | None) -> str | None:
    return None if layout is None else str(layout)


def resume(state: Progress, records: Records) -> None:
    """Continue from the measurements of earlier runs.

    Two kinds of candidates are measured first: those that were faster with other versions of the
    schedules, and decisions of similar workloads (of the task's family).
    """
    task = state.task
    if task.space.start == task.space.baseline:
        state.search.observe(task.space.start, 1.0)
    for t in records.trials(task.key):
        if t.status != "lost" and task.space.legal(t.candidate) == t.candidate:
            state.note(t)
    promising = records.earlier(task.key)[:RELATIVES]
    if task.family is not None:
        records.describe({task.key: task.family})
        promising += records.look_up(task.key, task.family, relatives=RELATIVES).relatives
    refitted = [task.space.refitted(t.candidate) for t in promising]
    state.search.suggest([c for c in refitted if c is not None])


def random_inputs(exe: Executable) -> list[np.ndarray]:
    """Logical contents for the inputs of an executable."""
    rng = np.random.default_rng(0)
    limits = exe.program.index_limits
    return [random_array(rng, s, limits.get(s.name)) for s in exe.program.expected_inputs]


def random_array(
    rng: np.random.Generator, spec: Argument | TensorSpec, limit: int | None = None
) -> np.ndarray:
    """Contents for an argument: standard normal floats, integers 0 and 1, or indices."""
    dtype = spec.type if isinstance(spec, Argument) else spec.dtype
    shape = spec.shape if isinstance(spec, Argument) else spec.static_shape
    if dtype.is_host:
        return sample(dtype, shape, rng)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, limit or 2, shape).astype(dtype.numpy)
