"""Choice of precision="auto": the fastest operand types whose error stays within the accuracy
policy.

The error of a layer is the difference between its product with low-precision operands and its f32
product, on the same values.  Layers above the bound stay f32.  If the model's outputs are still
above the bound, layers with the largest errors return to f32 until the outputs are within it.
Compiled code on this machine computes all this, assuming that the target's arithmetic is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilesmith.graph.bind import expected_graph
from tilesmith.graph.builder import infer
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.passes.low_precision import (
    LOW_TYPES,
    Choice,
    Form,
    constant_bytes,
    constant_factor,
    low_precision,
)
from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.symbols import expected_size
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Abs, Cast, Sub
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.reduce import ReduceMax

from .checking import random_inputs
from .compiler import compile_program, load_graph
from .passes import before_target
from .places import placed
from .precision import check_precision, low_choice, named
from .request import Request
from .session import Session

Samples = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """A product and its chosen type.

    name: name of the node in the source model.
    type: "f32", or the low type.
    form: the factors that would become low (see `Form`); None if that is not faster.
    error: largest difference caused by the low type, relative to the largest magnitude of the
        result; None if it was not measured.
    """

    name: str
    type: str
    form: Form | None
    error: float | None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "form": self.form, "error": self.error}


@dataclass(frozen=True, slots=True)
class AutomaticPrecision:
    """The precision that was chosen.

    text: the equivalent value of `precision`, by names of nodes.
    layers: the products, in the order of the graph.
    error: error of the model's outputs, relative to the largest magnitude of each; 0 for f32.
    bound: the largest error that the accuracy policy allows for the low type.
    """

    text: str
    layers: tuple[Layer, ...]
    error: float
    bound: float

    def to_json(self) -> dict[str, Any]:
        return {
            "precision": self.text,
            "error": self.error,
            "bound": self.bound,
            "layers": [layer.to_json() for layer in self.layers],
        }


def choose_precision(
    graph: Graph, session: Session, samples: Samples | None = None
) -> AutomaticPrecision:
    """The precision chosen for `graph`.

    samples: inputs by name, of the expected sizes; default: random inputs.
    """
    plain = before_target(expected_graph(graph), session)
    inputs = dict(random_inputs(plain) if samples is None else samples)
    here = Session.of(replace(session.options, target="native", precision="f32"))
    choice = low_choice(session)
    candidates = [_candidate(plain, low, choice) for low in LOW_TYPES.values()]
    chosen = AutomaticPrecision("f32", _layers(plain, {}, {}, None), 0.0, 0.0)
    for low, forms, _ in sorted(candidates, key=lambda c: c[2], reverse=True):
        if not forms:
            continue
        errors = _own_errors(plain, forms, low, inputs, here)
        bound = session.options.bound(low.name)
        kept, error = _inside(plain, errors, low, choice, inputs, bound, here)
        chosen = AutomaticPrecision(
            named(dict.fromkeys(kept, low.name), all_of=forms) if kept else "f32",
            _layers(plain, forms, errors, low.name, kept),
            error,
            bound,
        )
        if kept:
            break
    return chosen


def decided(request: Request) -> tuple[Request, AutomaticPrecision]:
    """The request with the types chosen for "auto", and the reasons for them."""
    session = Session.of(replace(request.options, precision="f32"))
    graph = load_graph(request, session)
    check_precision(graph, replace(session, options=request.options))
    chosen = choose_precision(graph, session, request.samples)
    options = replace(request.options, precision=chosen.text)
    return replace(request, options=options, samples=None), chosen


Candidate = tuple[DType, dict[str, Form], tuple[int, int, int]]


def _candidate(graph: Graph, low: DType, choice: Choice) -> Candidate:
    """The products that a low type makes faster, by name, and a rank by which types are compared.
    The rank is the multiply-adds by instructions for the type, then the weights that become low,
    then the width of the type.
    """
    forms: dict[str, Form] = {}
    added = weights = 0
    for n, factor in _products(graph):
        form = choice(n, factor, low, constant_bytes(graph))
        if form is None:
            continue
        forms[n.loc] = form
        size = expected_size(n.inputs[factor].shape)
        weights += size
        if form == "operands":
            added += size * expected_size(n.outputs[0].shape)
    return low, forms, (added, weights, {"f16": 10, "bf16": 7}[low.name])


def _products(graph: Graph) -> list[tuple[Node, int]]:
    """The f32 products with a constant operand, and the operand's index.  Products inside control
    flow are left out.
    """
    factors = ((n, constant_factor(n, graph.constant.__contains__)) for n in graph.nodes)
    return [(n, factor) for n, factor in factors if factor is not None]


def _layers(
    graph: Graph,
    forms: Mapping[str, Form],
    errors: Mapping[str, float],
    low: str | None,
    kept: Sequence[str] = (),
) -> tuple[Layer, ...]:
    names = dict.fromkeys(n.loc for n, _ in _products(graph))
    return tuple(
        Layer(name, low if low and name in kept else "f32", forms.get(name), errors.get(name))
        for name in names
    )


def _inside(
    graph: Graph,
    errors: Mapping[str, float],
    low: DType,
    choice: Choice,
    inputs: Samples,
    bound: float,
    here: Session,
) -> tuple[list[str], float]:
    """The largest set of layers, added by ascending error, for which the outputs stay within the
    bound.  The second result is the error of the outputs for this set.
    """
    order = sorted((n for n in errors if errors[n] <= bound), key=lambda n: errors[n])
    wanted = _run(graph, inputs, here)

    def error(count: int) -> float:
        kept = set(order[:count])
        changed = low_precision(graph, lambda name: low if name in kept else None, choice)
        outputs = _run(changed, inputs, here)
        return max((relative_error(outputs[k], wanted[k]) for k in wanted), default=0.0)

    inside, outside, best = 0, len(order) + 1, 0.0
    count = len(order)
    while outside - inside > 1:
        e = error(count)
        if e <= bound:
            inside, best = count, e
        else:
            outside = count
        count = (inside + outside) // 2
    return order[:inside], best


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference relative to the largest magnitude; infinite if one of the values is
    NaN.
    """
    a, b = (np.asarray(v, np.float64) for v in (found, wanted))
    if not a.size:
        return 0.0
    off = float(np.abs(a - b).max())
    return off / (float(np.abs(b).max()) or 1.0) if np.isfinite(off) else float("inf")


def _own_errors(
    graph: Graph, forms: Mapping[str, Form], low: DType, inputs: Samples, here: Session
) -> dict[str, float]:
    """The error that each product alone causes, by the product's name.  If several products share a
    name, the largest of their errors.
    """
    constants, nodes = list(graph.constants), list(graph.nodes)
    outputs: list[Value] = []

    def add(op: Op, *operands: Value) -> Value:
        (type_,) = infer(op, tuple(v.type for v in operands))
        nodes.append(Node(op, operands, (Value("", type_),)))
        return nodes[-1].outputs[0]

    measured = [(n, factor) for n, factor in _products(graph) if n.loc in forms]
    for n, factor in measured:
        assert isinstance(n.op, (MatMul, Conv))
        operands = list(n.inputs)
        with np.errstate(over="ignore"):
            rounded = graph.constant[operands[factor]].data.read().astype(low.numpy)
        operands[factor] = Value("", replace(operands[factor].type, dtype=low))
        constants.append(Constant(operands[factor], Data.of(rounded)))
        if forms[n.loc] == "operands":
            operands[1 - factor] = add(Cast(low), operands[1 - factor])
        difference = add(Sub(), add(replace(n.op, to=f32), *operands), n.outputs[0])
        outputs += [add(ReduceMax(), add(Abs(), v)) for v in (difference, n.outputs[0])]
    names = tuple(map(str, range(len(outputs))))
    whole = replace(
        graph, constants=tuple(constants), nodes=tuple(nodes), outputs=tuple(outputs),
        output_names=names, in_place=(),
    )  # fmt: skip
    maxima = [float(np.max(v)) for v in _run(whole, inputs, here).values()]
    errors: dict[str, float] = {}
    for (n, _), off, size in zip(measured, maxima[::2], maxima[1::2], strict=True):
        e = off / (size or 1.0) if np.isfinite(off) else float("inf")
        errors[n.loc] = max(e, errors.get(n.loc, 0.0))
    return errors


def _run(graph: Graph, inputs: Samples, session: Session) -> dict[str, np.ndarray]:
    """The outputs of a graph, computed on this machine in the graph's own types."""
    program = compile_program(replace(graph, in_place=()), session)
    return placed(program, session.options).run(inputs)
