"""Keras' recurrent layers as loops over time.

The products of inputs and weights don't depend on the state; they are computed for all steps at
once.  A mask skips steps: the state stays, and the output is the previous output, or zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.recurrence import over_time
from tilesmith.frontend.common.windows import convolve
from tilesmith.frontend.keras.activations import activated
from tilesmith.frontend.keras.convolutions import filters, geometry
from tilesmith.frontend.keras.node import KerasNode, Tensor, leaves
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim
from tilesmith.ops import conv as cv
from tilesmith.ops import functions as fn
from tilesmith.ops import gather, slicing
from tilesmith.ops import matmul as mm
from tilesmith.ops.sizes import Extents

Product: TypeAlias = Callable[[KerasNode, Value, Value], Value]
"""A function that adds the product of a state and recurrent weights to a body."""

_GATES = {"SimpleRNN": 1, "GRU": 3, "LSTM": 4, "ConvLSTM": 4}


@dataclass(frozen=True)
class _Cell:
    """A recurrent cell, which computes one step.

    kind: SimpleRNN, GRU, LSTM or ConvLSTM.
    n: the node with the cell's configuration and weights.
    projected: the inputs times their weights plus a bias, [steps, batch, gates * units].
    recurrent: the weights of the state.
    bias: the bias that is added to the product of state and weights, or None.
    product: computes this product.
    axis: the axis of the product along which the gates lie.
    state: the shape of a state.
    """

    kind: str
    n: KerasNode
    projected: Value
    recurrent: Value
    bias: Value | None
    product: Product
    axis: int
    state: tuple[Dim, ...]

    @property
    def states(self) -> int:
        """The number of states."""
        return 2 if self.kind.endswith("LSTM") else 1


def _matrix(n: KerasNode, h: Value, w: Value) -> Value:
    return n.add(mm.MatMul(), h, w)


def _dense_cell(n: KerasNode, kind: str, x: Value) -> _Cell:
    w, recurrent = n.weight(0), n.weight(1)
    units = n.extent(recurrent, 0)
    if n.shape(recurrent) != (units, _GATES[kind] * units):
        n.bad(
            f"expected recurrent weights [{units}, {_GATES[kind] * units}], found {recurrent.type}"
        )
    bias = n.weight(2) if n.option("use_bias", True) else None
    own = None
    if bias is not None and bias.type.rank == 2:  # GRU: biases of the inputs and of the state
        first, own = n.add(slicing.Split(0, (1, 1)), bias)
        bias, own = (n.reshape(v, (v.type.shape[1],)) for v in (first, own))
    projected = _matrix(n, x, w)
    projected = projected if bias is None else projected + bias
    return _Cell(kind, n, projected, recurrent, own, _matrix, 1, (x.type.shape[1], units))


def _image_cell(n: KerasNode, x: Value) -> _Cell:
    """The cell of a ConvLSTM over x [steps, batch, channels, spatial...]."""
    rank = x.type.rank - 3
    w, recurrent = filters(n, 0, rank), filters(n, 1, rank)
    steps, batch, *image = x.type.shape
    flat = n.reshape(x, (extents.product((steps, batch)), *image))
    g = geometry(n, flat, n.shape(w)[2:], n.positive("strides", rank, 1))
    y = convolve(n, flat, w, g)
    if n.option("use_bias", True):
        y = y + n.reshape(n.weight(2), (n.extent(y, 1), *[1] * rank))
    kernel = n.shape(recurrent)[2:]
    pads = (*((k - 1) // 2 for k in kernel), *(k // 2 for k in kernel))

    def product(inner: KerasNode, h: Value, w: Value) -> Value:
        return inner.add(cv.Conv(pads=pads), h, w)

    state = (batch, n.extent(y, 1) // 4, *y.type.shape[2:])
    projected = n.reshape(y, (steps, batch, *y.type.shape[1:]))
    return _Cell("ConvLSTM", n, projected, recurrent, None, product, 1, state)


def _step(cell: _Cell, n: KerasNode, body: Body, x: Value, states: Sequence[Value]) -> list[Value]:
    """The states after a step; the first one is also the output of the step."""
    config, h = cell.n, states[0]
    w = body.capture(cell.recurrent)
    each = n.extent(w, 0 if cell.kind == "ConvLSTM" else 1) // _GATES[cell.kind]
    sizes = (each,) * _GATES[cell.kind]

    def f(v: Value) -> Value:
        default = "hard_sigmoid" if cell.kind == "ConvLSTM" else "sigmoid"
        return activated(n, v, config.option("recurrent_activation", default))

    def g(v: Value) -> Value:
        return activated(n, v, config.option("activation", "tanh"))

    def with_bias(v: Value) -> Value:
        return v if cell.bias is None else v + body.capture(cell.bias)

    if cell.kind == "SimpleRNN":
        return [g(x + cell.product(n, h, w))]
    if cell.kind == "GRU":
        xz, xr, xh = n.add(slicing.Split(1, sizes), x)
        if config.option("reset_after", config.major > 2 or cell.bias is not None):
            hz, hr, hh = n.add(slicing.Split(1, sizes), with_bias(cell.product(n, h, w)))
            z, r = f(xz + hz), f(xr + hr)
            candidate = g(xh + r * hh)
        else:
            wz, wr, wh = n.add(slicing.Split(1, sizes), w)
            z, r = f(xz + cell.product(n, h, wz)), f(xr + cell.product(n, h, wr))
            candidate = g(xh + cell.product(n, r * h, wh))
        return [z * h + (1.0 - z) * candidate]
    i, forget, c, o = n.add(slicing.Split(cell.axis, sizes), x + cell.product(n, h, w))
    memory = f(forget) * states[1] + f(i) * g(c)
    return [f(o) * g(memory), memory]


def _run(
    cell: _Cell, initial: Sequence[Value], mask: Value | None, n: KerasNode
) -> tuple[Value, Value, list[Value]]:
    """The last output, the outputs of all steps in the order of steps, and the final states.

    mask: [steps, batch].
    n: the node with the options of the layer around the cell.
    """
    backward, zero = bool(n.option("go_backwards", False)), n.const(0, cell.projected.dtype)
    zeros = n.expand(zero, cell.state)
    states = list(initial) or [zeros] * cell.states
    if len(states) != cell.states:
        n.bad(f"expected {cell.states} initial states, found {len(states)}")
    if mask is not None:
        states.append(zeros)  # the previous output

    def step(
        body: Body, number: Value, x: Value, before: Sequence[Value]
    ) -> tuple[Sequence[Value], Value]:
        inner = replace(n, builder=body)
        after = _step(cell, inner, body, x, before)
        if mask is None:
            return after, after[0]
        live = _at(inner, body.capture(mask), number, backward)
        live = inner.reshape(live, (cell.state[0], *[1] * (len(cell.state) - 1)))
        empty = inner.const(0, after[0].dtype)
        kept = [fn.where(live, new, old) for new, old in zip(after, before)]
        output = fn.where(live, after[0], before[-1])
        shown = fn.where(live, after[0], empty) if skips else output
        return [*kept, output], shown

    skips = bool(n.option("zero_output_for_mask", False))
    final, outputs = over_time(n, n.kind, cell.projected, states, step, backward)
    final = list(final)
    last = final[0]
    if mask is not None:
        last = final.pop()
        if skips:
            place = 0 if backward else -1
            end = _element(n, mask, place)
            live = n.reshape(end, (cell.state[0], *[1] * (len(cell.state) - 1)))
            last = fn.where(live, last, zero)
    return last, n.add(slicing.Flip((0,)), outputs) if backward else outputs, final


def _at(n: KerasNode, mask: Value, number: Value, backward: bool) -> Value:
    """The mask of a step; `number` counts steps in the order in which they run."""
    if backward:
        last = extents.difference(mask.type.shape[0], 1)
        number = n.add(Extents((last,), (), number.dtype)) - number
    return n.add(gather.Gather(0), mask, number)


def _element(n: KerasNode, x: Value, place: int) -> Value:
    ends = (1,) if place == 0 else (extents.total((x.type.shape[0], 0)),)
    starts = (0,) if place == 0 else (extents.difference(x.type.shape[0], 1),)
    return n.reshape(n.add(slicing.Slice(starts, ends, (0,), (1,)), x), x.type.shape[1:])


def _cells(n: KerasNode) -> list[tuple[str, KerasNode]]:
    """The kind of each cell of a layer, in order, with a node that has the cell's weights."""
    if n.kind != "RNN":
        return [(n.kind, replace(n, weights=n.weights.part(["cell"])))]
    stored = n.option("cell", kind=dict)
    if stored.get("class_name") != "StackedRNNCells":
        return [_own(n, stored, n.weights.part(["cell"]))]
    cells, whole = (stored.get("config") or {}).get("cells") or [], n.weights.part(["cell"])
    made, used = [], dict[str, int]()
    for i, c in enumerate(cells):
        name = {"SimpleRNNCell": "simple_rnn_cell", "GRUCell": "gru_cell"}.get(
            c.get("class_name"), "lstm_cell"
        )
        used[name] = used.get(name, -1) + 1
        path = f"cells/{name}" + (f"_{used[name]}" if used[name] else "")
        made.append(_own(n, c, whole.part([path], i, len(cells))))
    return made


def _own(n: KerasNode, stored: dict[str, Any], weights: Any) -> tuple[str, KerasNode]:
    kind = str(stored.get("class_name")).removesuffix("Cell")
    if kind not in _GATES:
        n.unsupported(f"cell {kind!r}; SimpleRNN, GRU and LSTM are supported")
    return kind, replace(n, config=dict(stored.get("config") or {}), weights=weights)


@layer("SimpleRNN", "GRU", "LSTM", "RNN", *(f"ConvLSTM{r}D" for r in (1, 2, 3)))
def recurrent(n: KerasNode) -> Any:
    if n.option("stateful", False):
        n.unsupported("stateful=True; build the model without it and pass states as inputs")
    x, mask = n.input(), n.mask()
    is_image = n.kind.startswith("Conv")
    if x.type.rank < 3:
        n.bad(f"expected sequences [batch, steps, ...], found {x.type}")
    passed = n.kwargs.get("initial_state", [])
    states = [t.value for t in leaves([*n.args, passed]) if isinstance(t, Tensor)][1:]
    x = x.transpose(1, 0, *range(2, x.type.rank))
    if is_image:
        last = x.type.rank - 1
        x = x if n.is_first else x.transpose(0, 1, last, *range(2, last))
        states = [n.channels_first(s) for s in states if isinstance(s, Value)]
    steps_mask = None if mask is None else mask.transpose(1, 0)
    finals: list[Value] = []
    output, outputs, backward = x, x, bool(n.option("go_backwards", False))
    parts = _cells(n)
    for i, (kind, node) in enumerate(parts):
        cell = _image_cell(node, outputs) if is_image else _dense_cell(node, kind, outputs)
        own = [s for s in states[: cell.states] if isinstance(s, Value)]
        states = states[cell.states :]
        output, outputs, final = _run(cell, own, steps_mask, n)
        if backward and i + 1 < len(parts):  # flip back: the next cell flips its input
            outputs = n.add(slicing.Flip((0,)), outputs)
        finals += final
    y = output
    if n.option("return_sequences", False):
        y = outputs.transpose(1, 0, *range(2, outputs.type.rank))
        if is_image and not n.is_first:
            y = y.transpose(0, 1, *range(3, y.type.rank), 2)
    elif is_image:
        y = n.as_given(y)
    shown = Tensor(y, mask if n.option("return_sequences", False) else None)
    if not n.option("return_state", False):
        return shown
    return [shown, *(n.as_given(s) if is_image else s for s in finals)]


@layer("Bidirectional")
def bidirectional(n: KerasNode) -> Any:
    forward = n.option("layer", kind=dict)
    backward = n.option("backward_layer", None)
    if backward is None:
        own = dict(forward.get("config") or {})
        own["go_backwards"] = not own.get("go_backwards", False)
        backward = {**forward, "config": own}
    passed = n.kwargs.get("initial_state", [])
    states = [t for t in leaves([*n.args, passed]) if isinstance(t, Tensor)][1:]
    half = len(states) // 2
    mask = n.mask()
    x = Tensor(n.input(), mask)
    results = []
    for i, (stored, name) in enumerate(((forward, "forward_layer"), (backward, "backward_layer"))):
        weights = n.weights.part([name, name.replace("layer", "_layer")], i, 2)
        results.append(n.call(stored, weights, x, *states[i * half : (i + 1) * half]))
    firsts = [r[0] if isinstance(r, list) else r for r in results]
    finals = [s for r in results if isinstance(r, list) for s in r[1:]]
    a, b = (t.value for t in firsts)
    mode, whole = n.option("merge_mode", "concat"), firsts[0].mask
    if a.type.rank > 2 and (forward.get("config") or {}).get("return_sequences", False):
        b = n.add(slicing.Flip((1,)), b)
    ways: dict[Any, Callable[[], Any]] = {
        "concat": lambda: n.add(slicing.Concat(a.type.rank - 1), a, b),
        "sum": lambda: a + b,
        "ave": lambda: (a + b) * 0.5,
        "mul": lambda: a * b,
        None: lambda: [a, b],
    }
    if mode not in ways:
        n.bad(f"'merge_mode': expected concat, sum, ave or mul, found {mode!r}")
    y = ways[mode]()
    shown = [Tensor(v, whole) for v in y] if mode is None else [Tensor(y, whole)]
    return [*shown, *finals] if finals or mode is None else shown[0]


@layer("TimeDistributed")
def time_distributed(n: KerasNode) -> Any:
    """A layer applied to each step.  The axes of batch and steps are joined for the layer."""
    x, mask = n.input(), n.mask()
    batch, steps, *rest = x.type.shape
    flat = n.reshape(x, (extents.product((batch, steps)), *rest))
    own = None
    if mask is not None and mask.type.rank > 2:
        own = n.reshape(mask, (extents.product((batch, steps)), *mask.type.shape[2:]))
    made = n.call(n.option("layer", kind=dict), n.weights.part(["layer"]), Tensor(flat, own))
    if not isinstance(made, Tensor) or not isinstance(made.value, Value):
        return n.unsupported("a layer with several results")
    return Tensor(n.reshape(made.value, (batch, steps, *made.value.type.shape[1:])), mask)
