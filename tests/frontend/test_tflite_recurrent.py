"""TFLite's recurrent layers of floats, against LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tflite_oracle import check, numbers, one_graph

from tflite_models import GraphWriter

TANH = 4
BATCH, STEPS, INPUTS, CELLS, OUTPUTS = 2, 3, 4, 5, 3


class _Operands:
    """Writes the operands of a layer, with small random contents."""

    def __init__(self, g: GraphWriter) -> None:
        self.graph, self.seed = g, 0

    def stored(self, *shape: int) -> int:
        self.seed += 1
        return self.graph.const(numbers(self.seed, *shape) * np.float32(0.5))

    def state(self, *shape: int) -> int:
        return self.graph.tensor(shape, is_variable=True)

    def lstm(self, *, coupled: bool, peephole: bool, outputs: int, projects: bool) -> list[int]:
        """Weights, peepholes, biases and projection of one direction."""
        skip = 1 if coupled else 0
        gates = [-1] * skip
        weights = gates + [self.stored(CELLS, INPUTS) for _ in range(4 - skip)]
        weights += gates + [self.stored(CELLS, outputs) for _ in range(4 - skip)]
        peepholes = [-1 if i < skip or not peephole else self.stored(CELLS) for i in range(3)]
        biases = gates + [self.stored(CELLS) for _ in range(4 - skip)]
        projection = [self.stored(outputs, CELLS), self.stored(outputs)] if projects else [-1, -1]
        return [*weights, *peepholes, *biases, *projection]


def _write(name: str, shape: Sequence[int], outputs: int, make: Any, options: str,
           **values: Any) -> bytes:  # fmt: skip
    def build(g: GraphWriter) -> None:
        x = g.input(shape)
        made = [g.tensor(()) for _ in range(outputs)]
        g.op(name, [x, *make(_Operands(g))], made, options, version=1, **values)
        g.output(*made)

    return one_graph(build)


FORMS: list[dict[str, bool]] = [
    {"coupled": c, "peephole": p, "projects": j, "normalised": norm}
    for c, p, j, norm in [
        (False, False, False, False),
        (True, False, False, False),
        (False, True, True, False),
        (True, True, False, False),
        (False, False, True, True),
        (True, True, True, True),
    ]
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_lstm(name: str, form: dict[str, bool]) -> None:
    form = dict(form)
    normalised = form.pop("normalised")
    outputs = OUTPUTS if form["projects"] else CELLS

    def make(o: _Operands) -> list[int]:
        weights = o.lstm(**form, outputs=outputs)
        states = [o.state(BATCH, outputs), o.state(BATCH, CELLS)]
        skip = form["coupled"]
        norms = [-1 if i < skip else o.stored(CELLS) for i in range(4)] if normalised else []
        return [*weights, *states, *norms]

    is_step = name == "LSTM"
    shape = (BATCH, INPUTS) if is_step else (STEPS, BATCH, INPUTS)
    options = "LSTMOptions" if is_step else "UnidirectionalSequenceLSTMOptions"
    values = {"cell_clip": 0.6, "proj_clip": 0.4, "fused_activation_function": TANH}
    more = {} if is_step else {"time_major": True}
    check(_write(name, shape, 1, make, options, **values, **more), [numbers(0, *shape)])


@pytest.mark.parametrize("is_open", [False, True])
def test_lstm_with_batches_first(is_open: bool) -> None:
    def make(o: _Operands) -> list[int]:
        weights = o.lstm(coupled=False, peephole=False, projects=False, outputs=CELLS)
        return [*weights, o.state(BATCH, CELLS), o.state(BATCH, CELLS)]

    shape = (BATCH, STEPS, INPUTS)
    declared = (BATCH, -1, INPUTS) if is_open else shape
    content = _write("UNIDIRECTIONAL_SEQUENCE_LSTM", declared, 1, make,
                     "UnidirectionalSequenceLSTMOptions",
                     fused_activation_function=TANH)  # fmt: skip
    check(content, [numbers(0, *shape)])


def test_basic_lstm() -> None:
    def make(o: _Operands) -> list[int]:
        h, w = o.graph.input((BATCH, CELLS)), o.stored(4 * CELLS, INPUTS + CELLS)
        return [h, w, o.stored(4 * CELLS), o.graph.input((BATCH, CELLS))]

    content = _write("LSTM", (BATCH, INPUTS), 4, make, "LSTMOptions", kernel_type=1,
                     fused_activation_function=TANH)  # fmt: skip
    check(content, [numbers(0, BATCH, INPUTS), numbers(1, BATCH, CELLS), numbers(2, BATCH, CELLS)])


# LiteRT's kernel reads memory that it has not written where it joins sequences with batches first.
@pytest.mark.parametrize(("merges", "time_major"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("auxiliary", [None, "input", "weights"])
def test_bidirectional_lstm(merges: bool, auxiliary: str | None, time_major: bool) -> None:
    shape = (STEPS, BATCH, INPUTS) if time_major else (BATCH, STEPS, INPUTS)

    def make(o: _Operands) -> list[int]:
        weights = [
            o.lstm(coupled=False, peephole=True, projects=False, outputs=CELLS) for _ in "fb"
        ]
        states = [o.state(BATCH, CELLS) for _ in range(4)]
        aux = -1 if auxiliary is None else o.stored(*shape)
        own = [o.stored(CELLS, INPUTS) for _ in range(8)] if auxiliary == "weights" else [-1] * 8
        return [*weights[0], *weights[1], *states, aux, *own]

    content = _write("BIDIRECTIONAL_SEQUENCE_LSTM", shape, 1 if merges else 2, make,
                     "BidirectionalSequenceLSTMOptions", merge_outputs=merges,
                     time_major=time_major,
                     fused_activation_function=TANH)  # fmt: skip
    check(content, [numbers(0, *shape)])


def _simple(o: _Operands) -> list[int]:
    return [o.stored(CELLS, INPUTS), o.stored(CELLS, CELLS), o.stored(CELLS), o.state(BATCH, CELLS)]


def test_rnn() -> None:
    content = _write("RNN", (BATCH, INPUTS), 1, _simple, "RNNOptions",
                     fused_activation_function=TANH)  # fmt: skip
    check(content, [numbers(0, BATCH, INPUTS)])


@pytest.mark.parametrize("time_major", [False, True])
def test_sequence_rnn(time_major: bool) -> None:
    shape = (STEPS, BATCH, INPUTS) if time_major else (BATCH, STEPS, INPUTS)
    content = _write("UNIDIRECTIONAL_SEQUENCE_RNN", shape, 1, _simple, "SequenceRNNOptions",
                     time_major=time_major, fused_activation_function=1)  # fmt: skip
    check(content, [numbers(0, *shape)])


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("auxiliary", [None, "input", "weights"])
@pytest.mark.parametrize("time_major", [False, True])
def test_bidirectional_rnn(merges: bool, auxiliary: str | None, time_major: bool) -> None:
    shape = (STEPS, BATCH, INPUTS) if time_major else (BATCH, STEPS, INPUTS)

    def make(o: _Operands) -> list[int]:
        aux = -1 if auxiliary is None else o.stored(*shape)
        own = [o.stored(CELLS, INPUTS) for _ in "fb"] if auxiliary == "weights" else [-1] * 2
        return [*_simple(o), *_simple(o), aux, *own]

    content = _write("BIDIRECTIONAL_SEQUENCE_RNN", shape, 1 if merges else 2, make,
                     "BidirectionalSequenceRNNOptions", merge_outputs=merges, time_major=time_major,
                     fused_activation_function=TANH)  # fmt: skip
    check(content, [numbers(0, *shape)])


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_svdf(rank: int, bias: bool) -> None:
    filters, memory = 6, 4

    def make(o: _Operands) -> list[int]:
        units = [o.stored(filters // rank)] if bias else [-1]
        state = o.state(BATCH, memory * filters)
        return [o.stored(filters, INPUTS), o.stored(filters, memory), *units, state]

    content = _write("SVDF", (BATCH, INPUTS), 1, make, "SVDFOptions", rank=rank,
                     fused_activation_function=1)  # fmt: skip
    check(content, [numbers(0, BATCH, INPUTS)])
