"""Random models with inputs, and what their outputs must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import control, elementwise, neural, tensors
from .builder import (
    OPSETS,
    RECIPES,
    Array,
    Builder,
    Rejected,
    evaluate,
    info_of,
    model_of,
    random_array,
    used,
)

FAMILIES = (elementwise, tensors, neural, control)
"""The modules that register recipes."""

NODES = 6
"""Most nodes of a graph, but for what a recipe adds to its operator."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model and inputs for one or more runs.

    model: a model with every size known, or with symbols in its inputs' shapes.
    runs: values of the inputs, by name.
    """

    model: onnx.ModelProto
    runs: tuple[dict[str, Array], ...]

    @property
    def opset(self) -> int:
        return self.model.opset_import[0].version


def random_case(seed: int, nodes: int = NODES) -> Case:
    """The case of a seed, of up to so many nodes.  Every third has symbolic dimensions and is run
    with several sizes.
    """
    random = np.random.default_rng(seed)
    b = Builder(random, OPSETS[int(random.integers(len(OPSETS)))])
    if seed % 3 == 0:
        b.opset = max(b.opset, 13)
    names = sorted(RECIPES)
    while not b.nodes:
        b.grow(int(random.integers(2, nodes + 1)), names)
    consumed = {i for n in b.nodes for i in used(n)}
    made = [o for n in b.nodes for o in n.output]
    outputs = [o for o in made if o not in consumed or b.chance(0.15)]
    inputs = {n: b.values[n] for n in b.inputs}
    infos = [info_of(n, a) for n, a in inputs.items()]
    constants = {n: b.values[n] for n in b.constants}
    case = Case(model_of(b.nodes, infos, outputs, constants, b.opset), (inputs,))
    return with_symbols(case, random) if seed % 3 == 0 else case


def with_symbols(case: Case, random: np.random.Generator) -> Case:
    """The case with some extents of its inputs replaced by symbols, and inputs of other sizes that
    the reference evaluator takes too.
    """
    (inputs,) = case.runs
    extents = sorted({d for a in inputs.values() for d in a.shape if d > 0})
    open_ones = [d for d in extents if random.random() < 0.5]
    runs = [inputs]
    for _ in range(6):
        sizes = {d: int(random.choice([1, 2, d + 1, d + 5, 2 * d, 19])) for d in open_ones}
        other = {
            n: random_array(random, [sizes.get(d, d) for d in a.shape], a.dtype)
            if any(d in sizes for d in a.shape)
            else a
            for n, a in inputs.items()
        }
        try:
            expected(case.model, other)
        except Rejected:
            continue
        runs.append(other)
    if len(runs) < 2:
        return case
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for info, array in zip(model.graph.input, inputs.values(), strict=True):
        shape = [f"s{d}" if d in open_ones else d for d in array.shape]
        info.CopyFrom(info_of(info.name, array, shape))
    return Case(model, tuple(runs[:3]))


def expected(
    model: onnx.ModelProto, inputs: dict[str, Array], error: float = 0.0, seed: int = 0
) -> dict[str, Array]:
    """The outputs by the reference evaluator, node by node.

    error: if positive, each result of floating-point numbers is changed at random by so many units
        in the last place of its element type.

    Raises Rejected where the evaluator refuses or the result is not specified.
    """
    random = np.random.default_rng(seed)
    known = dict(inputs) | {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        results = evaluate(node, known, model.opset_import[0].version)
        if error:
            results = [_disturbed(r, error, random) for r in results]
        known |= {o: r for o, r in zip(node.output, results, strict=True) if o}
    return {o.name: known[o.name] for o in model.graph.output}


def disturbed(inputs: dict[str, Array], units: float, seed: int) -> dict[str, Array]:
    """The inputs, each number changed at random by so many units in the last place."""
    random = np.random.default_rng(seed)
    return {n: _disturbed(a, units, random) for n, a in inputs.items()}


def _disturbed(array: Array, units: float, random: np.random.Generator) -> Array:
    if array.dtype.kind in "iub":
        return array
    relative = units * float(ml_dtypes.finfo(array.dtype).eps)
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        return (wide * (1 + relative * random.uniform(-1, 1, array.shape))).astype(array.dtype)


def part(
    model: onnx.ModelProto, inputs: dict[str, Array], kept: Sequence[int], outputs: Sequence[str]
) -> Case:
    """A case of the nodes with numbers `kept`; what the others compute becomes inputs."""
    nodes = [model.graph.node[i] for i in kept]
    known = dict(inputs) | {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    opset = model.opset_import[0].version
    for node in model.graph.node:
        known |= dict(zip(node.output, evaluate(node, known, opset), strict=True))
    made = {o for n in nodes for o in n.output}
    needed = dict.fromkeys(n for node in nodes for n in used(node) if n not in made)
    stored = {t.name for t in model.graph.initializer}
    given = {n: known[n] for n in needed if n not in stored}
    constants = {n: known[n] for n in needed if n in stored}
    infos = [info_of(n, a) for n, a in given.items()]
    return Case(model_of(nodes, infos, outputs, constants, opset), (given,))


def with_outputs(case: Case, outputs: Sequence[str]) -> Case:
    """The case with these outputs only, and the nodes that they need."""
    model, needed = onnx.ModelProto(), set(outputs)
    model.CopyFrom(case.model)
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(used(node))
            kept.insert(0, node)
    graph = helper.make_graph(
        kept,
        "g",
        [i for i in model.graph.input if i.name in needed],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [t for t in model.graph.initializer if t.name in needed],
    )
    model.graph.CopyFrom(graph)
    return Case(model, tuple({n: a for n, a in r.items() if n in needed} for r in case.runs))


def text_of(case: Case) -> str:
    """The model as text, and its inputs."""
    with np.printoptions(threshold=64, linewidth=100):
        given = [f"{n} = {a.dtype}{list(a.shape)} {a!r}" for r in case.runs for n, a in r.items()]
    return onnx.printer.to_text(case.model) + "\n" + "\n".join(given)
