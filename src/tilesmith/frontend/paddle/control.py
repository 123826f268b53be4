"""Paddle's control flow.

Paddle 3 has `if` with two blocks, and `while`, whose block computes the next condition and the next
carried values.  Older programs have `conditional_block`, whose results `select_input` chooses from.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.branches import branched, results_of
from tilesmith.frontend.common.networks import LayerNode, Part
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.paddle.registry import paddle_op, tensors
from tilesmith.ir.dtypes import bool_
from tilesmith.ops import functions as fn


def condition_of(carried: Sequence[str]) -> Part:
    """The part of a loop that gives the condition, which is the first carried value."""
    return Part(("condition", *[""] * (len(carried) - 1)), ("condition",))


@paddle_op("if")
def choice(n: LayerNode) -> Result:
    if len(n.layer.parts) != 2:
        n.bad(f"expected two blocks, found {len(n.layer.parts)}")
    return branched(n, n.input(0), (n.layer.parts[0], n.layer.parts[1]))


@paddle_op("while")
def loop(n: LayerNode) -> Result:
    """The condition and the carried values after the loop."""
    if len(n.layer.parts) != 2:
        n.bad(f"expected one block, found {len(n.layer.parts) - 1}")
    return repeated(n, *n.layer.parts, n.slots)


@paddle_op("conditional_block")
def conditional_block(n: LayerNode) -> Result:
    """The results of the block.  Blocks have no effects, so the condition need not be looked at:
    `select_input` reads the results of the block that the program would run.
    """
    (part,) = n.layer.parts
    return results_of(n.inline(part, (), n.loc))


@paddle_op("select_input")
def select_input(n: LayerNode) -> Result:
    """The first or the second tensor of a list.  The other input is the number of the tensor."""
    choices = tensors(n, 0)
    if len(choices) != 2 or n.input(1).type.size != 1:
        n.unsupported(f"a choice among {len(choices)} tensors by {n.input(1).type}")
    return fn.where(n.input(1).reshape().cast(bool_), choices[1], choices[0])
