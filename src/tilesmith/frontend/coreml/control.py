"""Core ML's branches, loops, lists and states."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.branches import branched, one
from tilesmith.frontend.common.slots import Resource, Result
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.frontend.coreml.registry import mil_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i32
from tilesmith.ops import gather, reduce, scatter


@mil_op("cond")
def cond(n: MilNode) -> Result:
    if len(n.blocks) != 2:
        n.bad(f"expected two blocks, found {len(n.blocks)}")
    return branched(n, n.input("pred"), (n.blocks[0], n.blocks[1]))


@mil_op("while_loop")
def while_(n: MilNode) -> Result:
    if len(n.blocks) != 2:
        n.bad(f"expected two blocks, found {len(n.blocks)}")
    return repeated(n, n.blocks[0], n.blocks[1], n.slots("loop_vars"))


# A list becomes one tensor; its first axis numbers the elements.


@mil_op("make_list")
def make_list(n: MilNode) -> Result:
    shape = n.arguments.get("elem_shape")
    if isinstance(shape, (str, tuple)) and not isinstance(shape, Value):
        values = n.values("elem_shape") if isinstance(shape, tuple) else ()
        dims = tuple(n.int("_", n.scalar(v, "elem_shape")) for v in values)
    else:
        dims = n.ints("elem_shape")
    length = n.one_extent(n.input("init_length"), "init_length") if n.has("init_length") else 1
    zero = n.const(np.zeros((), n.dtype("dtype", "fp32").numpy))
    return n.expand(zero, (length, *dims))


@mil_op("list_length")
def list_length(n: MilNode) -> Result:
    return n.of_dims(n.input("ls").type.shape[:1], ()).cast(i32)


@mil_op("list_read")
def list_read(n: MilNode) -> Result:
    return n.add(gather.Gather(0), n.input("ls"), one(n, n.input("index")))


@mil_op("list_gather")
def list_gather(n: MilNode) -> Result:
    return n.add(gather.Gather(0), n.input("ls"), n.input("indices"))


@mil_op("list_write")
def list_write(n: MilNode) -> Result:
    items, item = n.input("ls"), n.input("value")
    place = n.reshape(n.input("index"), (1, 1))
    return n.add(scatter.ScatterNd(), items, place, n.reshape(item, (1, *item.type.shape)))


@mil_op("list_scatter")
def list_scatter(n: MilNode) -> Result:
    items, places = n.input("ls"), n.input("indices")
    places = n.reshape(places, (*places.type.shape, 1))
    return n.add(scatter.ScatterNd(), items, places, n.input("value"))


# States


def _state(n: MilNode, name: str) -> str:
    (slot,) = n.slots(name) or (None,)
    return slot.name if isinstance(slot, Resource) else n.bad(f"{name}: expected a state")


@mil_op("read_state")
def read_state(n: MilNode) -> Result:
    name = _state(n, "input")
    return n.states.read(n.builder, name, name, np.zeros(0))


@mil_op("coreml_update_state")
def update_state(n: MilNode) -> Result:
    return _write(n, "state", "value")


@mil_op("write_state")
def write_state(n: MilNode) -> Result:
    return _write(n, "input", "data")


def _write(n: MilNode, state: str, value: str) -> Value:
    name, written = _state(n, state), n.input(value)
    n.states.write(n.builder, name, name, written)
    return written


@mil_op("classify")
def classify(n: MilNode) -> Result:
    """The index of the best class, and the probabilities.  Class labels are not part of a graph."""
    probabilities = n.input("probabilities")
    best = n.add(reduce.ArgMax(-1, False), probabilities)
    return best, probabilities
