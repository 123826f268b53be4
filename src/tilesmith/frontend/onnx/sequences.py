"""ONNX's sequences of tensors and optional values.

If the length of a sequence and the positions in it are known, the sequence is resolved during
import, and only its tensors remain in the graph.  Other sequences, optional values and maps are
values of the host (`frontend.common.host_values`).
"""

from __future__ import annotations

from tilesmith.frontend.common.branches import results_of
from tilesmith.frontend.common.host_values import (
    as_value,
    element,
    is_object,
    item_of,
    scalar,
    sequence_of,
    tensor_of,
)
from tilesmith.frontend.common.slots import ABSENT, Absent, Result, Slot, TensorList, kind_of
from tilesmith.frontend.onnx.control import graph_attribute
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import on_host
from tilesmith.frontend.onnx.registry import object_op, onnx_op
from tilesmith.frontend.onnx.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import bool_, f32, host_type, i64, string, unknown
from tilesmith.ir.types import TensorType
from tilesmith.ops import shape, slicing

_LARGEST = 1 << 12
"""Upper bound on the tensors of a sequence."""


def _list(n: OnnxNode, index: int = 0) -> TensorList:
    slot = n.slot(index)
    if not isinstance(slot, TensorList):
        n.bad(f"expected a sequence as input number {index + 1}, found {kind_of(slot)}")
    return slot


def _position(n: OnnxNode, index: int, length: int, default: int) -> int:
    """The position that input number `index` gives; a negative input counts from the end."""
    position = n.optional(index)
    at_ = default if position is None else int(n.scalar(position, "position"))
    if not -length <= at_ < max(length, default + 1):
        n.bad(f"position: expected one of {length} tensors, found {at_}")
    return at_ + length if at_ < 0 else at_


def _position_known(n: OnnxNode, index: int) -> bool:
    """Whether the position in input number `index` is known or omitted."""
    position = n.slot(index)
    return not isinstance(position, Value) or n.known(position) is not None


def _at_run_time(n: OnnxNode, position: int) -> Value | None:
    """The sequence as a host value; None if it and the position are known during import."""
    sequence = n.slot(0)
    if not isinstance(sequence, TensorList) and not is_object(sequence):
        n.bad(f"expected a sequence as input number 1, found {kind_of(sequence)}")
    if isinstance(sequence, TensorList) and _position_known(n, position):
        return None
    return as_value(n.builder, sequence, n.loc)


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(n: OnnxNode) -> Result:
    dtype = element_type(n.attr_int("dtype", 1), "attribute 'dtype'", strings=True)
    return TensorList((), dtype)


@onnx_op("SequenceConstruct", since=11)
@object_op("SequenceConstruct", since=11)
def sequence_construct(n: OnnxNode) -> Result:
    items = n.inputs
    if any(map(is_object, items)):
        return on_host(n, "sequence_construct", [scalar(sequence_of(items))], items)
    if not items or len({v.dtype for v in items}) != 1:
        n.bad(f"expected tensors of one type, found {', '.join(str(v.type) for v in items)}")
    return TensorList(items, items[0].dtype)


@onnx_op("SequenceInsert", since=11)
@object_op("SequenceInsert", since=11)
def sequence_insert(n: OnnxNode) -> Result:
    moving = _at_run_time(n, 2)
    if moving is not None or is_object(n.slot(1)):
        inputs = [n.slot(0), n.slot(1), *([] if n.slot(2) is None else [n.input(2)])]
        items = as_value(n.builder, n.slot(0), n.loc)
        return on_host(n, "sequence_insert", [items.type], [items, *inputs[1:]])
    sequence, item = _list(n), n.input(1)
    if item.dtype is not sequence.dtype:
        n.bad(f"expected a tensor of {sequence.dtype}, found {item.type}")
    if len(sequence.items) >= _LARGEST:
        n.unsupported(f"a sequence of more than {_LARGEST} tensors")
    at_ = _position(n, 2, len(sequence.items), len(sequence.items))
    return TensorList((*sequence.items[:at_], item, *sequence.items[at_:]), sequence.dtype)


@onnx_op("SequenceErase", since=11)
@object_op("SequenceErase", since=11)
def sequence_erase(n: OnnxNode) -> Result:
    moving = _at_run_time(n, 1)
    if moving is not None:
        inputs = [moving, *([] if n.slot(1) is None else [n.input(1)])]
        return on_host(n, "sequence_erase", [moving.type], inputs)
    sequence = _list(n)
    at_ = _position(n, 1, len(sequence.items), -1)
    return TensorList(sequence.items[:at_] + sequence.items[at_ + 1 :], sequence.dtype)


@onnx_op("SequenceAt", since=11)
@object_op("SequenceAt", since=11)
def sequence_at(n: OnnxNode) -> Result:
    moving = _at_run_time(n, 1)
    if moving is not None:
        sequence = n.slot(0)
        types = {v.type for v in sequence.items} if isinstance(sequence, TensorList) else set()
        same = len(types) == 1
        result = types.pop() if same else item_of(moving.dtype)
        return on_host(n, "sequence_at", [result], [moving, n.input(1)])
    sequence = _list(n)
    n.input(1)
    return sequence.items[_position(n, 1, len(sequence.items), -1)]


@onnx_op("SequenceLength", since=11)
@object_op("SequenceLength", since=11)
def sequence_length(n: OnnxNode) -> Result:
    if is_object(n.slot(0)):
        return on_host(n, "sequence_length", [TensorType(i64, ())], [n.input(0)])
    return n.const(len(_list(n).items), i64)


@onnx_op("ConcatFromSequence", since=11)
@object_op("ConcatFromSequence", since=11)
def concat_from_sequence(n: OnnxNode) -> Result:
    stacked = n.attr_flag("new_axis")
    if is_object(n.slot(0)):
        items = n.input(0)
        return on_host(
            n, "concat_from_sequence", [item_of(items.dtype)], [items],
            axis=n.attr_int("axis"), new_axis=stacked,
        )  # fmt: skip
    items = _list(n).items
    if not items:
        n.bad("expected at least one tensor, found an empty sequence")
    axis = n.axis(n.attr_int("axis"), items[0].type.rank + stacked)
    if stacked:
        items = tuple(n.add(shape.Unsqueeze((axis,)), v) for v in items)
    return n.add(slicing.Concat(axis), *items)


@onnx_op("SplitToSequence", since=11)
@object_op("SplitToSequence", since=11)
def split_to_sequence(n: OnnxNode) -> Result:
    x, split = n.input(0), n.optional(1)
    axis, keep = n.attr_int("axis", 0), n.attr_flag("keepdims", True)
    is_open = not x.type.is_static or (split is not None and n.known(split) is None)
    if is_open or is_object(x):
        inputs = [x] if split is None else [x, split]
        made = scalar(host_type("seq", element(x.dtype)))
        return on_host(n, "split_to_sequence", [made], inputs, axis=axis, keepdims=keep)
    axis = n.axis(axis, x.type.rank)
    extent = n.shape(x)[axis]
    sizes: tuple[int, ...] = (1,) * extent
    if split is not None:
        keep = True  # the attribute matters only when `split` is given
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
    body, slots = graph_attribute(n, "body"), n.all_slots
    steps = len(_list(n).items)
    if any(isinstance(s, TensorList) and len(s.items) != steps for s in slots):
        n.bad(f"expected sequences of {steps} tensors, found {', '.join(map(kind_of, slots))}")
    if not steps:
        n.unsupported("a map over an empty sequence (the types of its results are unknown)")
    collected: list[list[Value]] = [[] for _ in body.output]
    for step in range(steps):
        arguments = [s.items[step] if isinstance(s, TensorList) else s for s in slots]
        results = results_of(n.inline(body, arguments, f"{n.loc}.{step}"))
        for elements, value in zip(collected, results, strict=True):
            if not isinstance(value, Value):
                n.unsupported(f"a map that gives {kind_of(value)} for each element")
            elements.append(value)
    return tuple(TensorList(tuple(elements), elements[0].dtype) for elements in collected)


@onnx_op("Optional", since=15)
@object_op("Optional", since=15)
def optional(n: OnnxNode) -> Result:
    n.ignore("type")
    slots = n.all_slots
    return ABSENT if not slots or slots[0] is None else slots[0]


@onnx_op("OptionalHasElement", since=15)
@object_op("OptionalHasElement", since=15)
def optional_has_element(n: OnnxNode) -> Result:
    slots = n.all_slots
    if slots and isinstance(slots[0], Value) and _may_be_none(slots[0]):
        return on_host(n, "optional_has_element", [TensorType(bool_, ())], slots)
    return n.const(bool(slots) and _is_there(slots[0]), bool_)


@onnx_op("OptionalGetElement", since=15)
@object_op("OptionalGetElement", since=15)
def optional_get_element(n: OnnxNode) -> Result:
    slot = n.slot(0)
    if isinstance(slot, Value) and _may_be_none(slot):
        inner = slot.dtype.of[0] if slot.dtype.form == "optional" else slot.dtype
        result = scalar(inner if inner.is_host and inner is not string else tensor_of(inner))
        return on_host(n, "optional_get_element", [result], [slot])
    if not _is_there(slot):
        n.bad("expected an optional value that is there, found none")
    return slot


def _may_be_none(value: Value) -> bool:
    return value.dtype.form == "optional" or value.dtype is unknown


def _is_there(slot: Slot) -> bool:
    return slot is not None and not isinstance(slot, Absent)


@object_op("Identity", since=1)
def identity(n: OnnxNode) -> Result:
    return n.input(0)


@onnx_op("ZipMap", since=1, domain="ai.onnx.ml")
def zip_map(n: OnnxNode) -> Result:
    x = n.input(0)
    keys = n.attr_strings("classlabels_strings") or n.attr_ints("classlabels_int64s") or ()
    kind = string if keys and isinstance(keys[0], str) else i64
    made = scalar(host_type("seq", host_type("map", kind, f32)))
    return on_host(n, "zip_map", [made], [x], keys=list(keys))


@object_op("DictVectorizer", since=1, domain="ai.onnx.ml")
def dict_vectorizer(n: OnnxNode) -> Result:
    x = n.input(0)
    keys = n.attr_strings("string_vocabulary") or n.attr_ints("int64_vocabulary") or ()
    kind = x.dtype.of[1] if x.dtype.form == "map" else f32
    made = TensorType(kind, (1, len(keys)))
    dtype = "object" if kind is string else kind.numpy.name
    return on_host(n, "dict_vectorizer", [made], [x], keys=list(keys), dtype=dtype)


@object_op("CastMap", since=1, domain="ai.onnx.ml")
def cast_map(n: OnnxNode) -> Result:
    x = n.input(0)
    to = n.attr_string("cast_to", "TO_FLOAT", among=("TO_FLOAT", "TO_STRING", "TO_INT64"))
    dense = n.attr_string("map_form", "DENSE", among=("DENSE", "SPARSE")) == "DENSE"
    length = n.attr_int("max_map", 1)
    dtype = {"TO_FLOAT": f32, "TO_STRING": string, "TO_INT64": i64}[to]
    name = "string" if dtype is string else dtype.numpy.name
    made = scalar(tensor_of(dtype)) if dense else TensorType(dtype, (1, length))
    return on_host(n, "cast_map", [made], [x], to=name, length=None if dense else length)
