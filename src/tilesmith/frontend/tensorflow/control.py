"""TensorFlow's calls of functions, branches, loops, and nodes that return their operand."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.branches import branched, results_of, selected
from tilesmith.frontend.common.host_values import string_constant
from tilesmith.frontend.common.slots import Reserved, Resource, Result, Slot
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.tensorflow.lists import begun
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import tf_op
from tilesmith.frontend.tensorflow.schema import RESOURCE
from tilesmith.frontend.tensorflow.tensors import contents
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data, Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_


@tf_op("Const")
def const(n: TfNode) -> Result:
    tensor = n.stated("value", "tensor")
    if tensor is None:
        n.bad("expected attribute 'value', found none")
    array = contents(tensor, f"node {n.loc!r}")
    if array.dtype == object:
        return string_constant(n.builder, array, n.label)
    return n.builder.lazy_constant(array_type(array), Data.of(array), n.label)


@tf_op(
    "Identity", "Snapshot", "StopGradient", "PreventGradient", "CheckNumerics", "EnsureShape",
    "PlaceholderWithDefault", "Enter", "RefEnter", "RefIdentity", "DeepCopy", "CopyHost",
)  # fmt: skip
def identity(n: TfNode) -> Slot:
    slot = n.slots[0] if n.slots else n.bad("expected an input, found none")
    is_read = isinstance(slot, Resource) and n.stated("T", "type") not in (None, RESOURCE)
    return n.read(slot) if is_read and isinstance(slot, Resource) else slot


@tf_op("IdentityN")
def identities(n: TfNode) -> Result:
    return n.slots


@tf_op("NoOp", "ControlTrigger", "DisableCopyOnRead")
def nothing(n: TfNode) -> Result:
    return ()


@tf_op("Placeholder")
def placeholder(n: TfNode) -> Result:
    n.bad("a placeholder that is no input of the signature is read")


@tf_op("PartitionedCall", "StatefulPartitionedCall", "RemoteCall")
def call(n: TfNode) -> Result:
    return results_of(n.inline(n.function("f"), n.slots, n.loc))


def _truth(n: TfNode, x: Value) -> Value:
    """A condition as one bool.  A scalar is true if it is not 0, a tensor if it has elements."""
    if not x.type.rank:
        return x if x.dtype is bool_ else x.differs(0)
    return n.of_dims((extents.product(x.type.shape),), ()).differs(0)


@tf_op("If", "StatelessIf")
def if_(n: TfNode) -> Result:
    branches = n.function("then_branch"), n.function("else_branch")
    return branched(n, _truth(n, n.input(0)), branches, n.slots[1:])


@tf_op("Case", "StatelessCase")
def case(n: TfNode) -> Result:
    stated = n.stated("branches", "list")
    names = [f.name for f in stated.func] if stated is not None else []
    return selected(n, n.input(0), names, n.slots[1:])


@tf_op("While", "StatelessWhile")
def while_(n: TfNode) -> Result:
    condition, step = n.function("cond"), n.function("body")
    state = n.slots
    if any(isinstance(s, Reserved) for s in state):
        state = begun(n, step, state)
    return repeated(n, condition, step, state)


@tf_op("LoopCond")
def loop_condition(n: TfNode) -> Result:
    return n.input(0)


@tf_op("VarHandleOp", "VariableV2", "Variable", "TemporaryVariable")
def variable(n: TfNode) -> Slot:
    return Resource(n.node.name)


@tf_op("ReadVariableOp")
def read_variable(n: TfNode) -> Result:
    return n.read(n.resource())


@tf_op("AssignVariableOp", "Assign")
def assign(n: TfNode) -> Slot:
    n.write(n.resource(), n.input(1))
    return n.resource()


@tf_op("AssignAddVariableOp", "AssignAdd")
def assign_sum(n: TfNode) -> Slot:
    n.write(n.resource(), n.read(n.resource()) + n.input(1))
    return n.resource()


@tf_op("AssignSubVariableOp", "AssignSub")
def assign_difference(n: TfNode) -> Slot:
    n.write(n.resource(), n.read(n.resource()) - n.input(1))
    return n.resource()


@tf_op("VarIsInitializedOp", "IsVariableInitialized")
def is_initialized(n: TfNode) -> Result:
    return n.const(np.True_)
