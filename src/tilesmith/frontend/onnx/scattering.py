"""ONNX's operators that write at indices, and those that order elements."""

from __future__ import annotations

from tilesmith.frontend.common.lists import listed
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.convolutions import Geometry
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.ir import extents
from tilesmith.ir.types import Dim
from tilesmith.ops import scatter, sort

_REDUCTIONS = ("none", "add", "mul", "min", "max")


def _reduction(n: OnnxNode) -> str:
    if n.version < 16:
        return "none"
    return n.attr_string("reduction", "none", among=_REDUCTIONS[: 5 if n.version >= 18 else 3])


@onnx_op("Scatter", since=9, until=10)
@onnx_op("ScatterElements", since=11)
def scatter_elements(n: OnnxNode) -> Result:
    data = n.input(0)
    axis = n.axis(n.attr_int("axis", 0), data.type.rank)
    op = scatter.ScatterElements(axis, _reduction(n))
    return n.add(op, data, n.input(1), n.input(2))


@onnx_op("ScatterND", since=11)
def scatter_nd(n: OnnxNode) -> Result:
    return n.add(scatter.ScatterNd(_reduction(n)), n.input(0), n.input(1), n.input(2))


@onnx_op("MaxUnpool", since=9)
def max_unpool(n: OnnxNode) -> Result:
    x, indices, output_shape = n.input(0), n.input(1), n.optional(2)
    g = Geometry(n, x, n.attr_ints("kernel_shape") or ())
    dims: tuple[Dim, ...]
    if output_shape is not None:
        dims = n.extents(output_shape, "output_shape")
    else:
        places, pads = x.type.shape[2:], g.numbers() or ()
        pairs = zip(places, g.strides, g.kernel, pads, pads[len(g.kernel) :], strict=False)
        dims = (*x.type.shape[:2], *((e - 1) * s + k - p - q for e, s, k, p, q in pairs))
    if len(dims) != x.type.rank or any(isinstance(d, int) and d < 1 for d in dims):
        n.bad(f"output_shape: expected {x.type.rank} extents above 0, found {list(dims)}")
    flat = [v.reshape(-1) for v in (indices, x)]
    zeros = n.const([0], x.dtype).expand(extents.product(dims))
    return n.add(scatter.ScatterElements(0), zeros, *flat).reshape(*dims)


@onnx_op("TopK", since=1)
def top_k(n: OnnxNode) -> Result:
    x = n.input(0)
    axis = n.axis(n.attr_int("axis", -1), x.type.rank)
    count = n.input(1) if n.version >= 10 else None
    k: Dim
    if count is None:
        k = n.attr_int("k")
    elif count.type.size != 1:
        n.bad(f"K: expected one number, found {count.type}")
    else:  # the kernel keeps only k elements, so k must be known before it begins
        (k,) = n.measured(listed(count), bounds=[x.type.shape[axis]])
    largest = True
    if n.version >= 11:
        largest = n.attr_flag("largest", True)
        n.ignore("sorted")  # 0 would allow any order
    return n.add(sort.TopK(k, axis, largest), x)
