"""nn.LSTM, nn.GRU and nn.RNN through `torch.compile`.

Dynamo breaks graphs at recurrent modules unless its option `allow_rnn` is true while it traces.  A
backend is called after tracing, and the option applies to the whole process.  So the function in
which Dynamo reads the option is wrapped: the option is true while Dynamo traces graphs for this
backend, and unchanged for other backends (`trace_recurrent_modules`).

PyTorch decomposes recurrent functions into their steps, or into kernels of its own.  Instead,
`as_loops` makes one operator, "tilesmith::recurrence", of all steps of one direction of a layer.
The importer makes a loop of it (`frontend.aten.recurrent`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from typing import Any

import torch
from torch._C import DispatchKey
from torch._dynamo import config
from torch._dynamo.symbolic_convert import tls
from torch._dynamo.variables.builder import VariableBuilder
from torch._ops import OpOverload
from torch.nn import functional as F

from tilesmith.frontend.aten.recurrent import direction_of

Tensors = Sequence[torch.Tensor]

_KINDS = {
    torch.lstm: "lstm",
    torch.gru: "gru",
    torch.rnn_tanh: "rnn_tanh",
    torch.rnn_relu: "rnn_relu",
}

_OVERLOADS = {kind: getattr(torch.ops.aten, kind).input for kind in _KINDS.values()}


# Tracing


@cache
def trace_recurrent_modules(backend: Callable[..., Any]) -> None:
    """Make Dynamo trace recurrent modules for `backend`."""
    wrapped = VariableBuilder.wrap_module

    @wraps(wrapped)
    def wrap_module(self: VariableBuilder, value: torch.nn.Module) -> Any:
        if not isinstance(value, torch.nn.RNNBase) or not _compiles_for(backend):
            return wrapped(self, value)
        with config.patch(allow_rnn=True):
            return wrapped(self, value)

    VariableBuilder.wrap_module = wrap_module
    for kind, overload in _OVERLOADS.items():
        for key in (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd):
            _keep_steps_open(overload, key, kind, backend)


def _keep_steps_open(
    overload: OpOverload, key: DispatchKey, kind: str, backend: Callable[..., Any]
) -> None:
    """Make Dynamo infer the result shapes of a recurrent function with `_called`, for `backend`.
    PyTorch's own function for fake tensors unrolls the steps, so that their number becomes
    constant.
    """
    whole = overload.py_kernels[key]

    @wraps(whole)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _compiles_for(backend):
            return _called(kind, whole, *args, **kwargs)
        return whole(*args, **kwargs)

    overload.py_kernels[key] = kernel
    overload._dispatch_cache.clear()


def _compiles_for(backend: Callable[..., Any]) -> bool:
    """Whether Dynamo is tracing in this thread for `backend`."""
    trace = getattr(tls, "current_tx", None)
    compiler = None if trace is None else trace.output.compiler_fn
    while compiler is not None and compiler is not backend:
        # wrappers that torch.compile and Dynamo put around a backend
        inner = getattr(compiler, "_torchdynamo_orig_backend", None)
        compiler = getattr(compiler, "compiler_fn", None) if inner is None else inner
    return compiler is backend


# Graphs


def as_loops(graph: torch.fx.GraphModule) -> None:
    """Replace the recurrent layers of a Dynamo graph by calls of "tilesmith::recurrence"."""
    for n in graph.graph.nodes:
        kind = _KINDS.get(n.target) if n.op == "call_function" else None
        if kind is not None and not _is_packed(n) and _is_on_cpu(n):
            n.target = partial(_called, kind, n.target)
    graph.recompile()


def _is_packed(node: torch.fx.Node) -> bool:
    """Whether a call is of the overload for packed sequences: (data, batch_sizes, state, weights,
    ...).
    """
    return len(node.args) > 3 and isinstance(node.args[3], (tuple, list))


def _is_on_cpu(node: torch.fx.Node) -> bool:
    held = (i.meta.get("example_value") for i in node.all_input_nodes)
    return all(h.device.type == "cpu" for h in held if isinstance(h, torch.Tensor))


def _called(
    kind: str,
    whole: Callable[..., Any],
    x: torch.Tensor,
    state: Any,
    params: Tensors,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """The results of PyTorch's recurrent function `whole`, if possible by
    "tilesmith::recurrence".
    """
    states = list(state) if kind == "lstm" else [state]
    per = len(params) // (num_layers * (2 if bidirectional else 1))
    is_projected = per in (3, 5)
    is_cast = torch.is_autocast_enabled("cpu")
    # On CPUs, autocast casts the arguments of an LSTM or RNN.  It does not cast the arguments of a
    # GRU, but those of the operators inside the GRU.
    if (is_cast and kind == "gru") or (is_projected and _needs_gradient([x, *states, *params])):
        return whole(
            x, state, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )
    if is_cast:
        dtype = torch.get_autocast_dtype("cpu")
        x, states, params = (
            x.to(dtype),
            [s.to(dtype) for s in states],
            [p.to(dtype) for p in params],
        )
    rate = dropout if train else 0.0
    with torch.autocast("cpu", enabled=False):
        x = x.transpose(0, 1) if batch_first else x
        x, *finals = _stack(kind, x, states, params, has_biases, bidirectional, rate)
        return (x.transpose(0, 1) if batch_first else x, *finals)


def _stack(
    kind: str,
    x: torch.Tensor,
    state: Tensors,
    params: Tensors,
    has_biases: bool,
    bidirectional: bool,
    dropout: float,
) -> list[torch.Tensor]:
    """The results of all layers, one after the other, for inputs [steps, batch, width]."""
    directions, count = 2 if bidirectional else 1, state[0].shape[0]
    per = len(params) // count
    finals: list[Tensors] = []
    for layer in range(count // directions):
        shown = []
        for d in range(directions):
            number = layer * directions + d
            w, r, biases, hr = direction_of(params, number, per, has_biases)
            late = biases[1] if biases and kind == "gru" else None
            first = None
            if biases:
                first = biases[0] if late is not None else biases[0] + biases[1]
            own = [s[number] for s in state]
            y, *after = _recurrence(kind, d == 1, F.linear(x, w, first), r, late, hr, own)
            shown.append(y)
            finals.append(after)
        x = shown[0] if len(shown) == 1 else torch.cat(shown, 2)
        if dropout and layer + 1 < count // directions:
            x = F.dropout(x, dropout)
    return [x, *(torch.stack(list(s)) for s in zip(*finals, strict=True))]


def _needs_gradient(tensors: Sequence[torch.Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _recurrence(
    kind: str,
    reverse: bool,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    state: Tensors,
) -> Tensors:
    if _needs_gradient([x, weight, bias, *state]):
        return _Recurrence.apply(kind, reverse, x, weight, bias, *state)
    arguments = (kind, x, state, weight, bias, projection, reverse, False)
    return torch.ops.tilesmith.recurrence(*arguments)


class _Recurrence(torch.autograd.Function):
    """A recurrence with its gradient.  Matrix products over all steps at once are outside of the
    loops.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensors:
        kind, reverse, x, weight, bias, *state = given
        y, *others = torch.ops.tilesmith.recurrence(
            kind, x, state, weight, bias, None, reverse, True
        )
        after, kept = others[: len(state)], others[len(state) :]
        ctx.kind, ctx.reverse = kind, reverse
        ctx.has_bias = bias is not None
        ctx.save_for_backward(weight, y, *state, *kept)
        return (y, *after)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        dy, *after = grads
        kind, reverse = ctx.kind, ctx.reverse
        weight, y, *others = ctx.saved_tensors
        state, kept = others[: len(after)], others[len(after) :]
        shown = _before(y, state[0], reverse)
        if kind == "lstm":
            kept = [kept[0], _before(kept[1], state[1], reverse)]
        elif kind == "gru":
            kept = [kept[0], shown]
        else:
            kept = [y]
        gradients = torch.ops.tilesmith.recurrence_backward(kind, dy, after, kept, weight, reverse)
        products, before = gradients[: -len(after)], gradients[-len(after) :]
        through = products[-1].flatten(0, 1)
        d_weight = through.t() @ shown.flatten(0, 1)
        d_bias = through.sum(0) if ctx.has_bias else None
        return None, None, products[0], d_weight, d_bias, *before


def _before(of_steps: torch.Tensor, first: torch.Tensor, reverse: bool) -> torch.Tensor:
    """The state before each step: the first state, then the states after all steps but the last
    one.
    """
    if reverse:
        return torch.cat([of_steps[1:], first[None]])
    return torch.cat([first[None], of_steps[:-1]])


# Custom operators for eager mode and for fake tensors


_LIBRARY = torch.library.Library("tilesmith", "FRAGMENT")
_LIBRARY.define(
    "recurrence(str kind, Tensor x, Tensor[] state, Tensor weight, Tensor? bias, "
    "Tensor? projection, bool reverse, bool keep) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "recurrence_backward(str kind, Tensor shown, Tensor[] state, Tensor[] kept, Tensor weight, "
    "bool reverse) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _fake(
    kind: str,
    x: torch.Tensor,
    state: Tensors,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    reverse: bool,
    keep: bool,
) -> list[torch.Tensor]:
    steps, batch, width = x.shape
    results = [x.new_empty((steps, batch, state[0].shape[1])), *map(torch.empty_like, state)]
    if keep and kind == "lstm":
        return [*results, torch.empty_like(x), x.new_empty((steps, batch, state[1].shape[1]))]
    if keep and kind == "gru":
        return [*results, x.new_empty((steps, batch, width // 3 * 4))]
    return results


def _fake_backward(
    kind: str,
    shown: torch.Tensor,
    state: Tensors,
    kept: Tensors,
    weight: torch.Tensor,
    reverse: bool,
) -> list[torch.Tensor]:
    steps, batch, _ = shown.shape
    products = 2 if kind == "gru" else 1
    made = [shown.new_empty((steps, batch, weight.shape[0])) for _ in range(products)]
    return [*made, *map(torch.empty_like, state)]


def _eager(
    kind: str,
    x: torch.Tensor,
    state: Tensors,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    projection: torch.Tensor | None,
    reverse: bool,
    keep: bool,
) -> list[torch.Tensor]:
    collected: list[Tensors] = []
    for xt in reversed(x) if reverse else x:
        product = F.linear(state[0], weight, bias)
        kept: list[torch.Tensor] = []
        if kind == "gru":
            (r, z, new), (hr, hz, hn) = xt.chunk(3, 1), product.chunk(3, 1)
            r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
            new = torch.tanh(new + r * hn)
            state, kept = [new + z * (state[0] - new)], [torch.cat([r, z, new, hn], 1)]
        elif kind == "lstm":
            i, f, g, o = (xt + product).chunk(4, 1)
            i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
            cell = f * state[1] + i * g
            h = o * torch.tanh(cell)
            kept = [torch.cat([i, f, g, o], 1), cell]
            state = [h if projection is None else F.linear(h, projection), cell]
        else:
            total = xt + product
            state = [torch.relu(total) if kind == "rnn_relu" else torch.tanh(total)]
        collected.append([state[0], *kept] if keep else [state[0]])
    if reverse:
        collected.reverse()
    shown, *others = (torch.stack(list(v)) for v in zip(*collected, strict=True))
    return [shown, *(s.clone() for s in state), *others]


def _eager_backward(
    kind: str,
    shown: torch.Tensor,
    state: Tensors,
    kept: Tensors,
    weight: torch.Tensor,
    reverse: bool,
) -> list[torch.Tensor]:
    order = list(range(shown.shape[0]))
    collected: list[Tensors] = []
    for t in order if reverse else reversed(order):
        dh, products, others = state[0] + shown[t], [], []
        if kind == "gru":
            r, z, new, hn = kept[0][t].chunk(4, 1)
            d_new = dh * (1 - z) * (1 - new * new)
            d_z, d_r = dh * (kept[1][t] - new) * z * (1 - z), d_new * hn * r * (1 - r)
            products = [torch.cat([d_r, d_z, d_new], 1), torch.cat([d_r, d_z, d_new * r], 1)]
            state = [products[1] @ weight + dh * z]
        elif kind == "lstm":
            i, f, g, o = kept[0][t].chunk(4, 1)
            out = torch.tanh(f * kept[1][t] + i * g)
            d_cell = state[1] + dh * o * (1 - out * out)
            gates = (
                d_cell * g * i * (1 - i),
                d_cell * kept[1][t] * f * (1 - f),
                d_cell * i * (1 - g * g),
                dh * out * o * (1 - o),
            )
            products, others = [torch.cat(gates, 1)], [d_cell * f]
        else:
            y = kept[0][t]
            products = [dh * (y > 0) if kind == "rnn_relu" else dh * (1 - y * y)]
        if kind != "gru":
            state = [products[0] @ weight, *others]
        collected.append(products)
    if not reverse:
        collected.reverse()
    return [*(torch.stack(list(v)) for v in zip(*collected, strict=True)), *state]


_LIBRARY.impl("recurrence", _eager, "CPU")
_LIBRARY.impl("recurrence_backward", _eager_backward, "CPU")
torch.library.register_fake("tilesmith::recurrence", _fake, lib=_LIBRARY)
torch.library.register_fake("tilesmith::recurrence_backward", _fake_backward, lib=_LIBRARY)
