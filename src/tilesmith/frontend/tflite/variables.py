"""TFLite's operators on resource variables."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.flatbuffer import Table
from tilesmith.frontend.common.slots import Resource, Result, Slot
from tilesmith.frontend.tflite.model import Model
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op

_ANY = ""
"""The name that stands for a variable whose handle comes from another subgraph."""


def handle_name(options: Table | None) -> str:
    """The name of the variable to which a `VAR_HANDLE` with these options refers."""
    return (options and (options.shared_name or options.container)) or "variable"


def written(model: Model) -> frozenset[str]:
    """The names of the variables that the model's subgraphs write.

    Subgraphs that `CALL_ONCE` calls do not count: they run only before the first run.
    """
    names: set[str] = set()
    every: set[str] = set()
    begins = {
        o.options.init_subgraph_index
        for graph in model.subgraphs
        for o in graph.operators
        if o.kind == "CALL_ONCE" and o.options is not None
    }
    for number, graph in enumerate(model.subgraphs):
        handles: dict[int, str] = {}
        for o in graph.operators if number not in begins else ():
            if o.kind == "VAR_HANDLE":
                every.add(handle_name(o.options))
                handles |= dict.fromkeys(o.outputs, handle_name(o.options))
            elif o.kind == "ASSIGN_VARIABLE" and o.inputs:
                names.add(handles.get(o.inputs[0], _ANY))
    return frozenset(every if _ANY in names else names)


def _resource(n: TfliteNode) -> Resource:
    slot = n.slot(0)
    return slot if isinstance(slot, Resource) else n.bad("expected a variable's handle, found none")


@stored_op("VAR_HANDLE")
def var_handle(n: TfliteNode) -> Slot:
    return Resource(handle_name(n.operator.options))


@stored_op("READ_VARIABLE")
def read_variable(n: TfliteNode) -> Result:
    name, tensor = _resource(n).name, n.output_tensor()
    zeros = np.zeros(tensor.shape, tensor.dtype.numpy)
    return n.states.read(n.builder, name, name, zeros)


@stored_op("ASSIGN_VARIABLE")
def assign_variable(n: TfliteNode) -> Result:
    name = _resource(n).name
    n.states.write(n.builder, name, name, n.input(1))
    return ()


@stored_op("CALL_ONCE")
def call_once(n: TfliteNode) -> Result:
    outer, n.states.is_beginning = n.states.is_beginning, True
    try:
        n.inline(n.option("init_subgraph_index"), (), n.loc)
    finally:
        n.states.is_beginning = outer
    return ()
