"""TensorFlow's lists of tensors.  A list becomes one tensor, whose first axis numbers the items.

If the shape of the items is not stated, it is known when the first item is set.  Until then the
list is a `Reserved`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.slices import updated
from tilesmith.frontend.common.slots import Reserved, Result, Slot
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import tf_op
from tilesmith.frontend.tensorflow.tensors import OPEN, dims_of
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i32, i64
from tilesmith.ir.symbols import symbols_of
from tilesmith.ir.types import Dim
from tilesmith.ops import gather, scatter, slicing


def _items(n: TfNode, index: int = 0) -> Value | Reserved:
    slot = n.slot(index)
    return slot if isinstance(slot, (Value, Reserved)) else n.bad("expected a list, found none")


def _rows(n: TfNode, index: int = 0) -> Value:
    """The list that is input number `index`.  It must have items."""
    rows = _items(n, index)
    return rows if isinstance(rows, Value) else n.unsupported("an item of a list that has none yet")


def _begin(n: TfNode, count: Value, dtype: DType, dims: Sequence[Dim] | None) -> Slot:
    """A list of zeros; a `Reserved` if the shape of the items is not known."""
    if dims is None or any(isinstance(d, int) and d < 0 for d in dims):
        return Reserved(count.cast(i64).reshape(), dtype)
    return n.expand(n.const(0, dtype), (n.one_extent(count, "the length"), *dims))


def begun(n: TfNode, step: object, state: Sequence[Slot]) -> tuple[Slot, ...]:
    """The carried values before a loop.

    A `Reserved` list becomes zeros if the first iteration sets its items.
    """
    body = Body(n.builder, "first")
    results = n.nest(body, step, [body.slot(s) for s in state], n.loc)
    if results is None:
        return tuple(state)
    outside = {s for v in state if isinstance(v, Value) for s in symbols_of(v.type.shape)}
    made: list[Slot] = []
    for slot, after in zip(state, results, strict=True):
        if isinstance(slot, Reserved) and isinstance(after, Value):
            dims = after.type.shape[1:]
            if not outside.issuperset(symbols_of(dims)):
                n.unsupported("a list whose items have a shape that only the loop knows")
            slot = _begin(n, slot.count, slot.dtype, dims)
        made.append(slot)
    return tuple(made)


def _element_dims(n: TfNode, index: int) -> tuple[Dim, ...] | None:
    """The stated shape of the items; None if it is not known."""
    shape = n.input(index)
    return n.dims(shape, "the shape of items") if n.is_known(shape) and shape.type.rank else None


@tf_op("TensorListReserve")
def reserve(n: TfNode) -> Slot:
    dims = None if not n.input(0).type.rank else _element_dims(n, 0)
    return _begin(n, n.input(1), n.dtype("element_dtype"), dims)


@tf_op("EmptyTensorList")
def empty(n: TfNode) -> Slot:
    dims = None if not n.input(0).type.rank else _element_dims(n, 0)
    return _begin(n, n.const(0, i64), n.dtype("element_dtype"), dims)


@tf_op("TensorListFromTensor")
def from_tensor(n: TfNode) -> Result:
    return n.input(0)


@tf_op("TensorListStack")
def stacked(n: TfNode) -> Result:
    return _rows(n)


def item(n: TfNode, rows: Value, index: Value) -> Value:
    """One item of a list."""
    return n.add(gather.Gather(0), rows, index.reshape())


def replaced(n: TfNode, rows: Value | Reserved, index: Value, new: Value) -> Slot:
    """A list in which item `index` is replaced by `new`."""
    if isinstance(rows, Reserved):
        begun_ = _begin(n, rows.count, rows.dtype, new.type.shape)
        assert isinstance(begun_, Value)
        rows = begun_
    row = n.reshape(new, (1, *new.type.shape))
    start = listed(index)
    zeros = [n.const([0], i64)] * (rows.type.rank - 1)
    return updated(n, rows, row, n.add(slicing.Concat(0), start, *zeros) if zeros else start)


@tf_op("TensorListGetItem")
def get_item(n: TfNode) -> Result:
    return item(n, _rows(n), n.input(1))


@tf_op("TensorListSetItem")
def set_item(n: TfNode) -> Slot:
    return replaced(n, _items(n), n.input(1), n.input(2))


@tf_op("TensorListPushBack")
def push_back(n: TfNode) -> Result:
    rows, new = _items(n), n.input(1)
    row = n.reshape(new, (1, *new.type.shape))
    if isinstance(rows, Reserved) and n.known(rows.count) is not None:
        return row
    return n.add(slicing.Concat(0), _rows(n), row)


@tf_op("TensorListPopBack")
def pop_back(n: TfNode) -> Result:
    rows = _rows(n)
    last = n.add(gather.Gather(0), rows, n.const(-1, i64))
    return n.add(slicing.Slice((0,), (-1,), (0,), (1,)), rows), last


@tf_op("TensorListLength")
def length(n: TfNode) -> Result:
    rows = _items(n)
    count = rows.count if isinstance(rows, Reserved) else n.of_dims(rows.type.shape[:1], ())
    return count.cast(i32)


@tf_op("TensorListElementShape")
def element_shape(n: TfNode) -> Result:
    return n.of_dims(_rows(n).type.shape[1:]).cast(n.dtype("shape_type", i32))


@tf_op("TensorListGather")
def gathered(n: TfNode) -> Result:
    return n.add(gather.Gather(0), _rows(n), n.input(1))


@tf_op("TensorListConcatV2", "TensorListConcat")
def concatenated(n: TfNode) -> Result:
    rows = _rows(n)
    return rows.reshape(-1, *rows.type.shape[2:])


# TensorFlow 1: an array has a handle, and a flow that has its contents


@tf_op("TensorArrayV3")
def array(n: TfNode) -> Result:
    stated = dims_of(n.stated("element_shape", "shape"))
    dims = None if stated is None or OPEN in stated else stated
    handle = Reserved(n.input(0).cast(i64).reshape(), n.dtype("dtype"))
    return handle, _begin(n, n.input(0), handle.dtype, dims)


@tf_op("TensorArrayReadV3")
def array_read(n: TfNode) -> Result:
    return item(n, _rows(n, 2), n.input(1))


@tf_op("TensorArrayWriteV3")
def array_write(n: TfNode) -> Slot:
    return replaced(n, _items(n, 3), n.input(1), n.input(2))


@tf_op("TensorArrayGatherV3")
def array_gather(n: TfNode) -> Result:
    return n.add(gather.Gather(0), _rows(n, 2), n.input(1))


@tf_op("TensorArrayScatterV3")
def array_scatter(n: TfNode) -> Result:
    indices, new = listed(n.input(1)), n.input(2)
    rows = n.reshape(indices, (*indices.type.shape, 1))
    return n.add(scatter.ScatterNd(), n.expand(n.const(0, new.dtype), new.type.shape), rows, new)


@tf_op("TensorArraySizeV3")
def array_size(n: TfNode) -> Result:
    rows = _items(n, 1)
    count = rows.count if isinstance(rows, Reserved) else n.of_dims(rows.type.shape[:1], ())
    return count.cast(i32)
