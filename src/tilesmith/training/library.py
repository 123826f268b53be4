"""A C library that trains: the graph of a step whose states an instance keeps, and a header with
functions for steps and checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilesmith.graph.nodes import Data, Graph
from tilesmith.ir.dtypes import f64
from tilesmith.runtime.standalone.tables import template
from tilesmith.runtime.weights import safetensors_header


def with_states(step: Graph, states: Mapping[str, np.ndarray]) -> Graph:
    """The graph of a step that keeps its states from run to run, as its last inputs.

    states: their first values, by name.
    """
    inputs = sorted(step.inputs, key=lambda v: v.name in states)
    homes = tuple((o, inputs.index(step.inputs[i])) for o, i in step.in_place)
    held = [(n, v.name) for n, v in enumerate(inputs) if v.name in states]
    defaults = tuple((n, Data.of(states[name].copy())) for n, name in held)
    return replace(step, inputs=tuple(inputs), in_place=homes, defaults=defaults)


def train_header(name: str, step: Graph, checkpoint: Mapping[str, np.ndarray]) -> str:
    """The text of NAME_train.h.

    step: the graph of `with_states`.
    checkpoint: the arrays of a checkpoint, the states first.
    """
    place = {step.inputs[i].name: o for o, i in step.in_place}
    states = [n for n in checkpoint if n in place]
    rest = sum(a.nbytes for n, a in checkpoint.items() if n not in place)
    return template(
        "train.h", name, COUNT=str(len(step.inputs) - len(step.defaults)),
        CHECKPOINT=_literal(safetensors_header(checkpoint).decode()),
        STATES=", ".join(str(place[n]) for n in states),
        TYPE="double" if step.outputs[0].dtype is f64 else "float", REST=str(rest),
    )  # fmt: skip


def _literal(text: str, width: int = 80) -> str:
    """A C string, in several lines."""
    parts = [text[i : i + width] for i in range(0, len(text), width)]
    return "\n".join(f"    {json.dumps(part)}" for part in parts)
