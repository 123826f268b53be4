"""The graphs of training: one training step, and the loss of a batch without training.

Inputs are the model's inputs, the labels and the states.  States are the weights, their moments,
values that the model keeps (running statistics) and the number of steps.  Outputs are the loss, the
metrics and, of a training step, the new states, each of which lives in the memory of its input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.differentiate import differentiate
from tilesmith.ir.dtypes import f64, i64, u32
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Cast
from tilesmith.ops.random import is_random

from .losses import Loss
from .optimizers import Optimizer, clipped
from .schedules import scheduled

STEP = "train.step"
"""The state that counts steps, an i64 scalar."""
_COUNT = TensorType(i64, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a training step does.

    loss, optimizer: the formulas.
    clip_norm: limit of the norm of all gradients together.
    output: the number of the model's output with the predictions.
    metrics: names of metrics besides the loss; methods of the loss.
    """

    loss: Loss
    optimizer: Optimizer
    clip_norm: float | None
    output: int
    metrics: tuple[str, ...]


def moment_name(weight: str, moment: str) -> str:
    """The name of a weight's moment among the states."""
    return f"train.{moment}.{weight}"


def labels_name(model: Graph) -> str:
    """The name of the labels among the inputs of training graphs."""
    name = "labels"
    while any(v.name == name for v in (*model.inputs, *(c.value for c in model.constants))):
        name = f"_{name}"
    return name


def kept_values(model: Graph) -> list[tuple[Value, Value]]:
    """The values that a model keeps from call to call: input and output of each."""
    held = {i for i, _ in model.defaults}
    return [(model.inputs[i], model.outputs[o]) for o, i in model.in_place if i in held]


def drawing(model: Graph) -> Graph:
    """The model with other random numbers in each step: STEP, a further input, numbers the drawings
    of its nodes.  A model without such nodes stays as it is.
    """
    drawn = [n for n in model.nodes if is_random(n.op) and not n.inputs]
    if not drawn:
        return model
    step, number = Value(STEP, _COUNT), Value("drawing", TensorType(u32, ()))
    nodes = [replace(n, inputs=(number,)) if n in drawn else n for n in model.nodes]
    count = Node(Cast(u32), (step,), (number,))
    return replace(model, inputs=(*model.inputs, step), nodes=(count, *nodes))


def loss_graph(model: Graph, weights: Sequence[str], recipe: Recipe) -> Graph:
    """The loss and the metrics of a batch, and the new values that the model keeps.

    Inputs are those of the model, the labels, then the constants named in `weights`.
    """
    b = Builder(model.name)
    inputs = {v: b.input(v.name, v.type) for v in model.inputs}
    predictions = model.outputs[recipe.output]
    labels = b.input(labels_name(model), recipe.loss.labels(predictions.type))
    constants = {c.value.name: c.value for c in model.constants}
    inputs.update({constants[n]: b.input(n, constants[n].type) for n in weights})
    values = b.include(model, inputs)
    found = values[predictions]
    results = {"loss": recipe.loss.value(found, labels)}
    results |= {name: getattr(recipe.loss, name)(found, labels) for name in recipe.metrics}
    results |= {v.name: values[new] for v, new in kept_values(model)}
    return dce(b.finish([*results.values()], [*results]))


def step_graph(model: Graph, weights: Sequence[str], recipe: Recipe) -> Graph:
    """One training step of a model whose sizes are known.

    weights: names of the constants that are trained.

    Raises UnsupportedError, which names each node without a gradient.
    """
    forward = loss_graph(drawing(model), weights, recipe)
    by_name = {v.name: v for v in forward.inputs}
    graph = differentiate(forward, (0,), [by_name[name] for name in weights])
    b = Builder(model.name)
    inputs = {v: b.input(v.name, v.type) for v in graph.inputs}
    values = b.include(graph, inputs)
    outputs = [values[v] for v in graph.outputs]
    first = len(outputs) - len(weights)
    before = {v.name: new for v, new in inputs.items()}
    after = dict(zip(forward.output_names, outputs[:first], strict=True))
    gradients = dict(zip(weights, outputs[first:], strict=True))
    done = before.get(STEP) or b.input(STEP, _COUNT)
    after |= _updated(b, done, {n: (before[n], g) for n, g in gradients.items()}, recipe)
    made = b.finish([*after.values()], [*after])
    places = {v.name: i for i, v in enumerate(made.inputs)}
    homes = tuple((o, places[n]) for o, n in enumerate(after) if n in places)
    names = [f"new_{n}" if n in places else n for n in after]
    return replace(made, in_place=homes, output_names=tuple(names))


def _updated(
    b: Builder, done: Value, pairs: Mapping[str, tuple[Value, Value]], recipe: Recipe
) -> dict[str, Value]:
    """The new states by name, after a step with the weights and gradients in `pairs`.

    done: the steps before.
    """
    optimizer = recipe.optimizer
    gradients = [g for _, g in pairs.values()]
    if recipe.clip_norm is not None:
        gradients = clipped(gradients, recipe.clip_norm)
    count = done.cast(f64)
    rate = scheduled(optimizer.rate).at(count)
    after: dict[str, Value] = {STEP: done + 1}
    for (name, (w, _)), g in zip(pairs.items(), gradients, strict=True):
        names = [moment_name(name, m) for m in optimizer.moments]
        moments = tuple(b.input(n, w.type) for n in names)
        after[name], new = optimizer.update(w, g, moments, rate, count + 1.0)
        after.update(zip(names, new, strict=True))
    return after
