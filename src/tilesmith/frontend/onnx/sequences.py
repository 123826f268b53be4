"""ONNX's sequences of tensors and optional values, resolved during import.

The length of a sequence and the positions in it are known then, so that only its tensors remain in
the graph.
"""

from __future__ import annotations

from tilesmith.frontend.common.slots import ABSENT, Absent, Result, Slot, TensorList, kind_of
from tilesmith.frontend.onnx.control import graph_attribute, results_of
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ops import shape, slicing

_LARGEST = 1 << 12
"""Most tensors of a sequence."""


def _list(n: OnnxNode, index: int = 0) -> TensorList:
    found = n.slot(index)
    if not isinstance(found, TensorList):
        n.bad(f"expected a sequence as input number {index + 1}, found {kind_of(found)}")
    return found


def _position(n: OnnxNode, index: int, length: int, default: int) -> int:
    """A position in a sequence, given by input number `index`; negative counts from the end."""
    given = n.optional(index)
    at_ = default if given is None else int(n.scalar(given, "position"))
    if not -length <= at_ < max(length, default + 1):
        n.bad(f"position: expected one of {length} tensors, found {at_}")
    return at_ + length if at_ < 0 else at_


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(n: OnnxNode) -> Result:
    return TensorList((), element_type(n.attr_int("dtype", 1), "attribute 'dtype'"))


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(n: OnnxNode) -> Result:
    items = n.inputs
    if not items or len({v.dtype for v in items}) != 1:
        n.bad(f"expected tensors of one type, found {', '.join(str(v.type) for v in items)}")
    return TensorList(items, items[0].dtype)


@onnx_op("SequenceInsert", since=11)
def sequence_insert(n: OnnxNode) -> Result:
    given, item = _list(n), n.input(1)
    if item.dtype is not given.dtype:
        n.bad(f"expected a tensor of {given.dtype}, found {item.type}")
    if len(given.items) >= _LARGEST:
        n.unsupported(f"a sequence of more than {_LARGEST} tensors")
    at_ = _position(n, 2, len(given.items), len(given.items))
    return TensorList((*given.items[:at_], item, *given.items[at_:]), given.dtype)


@onnx_op("SequenceErase", since=11)
def sequence_erase(n: OnnxNode) -> Result:
    given = _list(n)
    at_ = _position(n, 1, len(given.items), -1)
    return TensorList(given.items[:at_] + given.items[at_ + 1 :], given.dtype)


@onnx_op("SequenceAt", since=11)
def sequence_at(n: OnnxNode) -> Result:
    given = _list(n)
    n.input(1)
    return given.items[_position(n, 1, len(given.items), -1)]


@onnx_op("SequenceLength", since=11)
def sequence_length(n: OnnxNode) -> Result:
    return n.const(len(_list(n).items), i64)


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(n: OnnxNode) -> Result:
    items, stacked = _list(n).items, n.attr_flag("new_axis")
    if not items:
        n.bad("expected at least one tensor, found an empty sequence")
    axis = n.axis(n.attr_int("axis"), items[0].type.rank + stacked)
    if stacked:
        items = tuple(n.add(shape.Unsqueeze((axis,)), v) for v in items)
    return n.add(slicing.Concat(axis), *items)


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(n: OnnxNode) -> Result:
    x, split = n.input(0), n.optional(1)
    axis = n.axis(n.attr_int("axis", 0), x.type.rank)
    keep = n.attr_flag("keepdims", True)
    extent = n.shape(x)[axis]
    sizes: tuple[int, ...] = (1,) * extent
    if split is not None:
        keep = True  # the attribute is only about parts of one
        sizes = n.int_list(split, "split")
        if not n.shape(split):
            (part,) = sizes
            if part < 1:
                n.bad(f"split: expected at least 1, found {part}")
            sizes = tuple(min(part, extent - i) for i in range(0, extent, part))
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        n.bad(f"split: expected sizes that add up to {extent}, found {list(sizes)}")
    if len(sizes) > _LARGEST:
        n.unsupported(f"a sequence of more than {_LARGEST} tensors")
    if not sizes:
        return TensorList((), x.dtype)
    parts = n.add(slicing.Split(axis, sizes), x)
    parts = parts if isinstance(parts, tuple) else (parts,)
    if not keep:
        parts = tuple(n.add(shape.Squeeze((axis,)), p) for p in parts)
    return TensorList(parts, x.dtype)


@onnx_op("SequenceMap", since=17)
def sequence_map(n: OnnxNode) -> Result:
    body, given = graph_attribute(n, "body"), n.slots
    steps = len(_list(n).items)
    if any(isinstance(s, TensorList) and len(s.items) != steps for s in given):
        n.bad(f"expected sequences of {steps} tensors, found {', '.join(map(kind_of, given))}")
    if not steps:
        n.unsupported("a map over an empty sequence (the types of its results are unknown)")
    collected: list[list[Value]] = [[] for _ in body.output]
    for step in range(steps):
        arguments = [s.items[step] if isinstance(s, TensorList) else s for s in given]
        results = results_of(n.inline(body, arguments, f"{n.loc}.{step}"))
        for found, value in zip(collected, results, strict=True):
            if not isinstance(value, Value):
                n.unsupported(f"a map that gives {kind_of(value)} for each element")
            found.append(value)
    return tuple(TensorList(tuple(found), found[0].dtype) for found in collected)


@onnx_op("Optional", since=15)
def optional(n: OnnxNode) -> Result:
    n.ignore("type")
    given = n.slots
    return ABSENT if not given or given[0] is None else given[0]


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(n: OnnxNode) -> Result:
    given = n.slots
    return n.const(bool(given) and _is_there(given[0]), bool_)


@onnx_op("OptionalGetElement", since=15)
def optional_get_element(n: OnnxNode) -> Result:
    given = n.slot(0)
    if not _is_there(given):
        n.bad("expected an optional value that is there, found none")
    return given


def _is_there(slot: Slot) -> bool:
    return slot is not None and not isinstance(slot, Absent)
