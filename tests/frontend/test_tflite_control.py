"""TFLite's branches, loops and calls, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from tflite_oracle import check, numbers

import tilesmith as ts
from tflite_models import GraphWriter, ModelWriter


def _unary(g: GraphWriter, name: str, shape: tuple[int, ...], count: int = 1) -> None:
    """A subgraph of operators of one input."""
    x = g.input(shape)
    for _ in range(count):
        y = g.tensor(shape)
        g.op(name, [x], [y])
        x = y
    g.output(x)


def _called(name: str, options: str, **values: int) -> bytes:
    model = ModelWriter()
    g = model.graph()
    x, y = g.input((2, 3)), g.tensor((2, 3))
    g.op(name, [x], [y], options, **values)
    g.output(y)
    _unary(model.graph("inner"), "EXP", (2, 3), 2)
    return model.bytes()


def test_call() -> None:
    """LiteRT has no kernel of it."""
    x = numbers(0, 2, 3)
    result = ts.compile(_called("CALL", "CallOptions", subgraph=1))(x)
    np.testing.assert_allclose(result, np.exp(np.exp(x)), rtol=1e-5)


@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
def test_if(truth: bool, is_stored: bool) -> None:
    model = ModelWriter()
    g = model.graph()
    condition = g.const(np.array(truth)) if is_stored else g.input((), np.bool_)
    x, y = g.input((-1, 3)), g.tensor((-1, 3))
    g.op("IF", [condition, x], [y], "IfOptions", then_subgraph_index=1, else_subgraph_index=2)
    g.output(y)
    _unary(model.graph("then"), "EXP", (-1, 3))
    _unary(model.graph("otherwise"), "NEG", (-1, 3))
    given = [] if is_stored else [np.array(truth)]
    check(model.bytes(), [*given, numbers(0, 2, 3)])


def _counts(model: ModelWriter, limit: bool) -> None:
    """A condition `i < limit` and a step `i + 1, x * x`; the limit is stored or carried."""
    for name in ("condition", "step"):
        g = model.graph(name)
        i, x = g.input((), np.int32), g.input((2, 3))
        most = g.input((), np.int32) if limit else g.const(np.array(4, np.int32))
        if name == "condition":
            y = g.tensor((), np.bool_)
            g.op("LESS", [i, most], [y], "LessOptions")
            g.output(y)
            continue
        after, square = g.tensor((), np.int32), g.tensor((2, 3))
        g.op("ADD", [i, g.const(np.array(1, np.int32))], [after], "AddOptions")
        g.op("MUL", [x, x], [square], "MulOptions")
        g.output(after, square, *([most] if limit else []))


@pytest.mark.parametrize("limit", [None, 0, 3])
@pytest.mark.parametrize("is_stored", [False, True])
def test_while(limit: int | None, is_stored: bool) -> None:
    model = ModelWriter()
    g = model.graph()
    start = g.const(np.array(1, np.int32)) if is_stored else g.input((), np.int32)
    x = g.input((2, 3))
    state = [start, x] + ([] if limit is None else [g.input((), np.int32)])
    results = [g.tensor((), np.int32), g.tensor((2, 3))]
    results += [] if limit is None else [g.tensor((), np.int32)]
    g.op("WHILE", state, results, "WhileOptions", cond_subgraph_index=1, body_subgraph_index=2)
    g.output(*results[:2])
    _counts(model, limit is not None)
    given = [] if is_stored else [np.array(1, np.int32)]
    more = [] if limit is None else [np.array(limit, np.int32)]
    check(model.bytes(), [*given, numbers(0, 2, 3), *more])
