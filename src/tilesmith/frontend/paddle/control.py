"""Paddle's control flow: `if` with two blocks, and `while`, whose block computes the next condition
and the next carried values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.branches import branched
from tilesmith.frontend.common.networks import LayerNode, Part
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.paddle.registry import paddle_op


def condition_of(carried: Sequence[str]) -> Part:
    """The part of a loop that gives the condition, which is the first carried value."""
    return Part(("condition", *[""] * (len(carried) - 1)), ("condition",))


@paddle_op("if")
def choice(n: LayerNode) -> Result:
    if len(n.layer.parts) != 2 or len(n.slots) != 1:
        n.bad(f"expected a condition and two blocks, found {len(n.layer.parts)} blocks")
    return branched(n, n.input(0), (n.layer.parts[0], n.layer.parts[1]))


@paddle_op("while")
def loop(n: LayerNode) -> Result:
    """The condition and the carried values after the loop."""
    if len(n.layer.parts) != 2 or not n.slots:
        n.bad(f"expected a condition and one block, found {len(n.layer.parts) - 1} blocks")
    condition, step = n.layer.parts
    if not len(n.slots) == len(step.inputs) == len(step.outputs):
        n.bad(
            f"expected as many arguments and results of the block as {len(n.slots)} carried "
            f"values, found {len(step.inputs)} and {len(step.outputs)}"
        )
    return repeated(n, condition, step, n.slots)
