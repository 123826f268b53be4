"""The layers of a compiled program that run on the accelerator, with their cycles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tilesmith.runtime.program import Program

from .clock import Counts, cycles_of
from .hosted import NAME, layer_of
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
