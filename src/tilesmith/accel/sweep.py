"""The design space of the accelerator: what machines of other parameters cost, and how long the
layers of a model take on them.

The layers are those that a compiled model gives to the accelerator (`layers_of`).  On each machine
they get the tiles of the rule; their cycles are counted by the simulator, or predicted by the
formula of the rule.  Counts are kept in a cache by layer and machine, so that an interrupted sweep
goes on where it was.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from tilesmith.graph.control import Host, graphs_in
from tilesmith.graph.nodes import Graph
from tilesmith.support.cache import Cache, cache_key
from tilesmith.support.child import Children
from tilesmith.support.errors import ModelError, ScheduleError, UsageError

from .clock import count_cycles
from .convolution import Convolution, choose, compiled, predict
from .hosted import NAME, layer_json, layer_of
from .instructions import INSTRUCTIONS, MicroOp, layout
from .machine import Machine, Memory

Layers: TypeAlias = Mapping[Convolution, int]
"""Layers of a model, and how many there are of each."""

THREADS = 2
"""Virtual threads of each layer, as in compiled models."""


@dataclass(frozen=True, slots=True)
class Point:
    """A machine with the time that it takes.

    machine: its parameters.
    cycles: sum over all layers; None if a layer has no tiles that fit the machine.
    """

    machine: Machine
    cycles: int | None

    @property
    def multipliers(self) -> int:
        """Multipliers of the matrix unit, each busy in each of its cycles."""
        return -(-self.machine.products // self.machine.gemm_cycles)

    @property
    def memory_bits(self) -> int:
        """Bits of all buffers on the chip."""
        machine = self.machine
        return 8 * sum(machine.depth(m) * machine.tile_bytes(m) for m in Memory)

    @property
    def costs(self) -> tuple[int, ...]:
        """What a design keeps small: cycles, multipliers, bits of memory, width of the channels."""
        assert self.cycles is not None
        return self.cycles, self.multipliers, self.memory_bits, self.machine.dma_bytes


def layers_of(graph: Graph) -> Layers:
    """The layers that a graph gives to the accelerator.

    Raises ModelError if there are none.
    """
    found: Counter[Convolution] = Counter()
    for node in (n for g in graphs_in(graph) for n in g.nodes):
        if isinstance(node.op, Host) and node.op.function == NAME:
            conv, _ = layer_of(**_shapes(json.loads(node.op.settings)))
            found[conv] += 1
    if not found:
        raise ModelError(
            "expected layers for the accelerator, found none; it takes convolutions and dense "
            "layers quantised to signed bytes (`tilesmith quantize` makes them)"
        )
    return found


def _shapes(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in ("convolution", "operand", "machine")}


def machines(values: Mapping[str, Sequence[int]]) -> list[Machine]:
    """The machines with each combination of some parameters' values, the default one otherwise.

    Raises UsageError for an unknown parameter, for values that no machine can have, and for buffers
    whose addresses an instruction has no room for.
    """
    known = [f.name for f in fields(Machine) if f.name not in ("operand", "batch")]
    for name in values:
        if name not in known:
            raise UsageError(f"parameter {name!r}: expected one of {', '.join(known)}")
    combinations = itertools.product(*values.values())
    found = [replace(Machine(), **dict(zip(values, row, strict=True))) for row in combinations]
    for machine, kind in itertools.product(found, (*INSTRUCTIONS, MicroOp)):
        layout(kind, machine)
    return found


def cycles(conv: Convolution, machine: Machine, *, counted: bool) -> int | None:
    """The cycles of a layer, counted or predicted; None if no tiles fit the machine."""
    try:
        if counted:
            program = compiled(conv, machine, threads=THREADS).program
            return count_cycles(program, machine).cycles
        return predict(conv, choose(conv, machine, THREADS), machine).total
    except ScheduleError:
        return None


def answer(request: bytes) -> bytes:
    """The counted cycles for a request of `sweep`, in a process of its own."""
    return json.dumps(cycles(*layer_of(**json.loads(request)), counted=True)).encode()


def predicted(layers: Layers, chips: Sequence[Machine]) -> list[Point]:
    """Each machine with the cycles that the rule predicts for it."""
    return [
        _point(chip, layers, {conv: cycles(conv, chip, counted=False) for conv in layers})
        for chip in chips
    ]


def sweep(
    layers: Layers,
    chips: Sequence[Machine],
    cache: Cache,
    jobs: int,
    told: Callable[[int, int], None],
) -> list[Point]:
    """Each machine with the cycles that the simulator counts on it.

    cache: where counts are kept; those of an earlier sweep are taken from there.
    jobs: number of processes.
    told: gets the number of layers that are counted, and of all.

    Raises ChildError if a process ends without an answer.
    """
    wanted = [(conv, chip) for chip in chips for conv in layers]

    def counted(conv: Convolution, chip: Machine) -> int | None:
        request = json.dumps(layer_json(conv, chip)).encode()
        key = cache_key("cycles on the accelerator", request)
        found = cache.get(key)
        if found is None:
            found = workers.call(request)
            cache.put(key, found)
        return json.loads(found)

    with (
        Children("tilesmith.accel.sweep_worker", jobs) as workers,
        ThreadPoolExecutor(jobs) as pool,
    ):
        asked = {pool.submit(counted, *pair): pair for pair in wanted}
        try:
            for done, future in enumerate(as_completed(asked), 1):
                future.result()
                told(done, len(wanted))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.kill()
            raise
    found = {pair: future.result() for future, pair in asked.items()}
    return [_point(chip, layers, {conv: found[conv, chip] for conv in layers}) for chip in chips]


def _point(machine: Machine, layers: Layers, found: Mapping[Convolution, int | None]) -> Point:
    total = 0
    for conv, count in layers.items():
        n = found[conv]
        if n is None:
            return Point(machine, None)
        total += count * n
    return Point(machine, total)


def pareto(points: Sequence[Point]) -> list[Point]:
    """The points that no other one beats: none is as good in all costs and better in one."""
    known = [p for p in points if p.cycles is not None]
    return [p for p in known if not any(_beats(q.costs, p.costs) for q in known)]


def _beats(a: Sequence[int], b: Sequence[int]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))
