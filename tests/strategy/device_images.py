"""Convolutions and pools for a device, run by the interpreter."""

from __future__ import annotations

import numpy as np

from tilesmith.codegen.targets import target
from tilesmith.driver.passes import optimise
from tilesmith.driver.session import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Value
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.ops.reduce import ReduceMean
from tilesmith.strategy.device import RULES
from tilesmith.support.options import Options
from tilesmith.te.knobs import ANALYTIC

GPU = target("cuda-sm_80")


RNG = np.random.default_rng(3)


def weights(b: Builder, *shape: int) -> Value:
    return b.constant(RNG.standard_normal(shape, np.float32))


def averaged(b: Builder, y: Value) -> Graph:
    return b.finish([b.add(ReduceMean((2, 3)), y)])


def kernels(graph: Graph, precision: str = "f32") -> list[tuple[Graph, Func]]:
    """The fused groups and their kernels."""
    session = Session.of(Options(target=GPU.name, precision=precision))
    bodies = [n.op.body for n in optimise(graph, session).nodes if isinstance(n.op, Fused)]
    return [(b, RULES.lower_group(b, GPU, f"k{n}", ANALYTIC)) for n, b in enumerate(bodies)]


def run(body: Graph, func: Func) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the interpreter makes of random inputs, and what the evaluator does."""
    given = [_random(v) for v in body.inputs]
    results = [np.zeros(v.type.static_shape, v.dtype.numpy) for v in body.outputs]
    values = (*body.inputs, *body.outputs)
    memory = [_packed(v, a) for v, a in zip(values, (*given, *results), strict=True)]
    interpret(func, memory)
    found = [
        a if v.layout is None else v.layout.unpack(a, v.type.static_shape)
        for v, a in zip(body.outputs, memory[len(given) :], strict=True)
    ]
    return found, list(evaluate(body, given).values())


def _random(v: Value) -> np.ndarray:
    return RNG.standard_normal(v.type.static_shape).astype(v.dtype.numpy)


def _packed(v: Value, array: np.ndarray) -> np.ndarray:
    return array if v.layout is None else v.layout.pack(array)
