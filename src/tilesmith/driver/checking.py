"""Every kernel of a model by itself against the graph evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import KernelCode
from tilesmith.graph.evaluate import evaluate, logical_array
from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.runtime.executable import Executable
from tilesmith.support.difference import difference
from tilesmith.support.options import Options

from .assembly import assemble
from .compiler import load_graph
from .kernels import compile_kernels
from .passes import optimise
from .session import Session


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """How one kernel compares with the graph evaluator on the same inputs.

    index: number of the kernel in the program.
    loc: the source model's node.
    operators: of the fused group.
    error: largest difference relative to the largest magnitude of the reference.
    bound: the error that the accuracy policy allows.
    """

    index: int
    loc: str
    operators: tuple[str, ...]
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


def check(
    model: Any,
    inputs: Mapping[str, np.ndarray] | None = None,
    target: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> list[KernelCheck]:
    """Run every kernel of a model by itself, on the reference's values of its inputs, and compare.

    inputs: by name; default: random ones of the right types.

    The reference is `graph.evaluate`.
    """
    session = Session.of(options, target=target)
    fused = optimise(load_graph(model, shapes, session), session)
    kernels = compile_kernels(fused, session)
    given = inputs if inputs is not None else random_inputs(fused)
    known: dict[Value, np.ndarray] = {v: np.asarray(given[v.name]) for v in fused.inputs}
    known |= {c.value: logical_array(c) for c in fused.constants}
    last_use = {v: i for i, n in enumerate(fused.nodes) for v in n.inputs}
    results = []
    for i, node in enumerate(fused.nodes):
        assert isinstance(node.op, Fused)
        arrays = [known[v] for v in node.inputs]
        expected = tuple(evaluate(node.op.body, arrays).values())
        known |= zip(node.outputs, expected, strict=True)
        if node in kernels:
            found = _run_alone(node, kernels[node], arrays, session)
            error = max(map(difference, found, expected))
            bound = max(session.options.bound(str(v.dtype)) for v in node.outputs)
            ops = tuple(n.op.name for n in node.op.body.nodes)
            results.append(KernelCheck(i, node.loc, ops, error, bound))
        for v in node.inputs:
            if last_use[v] == i:
                del known[v]
    return results


def _run_alone(
    node: Node, kernel: KernelCode, arrays: Sequence[np.ndarray], session: Session
) -> list[np.ndarray]:
    """The results of one kernel for logical input arrays, as logical arrays."""
    renamed = {v: replace(v, name=f"in{i}") for i, v in enumerate(dict.fromkeys(node.inputs))}
    single = replace(node, inputs=tuple(renamed[v] for v in node.inputs))
    names = tuple(f"out{i}" for i in range(len(node.outputs)))
    alone = Graph("check", tuple(renamed.values()), (), (single,), node.outputs, names)
    exe = Executable(assemble(alone, {single: kernel}, session), session.options.threads)
    by_value = dict(zip(node.inputs, arrays, strict=True))
    physical = [
        np.asarray(v.layout.pack(by_value[v]) if v.layout else by_value[v], order="C")
        for v in renamed
    ]
    out = exe.run({f"in{i}": a for i, a in enumerate(physical)})
    return [
        v.layout.unpack(a, v.type.static_shape) if v.layout else a
        for v, a in zip(node.outputs, out.values(), strict=True)
    ]


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of the right types: standard normal floats, integers 0 and 1, random bools."""
    rng = np.random.default_rng(seed)
    result = {}
    for v in graph.inputs:
        shape = v.type.static_shape
        if v.dtype.is_float:
            result[v.name] = rng.standard_normal(shape).astype(v.dtype.numpy)
        else:
            result[v.name] = rng.integers(0, 2, shape).astype(v.dtype.numpy)
    return result
