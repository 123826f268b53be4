"""Programs for a device and the CPU: parts of a graph, and copies between their two memories.

A value lives on the host or on the device.  Inputs and outputs of the program, and results of
`Download` and of parts on the CPU, live on the host.  Results of `Upload` and of parts on the
device live on the device.  A part reads and computes only values of its own side.

    graph main(%x: f32[4]) {
      %0: f32[4] = upload(%x)
      %1: f32[4] = part(%0) {body=graph part0(%x: f32[4]) { ... }, on_device=True}
      %2: f32[4] = download(%1)
      %3: f32[4] = part(%2) {body=graph part1(%a: f32[4]) { ... }, on_device=False}
      return %3 as "y"
    }
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesmith.graph.nodes import Fused, Graph, Value
from tilesmith.ir.grammar import Label
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.support.errors import VerifyError


@dataclass(frozen=True)
class Part(Fused):
    """A part of a program that runs on the host or on the device.

    body: the nodes of the part.
    on_device: whether it runs on the device.
    """

    on_device: Label[bool]


@dataclass(frozen=True)
class _Transfer(Op, abstract=True):
    """A copy of a tensor in the other memory."""

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return types

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0]


@dataclass(frozen=True)
class Upload(_Transfer):
    """A copy of a host tensor on the device."""


@dataclass(frozen=True)
class Download(_Transfer):
    """A copy of a device tensor on the host."""


def verify_places(graph: Graph) -> None:
    """Raises VerifyError if a node reads a value that lives in the other memory (host or
    device).
    """
    there: set[Value] = set()  # values on the device
    for node in graph.nodes:
        op = node.op
        assert isinstance(op, (Part, Upload, Download))
        reads = isinstance(op, Download) or (isinstance(op, Part) and op.on_device)
        writes = isinstance(op, Upload) or (isinstance(op, Part) and op.on_device)
        for v in node.inputs:
            if (v in there) != reads:
                places = ("the host", "the device")
                raise VerifyError(
                    f"graph {graph.name!r}: {op.name} reads %{v.name}: expected a value on "
                    f"{places[reads]}, found one on {places[not reads]}"
                )
        there.update(node.outputs if writes else ())
    for v, name in zip(graph.outputs, graph.output_names, strict=True):
        if v in there:
            raise VerifyError(f"graph {graph.name!r}: output {name!r} is left on the device")
