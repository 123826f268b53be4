"""TFLite's operators on resource variables."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.slots import Resource, Result, Slot
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op


def _resource(n: TfliteNode) -> Resource:
    slot = n.slots[0] if n.slots else None
    return slot if isinstance(slot, Resource) else n.bad("expected a variable's handle, found none")


@stored_op("VAR_HANDLE")
def var_handle(n: TfliteNode) -> Slot:
    return Resource(n.option("shared_name") or n.option("container") or "variable")


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
