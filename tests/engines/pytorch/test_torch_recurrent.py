"""nn.LSTM, nn.GRU, nn.RNN and their cells: every road gives what eager mode gives."""

from __future__ import annotations

import copy
import itertools

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from roads import check  # noqa: E402  # needs torch

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

LAYERS = {
    "lstm": lambda **more: nn.LSTM(5, 6, **more),
    "gru": lambda **more: nn.GRU(5, 6, **more),
    "tanh": lambda **more: nn.RNN(5, 6, **more),
    "relu": lambda **more: nn.RNN(5, 6, nonlinearity="relu", **more),
}
FORMS = {
    "plain": {},
    "two layers, both ways": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "both ways, no bias": {"bias": False, "bidirectional": True},
}
CASES = [*itertools.product(LAYERS, FORMS), ("lstm", "projected")]
STATES = {"lstm": 2}


def layer(kind, form):
    torch.manual_seed(0)
    more = {"proj_size": 3, "num_layers": 2} if form == "projected" else FORMS[form]
    return LAYERS[kind](**more)


class Stateful(nn.Module):
    """A layer that gets its first state."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, *state):
        return self.inner(x, state if len(state) > 1 else state[0])


def stateful(inner, batch):
    """A module and its inputs."""
    count = inner.num_layers * (2 if inner.bidirectional else 1)
    shapes = [(count, batch, inner.proj_size or inner.hidden_size)]
    if isinstance(inner, nn.LSTM):
        shapes.append((count, batch, inner.hidden_size))
    x = torch.randn((batch, 4, 5) if inner.batch_first else (4, batch, 5))
    return Stateful(inner), (x, *map(torch.randn, shapes))


@pytest.mark.parametrize("road", ["module", "archive", "backend"])
@pytest.mark.parametrize(("kind", "form"), CASES)
def test_layers(road, kind, form, tmp_path):
    module, args = stateful(layer(kind, form).eval(), 3)
    check(road, module, args, tmp_path)


@pytest.mark.parametrize("road", ["module", "archive", "backend"])
def test_cells(road, tmp_path):
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(5, 6), nn.GRUCell(6, 4), nn.RNNCell(4, 3)])

        def forward(self, x):
            h, c = self.cells[0](x)
            return self.cells[2](self.cells[1](h)), c

    torch.manual_seed(0)
    check(road, Cells().eval(), (torch.randn(2, 5),), tmp_path)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_one_program_for_all_lengths(kind, grad):
    inner = layer(kind, "two layers, both ways").eval()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(inner, backend="tilesmith", dynamic=True, options={"threads": 1})
    with torch.set_grad_enabled(grad):
        for batch, steps in ((3, 4), (2, 9), (4, 3)):
            x = torch.randn(batch, steps, 5)
            torch.testing.assert_close(compiled(x), inner(x), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_gradients(kind, form):
    inner = layer(kind, form)
    module, args = stateful(inner, 3)
    args = tuple(a.requires_grad_() for a in args)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="tilesmith", options={"threads": 1})

    def gradients(function):
        y, state = function(*args)
        states = state if isinstance(state, tuple) else (state,)
        loss = (y * y).sum() + sum(s.sin().sum() for s in states)
        return torch.autograd.grad(loss, [*args, *inner.parameters()])

    torch.testing.assert_close(gradients(compiled), gradients(module), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_what_pytorch_computes_in_the_place_of_native_code(kind, reverse):
    """The operators in eager mode, which calls of other types than expected fall back on."""
    from tilesmith.engines.torch.recurrent import _Recurrence

    torch.manual_seed(0)
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)

    def draw(*shape):
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    states = [draw(2, 3) for _ in range(STATES.get(kind, 1))]
    bias = draw(gates * 3) if kind == "gru" else None
    given = (draw(4, 2, gates * 3), draw(gates * 3, 3), bias, *states)
    call = lambda *t: _Recurrence.apply(kind, reverse, *t)  # noqa: E731
    torch.autograd.gradcheck(call, given)

    whole = {"lstm": nn.LSTM, "gru": nn.GRU}.get(kind, nn.RNN)
    more = {"nonlinearity": "relu"} if kind == "rnn_relu" else {}
    inner = whole(gates * 3, 3, bidirectional=True, dtype=torch.float64, **more)
    suffix = "_reverse" if reverse else ""
    with torch.no_grad():
        for name, p in inner.named_parameters():
            p.zero_()
            if name == f"weight_ih_l0{suffix}":
                p.copy_(torch.eye(gates * 3))
            if name == f"weight_hh_l0{suffix}":
                p.copy_(given[1])
            if bias is not None and name == f"bias_hh_l0{suffix}":
                p.copy_(bias)
        both = [torch.stack([s, s]) for s in states]
        y, _ = inner(given[0], tuple(both) if len(both) > 1 else both[0])
    mine = y[..., 3:] if reverse else y[..., :3]
    torch.testing.assert_close(call(*given)[0].detach(), mine)


def test_mixed_precision_and_dropout_are_those_of_eager_mode():
    for kind in LAYERS:
        inner = layer(kind, "plain")
        torch._dynamo.reset()
        compiled = torch.compile(inner, backend="tilesmith", options={"threads": 1})
        with torch.autocast("cpu", torch.bfloat16):
            x = torch.randn(4, 3, 5)
            torch.testing.assert_close(compiled(x)[0], inner(x)[0], rtol=2e-2, atol=2e-2)
    torch._dynamo.reset()
    inner = nn.LSTM(5, 6, 2, dropout=0.5)
    compiled = torch.compile(inner, backend="tilesmith", options={"threads": 1})
    x = torch.randn(4, 3, 5)
    torch.manual_seed(3)
    wanted = inner(x)[0]
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x)[0], wanted)


@pytest.mark.parametrize("kind", LAYERS)
def test_packed_sequences(kind):
    inner = layer(kind, "plain")
    lengths = torch.tensor([4, 2, 1])
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            y, state = self.inner(pack(2 * x, lengths))
            return pad(y)[0] + 1, state

    module = Packed()
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="tilesmith", options={"threads": 1})
    x = torch.randn(4, 3, 5)
    torch.testing.assert_close(compiled(x), module(x))


def test_other_backends_trace_as_they_did():
    graphs = []

    def other(graph, inputs):
        graphs.append(graph)
        return graph.forward

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.LSTM(5, 6)

        def forward(self, x):
            return self.inner(x)[0]

    module, x = Net(), torch.randn(4, 3, 5)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="tilesmith", fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x))
    assert torch._dynamo.config.allow_rnn is False
    with pytest.raises(torch._dynamo.exc.Unsupported, match="RNN, GRU, or LSTM"):
        torch.compile(copy.deepcopy(module), backend=other, fullgraph=True)(x)
    assert not graphs
