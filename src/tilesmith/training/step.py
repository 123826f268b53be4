"""The graphs of training: one training step, and the loss of a batch without training.

Inputs are the model's inputs, the labels and the states.  States are the weights, their moments,
sums of gradients, values that the model keeps (running statistics) and the number of batches.
Outputs are the loss, the metrics and, of a training step, the new states, each of which lives in
the memory of its input.  A loss that is not finite leaves all states as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.graph.builder import Builder
from tilesmith.graph.control import graphs_in
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.differentiate import differentiate
from tilesmith.graph.passes.low_precision import low_products
from tilesmith.ir.dtypes import DType, f64, i64, u32
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Cast
from tilesmith.ops.functions import floor, where
from tilesmith.ops.gradients import zeros
from tilesmith.ops.random import is_random
from tilesmith.support.errors import UnsupportedError

from .faults import named_node
from .losses import Loss
from .optimizers import Optimizer, clipped
from .schedules import scheduled

STEP = "train.step"
"""The state that counts batches, an i64 scalar."""
_SUM = "sum"
"""The moment of a weight that holds the sum of gradients."""
_COUNT = TensorType(i64, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a training step does.

    loss, optimizer: the formulas.
    clip_norm: limit of the norm of all gradients together.
    accumulate: the number of batches whose gradients an optimiser step averages.
    is_apart: whether a program of its own changes the weights, after gradients were averaged over
        processes.
    output: the number of the model's output with the predictions.
    metrics: names of metrics besides the loss; methods of the loss.
    low: the type of products' operands in a step; None for their own.
    """

    loss: Loss
    optimizer: Optimizer
    clip_norm: float | None
    accumulate: int
    is_apart: bool
    output: int
    metrics: tuple[str, ...]
    low: DType | None


def moments_of(recipe: Recipe) -> tuple[str, ...]:
    """The names of the tensors that are kept for each weight, all 0 at first."""
    return (*recipe.optimizer.moments, *([_SUM] if has_sums(recipe) else []))


def has_sums(recipe: Recipe) -> bool:
    """Whether sums of gradients are states."""
    return recipe.accumulate > 1 or recipe.is_apart


def moment_name(weight: str, moment: str) -> str:
    """The name of a weight's moment among the states."""
    return f"train.{moment}.{weight}"


def labels_name(model: Graph) -> str:
    """The name of the labels among the inputs of training graphs."""
    return _free("labels", model)


def _free(name: str, model: Graph) -> str:
    """The name, after as many underscores as set it apart from the model's inputs and constants."""
    taken = {v.name for v in (*model.inputs, *(c.value for c in model.constants))}
    while name in taken:
        name = f"_{name}"
    return name


def kept_values(model: Graph) -> list[tuple[Value, Value]]:
    """The values that a model keeps from call to call: input and output of each."""
    held = {i for i, _ in model.defaults}
    return [(model.inputs[i], model.outputs[o]) for o, i in model.in_place if i in held]


def draws(model: Graph) -> bool:
    """Whether nodes of the model draw random numbers."""
    return any(is_random(n.op) for g in graphs_in(model) for n in g.nodes)


def drawing(model: Graph) -> Graph:
    """The model with other random numbers in each step: STEP, a further input, numbers the drawings
    of its nodes.  A model without such nodes stays as it is.

    Raises UnsupportedError for random numbers in branches and loops.
    """
    inner = [n for g in graphs_in(model) if g is not model for n in g.nodes if is_random(n.op)]
    if inner:
        raise UnsupportedError(
            f"{', '.join(map(named_node, inner))}: expected random numbers to be drawn outside of "
            "branches and loops, whose nodes would draw the same in each step; draw them before "
            "the branch or loop and hand them in"
        )
    drawn = [n for n in model.nodes if is_random(n.op) and not n.inputs]
    if not drawn:
        return model
    step, number = Value(STEP, _COUNT), Value("drawing", TensorType(u32, ()))
    nodes = [replace(n, inputs=(number,)) if n in drawn else n for n in model.nodes]
    count = Node(Cast(u32), (step,), (number,))
    return replace(model, inputs=(*model.inputs, step), nodes=(count, *nodes))


def loss_graph(
    model: Graph, weights: Sequence[str], recipe: Recipe, labels_type: TensorType
) -> Graph:
    """The loss and the metrics of a batch, and the new values that the model keeps.

    Inputs are those of the model, the labels, then the constants named in `weights`.  The first
    output is the loss.
    """
    b = Builder(model.name)
    inputs = {v: b.input(v.name, v.type) for v in model.inputs}
    predictions = model.outputs[recipe.output]
    labels = b.input(labels_name(model), labels_type)
    constants = {c.value.name: c.value for c in model.constants}
    inputs.update({constants[n]: b.input(n, constants[n].type) for n in weights})
    values = b.include(model, inputs)
    found = values[predictions]
    measures = {"loss": recipe.loss.value(found, labels)}
    measures |= {name: getattr(recipe.loss, name)(found, labels) for name in recipe.metrics}
    results = {_free(name, model): value for name, value in measures.items()}
    results |= {v.name: values[new] for v, new in kept_values(model)}
    return dce(b.finish([*results.values()], [*results]))


def step_graph(
    model: Graph,
    weights: Sequence[str],
    recipe: Recipe,
    labels_type: TensorType,
    is_last: bool = True,
) -> Graph:
    """One training step of a model whose sizes are known.

    weights: names of the constants that are trained.
    is_last: whether the step changes the weights: its batch is the last one of those whose
        gradients are averaged, and no other program changes them (`update_graph`).

    Raises UnsupportedError, which names each node without a gradient.
    """
    forward = loss_graph(drawing(model), weights, recipe, labels_type)
    by_name = {v.name: v for v in forward.inputs}
    graph = differentiate(forward, (0,), [by_name[name] for name in weights])
    b = Builder(model.name)
    inputs = {v: b.input(v.name, v.type) for v in graph.inputs}
    values = b.include(graph, inputs)
    outputs = [values[v] for v in graph.outputs]
    first = len(outputs) - len(weights)
    before = {v.name: new for v, new in inputs.items()}

    def state(name: str, type: TensorType) -> Value:
        """A state before the step."""
        if name not in before:
            before[name] = b.input(name, type)
        return before[name]

    after = dict(zip(forward.output_names, outputs[:first], strict=True))
    gradients = dict(zip(weights, outputs[first:], strict=True))
    count = state(STEP, _COUNT)
    if has_sums(recipe):
        for name, g in gradients.items():
            total = moment_name(name, _SUM)
            gradients[name] = state(total, g.type) + g * (1 / recipe.accumulate)
            after[total] = zeros(b, g.type) if is_last else gradients[name]
    if is_last:
        pairs = {n: (before[n], g) for n, g in gradients.items()}
        after |= _updated(state, count.cast(f64), pairs, recipe)
    after[STEP] = count + 1
    is_finite = abs(after[forward.output_names[0]]) < math.inf
    after |= {n: where(is_finite, new, before[n]) for n, new in after.items() if n in before}
    made = _in_place(b, after)
    return made if recipe.low is None else low_products(made, recipe.low)


def update_graph(name: str, types: Mapping[str, TensorType], recipe: Recipe) -> Graph:
    """The new weights and moments after the last of the batches whose gradients are averaged.

    types: of the weights, by name.
    """
    b, before = Builder(name), {}

    def state(name: str, type: TensorType) -> Value:
        if name not in before:
            before[name] = b.input(name, type)
        return before[name]

    pairs = {n: (state(n, t), state(moment_name(n, _SUM), t)) for n, t in types.items()}
    count = state(STEP, _COUNT).cast(f64) - 1.0
    after = _updated(state, count, pairs, recipe)
    after |= {moment_name(n, _SUM): zeros(b, t) for n, t in types.items()}
    return _in_place(b, after)


def sums_of(weights: Sequence[str]) -> list[str]:
    """The names of the states that hold sums of gradients."""
    return [moment_name(n, _SUM) for n in weights]


def _in_place(b: Builder, after: Mapping[str, Value]) -> Graph:
    """The graph of values after a step, of which each state lives in the memory of its input."""
    made = b.finish([*after.values()], [*after])
    places = {v.name: i for i, v in enumerate(made.inputs)}
    homes = tuple((o, places[n]) for o, n in enumerate(after) if n in places)
    names = [f"new_{n}" if n in places else n for n in after]
    return replace(made, in_place=homes, output_names=tuple(names))


def _updated(
    state: Callable[[str, TensorType], Value],
    count: Value,
    pairs: Mapping[str, tuple[Value, Value]],
    recipe: Recipe,
) -> dict[str, Value]:
    """The new weights and moments by name, after a step with the weights and gradients in `pairs`.

    state: gives a state before the step.
    count: the number of batches before, an f64 scalar.
    """
    optimizer = recipe.optimizer
    gradients = [g for _, g in pairs.values()]
    if recipe.clip_norm is not None:
        gradients = clipped(gradients, recipe.clip_norm)
    if recipe.accumulate > 1:
        count = floor(count / float(recipe.accumulate))
    rate = scheduled(optimizer.rate).at(count)
    after: dict[str, Value] = {}
    for (name, (w, _)), g in zip(pairs.items(), gradients, strict=True):
        names = [moment_name(name, m) for m in optimizer.moments]
        moments = tuple(state(n, w.type) for n in names)
        after[name], new = optimizer.update(w, g, moments, rate, count + 1.0)
        after.update(zip(names, new, strict=True))
    return after
