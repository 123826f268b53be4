"""Core ML's suppression of boxes."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op


@mil_op("non_maximum_suppression")
def non_maximum_suppression(n: MilNode) -> Result:
    return n.unsupported("boxes whose number only a run knows")
