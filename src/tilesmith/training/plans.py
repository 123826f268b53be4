"""The programs of a training, for one size of batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilesmith.driver.entry import compile
from tilesmith.graph.nodes import Graph
from tilesmith.ir.types import TensorType
from tilesmith.runtime.executable import Executable
from tilesmith.support.options import Options

from .step import Recipe, loss_graph, step_graph


@dataclass(slots=True)
class Plan:
    """The programs for one size of batch, each compiled at its first use.

    model: the model for this size.
    inference: the same in inference, where normalisations take the running statistics.
    labels: the type of the labels.
    names: the trained weights.
    held: the constants of `inference` that training changes.
    recipe: what a step does.
    options: of the compiler.
    """

    model: Graph
    inference: Graph
    labels: TensorType
    names: Sequence[str]
    held: Sequence[str]
    recipe: Recipe
    options: Options
    _steps: dict[bool, Executable] = field(default_factory=dict)
    _evaluation: Executable | None = None

    def training(self, is_last: bool) -> Executable:
        """The step of a batch; `is_last`: the last one of those whose gradients are added."""
        is_last = is_last and not self.recipe.is_apart
        if is_last not in self._steps:
            graph = step_graph(self.model, self.names, self.recipe, self.labels, is_last)
            self._steps[is_last] = compile(graph, options=self.options)
        return self._steps[is_last]

    def evaluation(self) -> Executable:
        """The loss and the metrics of a batch."""
        if self._evaluation is None:
            graph = loss_graph(self.inference, self.held, self.recipe, self.labels)
            count = 1 + len(self.recipe.metrics)
            graph = replace(
                graph, outputs=graph.outputs[:count], output_names=graph.output_names[:count]
            )
            self._evaluation = compile(graph, options=self.options)
        return self._evaluation
