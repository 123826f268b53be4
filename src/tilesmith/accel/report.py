"""The layers of a model on the accelerator, with their cycles: those of a compiled program, and how
virtual threads hide latency in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tilesmith.runtime.program import Program

from .clock import Counts, count_cycles, cycles_of
from .convolution import Convolution, choose, compiled
from .hosted import NAME, layer_of
from .machine import Machine
from .prepared import prepared
from .text import parse


class LayerCounts(NamedTuple):
    """A layer on the accelerator.

    name: its node in the source model, or "".
    operator: the name of its operator.
    counts: cycles of one image.
    """

    name: str
    operator: str
    counts: Counts


def layers_in(program: Program) -> Iterator[LayerCounts]:
    """The layers of a program on the accelerator, in order."""
    for call in program.host_calls:
        if call.function == NAME:
            yield LayerCounts(call.label, call.operator, _counts(call.settings))


@lru_cache(maxsize=64)
def _counts(settings: str) -> Counts:
    """The counts of a layer with these settings; kept, since networks repeat layers."""
    told = json.loads(settings)
    _, machine = layer_of(*(told[name] for name in ("convolution", "operand", "machine")))
    return cycles_of(prepared(parse(told["program"]), machine))


@dataclass(frozen=True, slots=True)
class HiddenLatency:
    """A layer without and with virtual threads.

    conv: its shapes.
    count: how many layers of the model have them.
    threads: the virtual threads of its tiles: two, of which one loads while the other one computes;
        one if no tiles for two fit.
    alone: counts with one virtual thread.
    together: counts with `threads`.
    """

    conv: Convolution
    count: int
    threads: int
    alone: Counts
    together: Counts


def hidden_latency(layers: Mapping[Convolution, int], machine: Machine) -> list[HiddenLatency]:
    """The counts of layers without and with virtual threads.

    layers: shapes, and how many there are of each.

    Raises ScheduleError if a layer has no tiles that fit the machine.
    """
    return [
        HiddenLatency(
            conv,
            count,
            choose(conv, machine, 2).threads,
            *(
                count_cycles(compiled(conv, machine, threads=threads).program, machine)
                for threads in (1, 2)
            ),
        )
        for conv, count in layers.items()
    ]


def described(conv: Convolution) -> str:
    """The shapes of a layer in a line: `56 x 56, 64 to 128, 3 x 3 / 2`."""
    height, width = conv.kernel
    groups = f", {conv.groups} groups" if conv.groups > 1 else ""
    return (
        f"{conv.height} x {conv.width}, {conv.inputs} to {conv.outputs}, "
        f"{height} x {width} / {conv.stride}{groups}"
    )
