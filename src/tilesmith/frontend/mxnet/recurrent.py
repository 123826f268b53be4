"""MXNet's recurrent layers."""

from __future__ import annotations

from tilesmith.frontend.aten.recurrent import GATES, stack_over_time
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.mxnet.registry import mxnet_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import rules, slicing


@mxnet_op("RNN", "_npx_rnn")
def rnn(n: LayerNode) -> Result:
    """A stack of layers over sequences [steps, batch, width].

    All parameters are in one list: the weights, then the biases.  For each layer and direction the
    list has the parameters of the input, then those of the state.
    """
    if n.attr_flag("use_sequence_length", False) or n.has("projection_size"):
        n.unsupported("sequences of several lengths, and projections")
    if n.has("lstm_state_clip_min") or n.has("lstm_state_clip_max"):
        n.unsupported("bounds of an LSTM's state")
    x, kind = n.input(), n.attr_string("mode", among=tuple(GATES))
    hidden, layers = n.attr_int("state_size", low=1), n.attr_int("num_layers", low=1)
    both = n.attr_flag("bidirectional", False)
    ways, rows = 2 if both else 1, GATES[kind] * hidden
    width = rules.static("RNN", x.type.shape[2], "the width of the input")
    shapes: list[tuple[int, ...]] = []
    for layer in range(layers):
        shapes += [(rows, hidden * ways if layer else width), (rows, hidden)] * ways
    shapes += [(rows,)] * (2 * layers * ways)
    sizes = [s[0] * (s[1] if len(s) > 1 else 1) for s in shapes]
    parts = n.add(slicing.Split(0, tuple(sizes)), n.input(1))
    weights = [n.reshape(p, s) for p, s in zip(parts, shapes, strict=True)]
    half = len(weights) // 2
    params = [
        p
        for i in range(0, half, 2)
        for p in (*weights[i : i + 2], *weights[half + i : half + i + 2])
    ]
    states = [_state(n, i, (layers * ways, hidden)) for i in range(2, 4 if kind == "lstm" else 3)]
    return stack_over_time(n, kind, x, states, params, True, both, batch_first=False)


def _state(n: LayerNode, index: int, dims: tuple[int, int]) -> Value:
    """An initial state, with the batch size of the input.  A stored batch of 1 is repeated."""
    batch = n.input().type.shape[1]
    return n.expand(n.input(index), (dims[0], batch, dims[1]))
