"""Paddle's recurrent layers."""

from __future__ import annotations

from tilesmith.frontend.aten.recurrent import stack_over_time
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result, TensorList
from tilesmith.frontend.paddle.registry import paddle_op, tensors

_KINDS = {"GRU": "gru", "LSTM": "lstm", "RNN_RELU": "rnn_relu", "RNN_TANH": "rnn_tanh"}


@paddle_op("rnn", "rnn_of")
def rnn(n: LayerNode) -> Result:
    """A stack of layers over sequences [steps, batch, width], and the states after the last step.

    The weights of all layers and directions come first, then their biases.
    """
    if n.optional(3) is not None:
        n.unsupported("sequences of several lengths")
    kind = _KINDS[n.attr_string("mode", among=tuple(_KINDS))]
    both, weights = n.attr_flag("is_bidirec", False), tensors(n, 2)
    count = 2 * n.attr_int("num_layers", 1, low=1) * (2 if both else 1)
    if len(weights) not in (count, 2 * count):
        n.bad(f"expected {count} weights and as many biases, found {len(weights)} tensors")
    params = [
        p
        for i in range(0, count, 2)
        for p in (*weights[i : i + 2], *weights[count + i : count + i + 2])
    ]
    has_biases = len(weights) > count
    y, *states = stack_over_time(
        n, kind, n.input(), tensors(n, 1), params, has_biases, both, batch_first=False
    )
    if n.layer.kind == "rnn_of":
        return y, *states
    return y, y, TensorList(tuple(states), y.dtype)
