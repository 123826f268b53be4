"""TFLite's simple recurrent layers of floats, and its filters of sequences (SVDF)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.activations import activate
from tilesmith.frontend.tflite.contractions import product
from tilesmith.frontend.tflite.convolutions import check_floats
from tilesmith.frontend.tflite.lstm import both_directions, steps_first
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import slicing


@tflite_op("RNN")
def rnn(n: TfliteNode) -> Result:
    """A step of a recurrent layer."""
    x, w, before, bias, h = (n.input(i) for i in range(5))
    check_floats(n, x, w, before)
    h = activate(n, product(n, x, w) + bias + product(n, h, before))
    n.keep(4, h)
    return h


def _direction(
    n: TfliteNode, x: Value, aux: tuple[Value | None, int], first: int, backward: bool = False
) -> Value:
    """The outputs of all steps of a direction, [steps, batch, units].

    aux: an auxiliary input or None, and the number of the input with its weights.
    first: number of the first weights; the others, the bias and the state follow.
    """
    w, before, bias, h = (n.input(first + i) for i in range(4))
    check_floats(n, x, w, before)
    projected = product(n, x, w) + bias
    if aux[0] is not None:
        projected = projected + product(n, aux[0], n.input(aux[1]))

    def step(
        body: Body, _: Value, x: Value, state: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner = replace(n, builder=body)
        after = activate(inner, x + product(inner, state[0], body.capture(before)))
        return (after,), after

    (final,), outputs = over_time(n, "rnn", projected, (h,), step, backward)
    n.keep(first + 3, final)
    return outputs


@tflite_op("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_sequence_rnn(n: TfliteNode) -> Result:
    is_time_major = bool(n.option("time_major"))
    x = steps_first(n, n.input(0), is_time_major)
    return steps_first(n, _direction(n, x, (None, 0), 1), is_time_major)


@tflite_op("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_sequence_rnn(n: TfliteNode) -> Result:
    # TFLite's kernel ignores an auxiliary input without weights if the batch is the first axis
    replaces = bool(n.option("time_major"))
    return both_directions(
        n,
        9,
        (10, 11),
        lambda x, aux: _direction(n, x, (aux, 10), 1),
        lambda x, aux: _direction(n, x, (aux, 11), 5, True),
        replaces,
    )


@tflite_op("SVDF")
def svdf(n: TfliteNode) -> Result:
    """A filter over the features of the last steps, which the state keeps."""
    x, features, times, bias, state = *(n.input(i) for i in range(3)), n.optional(3), n.input(4)
    check_floats(n, x, features, times)
    rank, (filters, memory) = n.option("rank"), n.shape(times)
    if rank < 1 or filters % rank:
        n.bad(f"option 'rank': expected a divisor of {filters} filters, found {rank}")
    batch = x.type.shape[0]
    kept = n.reshape(state, (batch, filters, memory))
    newest = n.reshape(product(n, x, features), (batch, filters, 1))
    kept = n.add(slicing.Concat(2), n.add(slicing.Slice((1,), (memory,), (2,), (1,)), kept), newest)
    n.keep(4, n.reshape(kept, state.type.shape))
    y = (kept * times).sum((2,))
    y = n.reshape(y, (batch, filters // rank, rank)).sum((2,))
    return activate(n, y if bias is None else y + bias)
