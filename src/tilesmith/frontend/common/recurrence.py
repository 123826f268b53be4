"""Recurrent layers as loops over the steps of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.node import NodeContext
from tilesmith.graph.control import INDEX, Loop
from tilesmith.graph.nodes import Value
from tilesmith.ir.types import TensorType

Step: TypeAlias = "Callable[[Body, Value, Value, Sequence[Value]], tuple[Sequence[Value], Value]]"
"""Adds a step to a body, for the step's number, the sequence's element and the state before the
step.  Returns the state after the step, and the step's output.
"""


def over_time(
    n: NodeContext,
    name: str,
    sequence: Value,
    state: Sequence[Value],
    step: Step,
    backward: bool = False,
) -> tuple[tuple[Value, ...], Value]:
    """The final state, and the outputs of all steps, [steps, ...].

    name: a name for the loop's body.
    sequence: the inputs of all steps, [steps, ...].
    backward: whether the last step is taken first; the outputs keep the order of the inputs.
    """
    body = Body(n.builder, name)
    steps, *element = sequence.type.shape
    types = [v.type for v in state]
    number, *before, x = body.given([INDEX, *types, TensorType(sequence.dtype, tuple(element))])
    after, shown = step(body, number, x, before)
    names = [*(f"state{i}" for i in range(len(after))), "shown"]
    way = (-1 if backward else 1,)
    op = Loop(body.finish([*after, shown], names), len(state), way, way, steps)
    *final, collected = n.add(op, *state, sequence, *body.captured)
    return tuple(final), collected
