"""The simulated accelerator beside the CPU: the accelerator runs the layers that it can, the CPU
all others.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.accel.machine import Machine
from tilesmith.accel.offload import offload
from tilesmith.graph.left import LeftLayer
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.factors import Factors
from tilesmith.ir.dtypes import i8
from tilesmith.ir.target import Target

from .c import never
from .cpu import CPU

MACHINE = Machine()
"""The accelerator; layers are compiled for it."""


def signed_bytes(target: Target) -> FactorChoice:
    """Products of signed bytes, which the matrix unit multiplies."""
    return lambda op, x, w: Factors(i8, i8)


def _offload(graph: Graph) -> tuple[Graph, tuple[LeftLayer, ...]]:
    return offload(graph, MACHINE)


ACCEL = replace(CPU, name="accel", factors=signed_bytes, winograd=never, offload=_offload)
