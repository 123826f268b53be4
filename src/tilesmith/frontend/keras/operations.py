"""The operations of `keras.ops` in functional models.

Most are rows of a table.  A row has the operation, the equal operator of ATen, and the operation's
arguments in the order in which ATen takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import OPERATORS
from tilesmith.frontend.keras.node import KerasNode, Tensor, with_axis
from tilesmith.frontend.keras.registry import operation
from tilesmith.frontend.keras.shapes import repeated, reshaped, resized
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_, dtype, f32, i32, i64
from tilesmith.ir.types import same_dim
from tilesmith.ops import attention as att
from tilesmith.ops import einsum, gather, slicing
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm

_DEFAULTS: dict[str, Any] = {"axis": None, "keepdims": False, "k": 0, "decimals": 0, "n": 1}
_DEFAULTS |= {"descending": False, "posinf": None, "neginf": None, "zero": 0, "last": -1}

_ROWS = """
Abs abs x | Absolute abs x | Fabs abs x | Ceil ceil x | Floor floor x | Trunc trunc x | Sign sign x
Negative neg x | Round round.decimals x decimals | Copy clone x | StopGradient clone x
Arccos acos f | Arccosh acosh f | Arcsin asin f | Arcsinh asinh f | Arctan atan f | Arctanh atanh f
Cos cos f | Cosh cosh f | Sin sin f | Sinh sinh f | Tan tan f | Exp exp f | Exp2 exp2 f
Expm1 expm1 f | Log log f | Log10 log10 f | Log1p log1p f | Log2 log2 f | Sqrt sqrt f
Rsqrt rsqrt f | Reciprocal reciprocal f | Erf erf f | Erfc erfc f | Erfinv erfinv f | I0 i0 f
Isnan isnan x | Isinf isinf x | Isfinite isfinite x | Signbit signbit x
LogicalNot logical_not x | BitwiseNot bitwise_not x | BitwiseInvert bitwise_not x
Add add.Tensor a b | Subtract sub.Tensor a b | Multiply mul.Tensor a b | Divide div.Tensor a b
TrueDivide div.Tensor a b | FloorDivide floor_divide a b | Mod remainder.Tensor a b
Fmod fmod.Tensor a b | Power pow.Tensor_Tensor a b | Maximum maximum a b | Minimum minimum a b
Fmax fmax a b | Fmin fmin a b | Hypot hypot a b | Arctan2 atan2 a b
Equal eq.Tensor a b | NotEqual ne.Tensor a b | Less lt.Tensor a b | LessEqual le.Tensor a b
Greater gt.Tensor a b | GreaterEqual ge.Tensor a b
LogicalAnd logical_and a b | LogicalOr logical_or a b | LogicalXor logical_xor a b
BitwiseAnd bitwise_and.Tensor a b | BitwiseOr bitwise_or.Tensor a b
BitwiseXor bitwise_xor.Tensor a b | LeftShift bitwise_left_shift.Tensor a b
RightShift bitwise_right_shift.Tensor a b | BitwiseLeftShift bitwise_left_shift.Tensor a b
BitwiseRightShift bitwise_right_shift.Tensor a b
Clip clamp x x_min x_max | Where where.self c a b
Sum sum.dim_IntList x axis keepdims | Mean mean.dim f axis keepdims
Max amax x axis keepdims | Amax amax x axis keepdims | Min amin x axis keepdims
Amin amin x axis keepdims | All all.dims x axis keepdims | Any any.dims x axis keepdims
Std std.correction f axis zero keepdims | Var var.correction f axis zero keepdims
Logsumexp logsumexp f axes keepdims | Cumsum cumsum x flat | Cumprod cumprod x flat
Diff diff x n last | Matmul matmul a b | Stack stack xs first | Concatenate cat xs first
Vstack cat xs first | Transpose permute x order | Swapaxes transpose.int x axis1 axis2
Moveaxis movedim.intlist x source destination | Squeeze squeeze.dims x ones
Flip flip x axes | Roll roll x shift axis | Tril tril x k | Triu triu x k
BroadcastTo expand x shape | Diagonal diagonal x offset axis1 axis2
Inv inverse x | Det linalg_det x | Solve linalg_solve x x1
"""


def aten(n: KerasNode, target: str, *args: Any) -> Any:
    """The result of ATen's operator `target`.  A name without overload means the default one."""
    target = f"aten.{target}" + ("" if "." in target else ".default")
    function = OPERATORS.find("", target)
    assert function is not None, target
    return function(AtenNode(n.builder, n.loc, n.label, target), *args)


def _tensor(n: KerasNode, value: Any) -> Value:
    return value if isinstance(value, Value) else n.together(value)[0]


def _floats(x: Value) -> Value:
    return x if x.dtype.is_float else x.cast(f32)


def _axes(n: KerasNode) -> tuple[int, ...]:
    """The axes that the argument `axis` lists; by default all."""
    axis, rank = n.argument("axis", 1, None), n.input().type.rank
    if axis is None:
        return tuple(range(rank))
    return n.axes((axis,) if isinstance(axis, int) else tuple(axis), rank)


def _argument(n: KerasNode, name: str, position: int) -> Any:
    """The argument that `name` stands for in a row of the table."""
    rank = n.input().type.rank
    match name:
        case "x" | "f" | "c":
            x = n.input()
            return _floats(x) if name == "f" else x.cast(bool_) if name == "c" else x
        case "a" | "b":
            first = n.kind == "Where"
            both = n.together(n.argument("x1", int(first)), n.argument("x2", 1 + first))
            return both[name == "b"]
        case "xs":
            return list(n.together(*n.inputs))
        case "first":
            return n.argument("axis", 1, 0)
        case "last":
            return n.argument("axis", None, -1)
        case "axes":
            return _axes(n)
        case "flat":
            axis = n.argument("axis", 1, None)
            return (
                axis if axis is not None else n.unsupported("axis=None; flatten the tensor first")
            )
        case "order":
            order = n.argument("axes", 1, None)
            return range(rank)[::-1] if order is None else order
        case "ones":
            ones = tuple(i for i, d in enumerate(n.input().type.shape) if same_dim(d, 1))
            return ones if n.argument("axis", 1, None) is None else _axes(n)
        case "axis":
            axis = n.argument("axis", position, None)
            return [axis] if type(axis) is int else axis
    return (
        n.argument(name, position, _DEFAULTS[name])
        if name in _DEFAULTS
        else n.argument(name, position)
    )


def _row(n: KerasNode, target: str, names: Sequence[str]) -> Any:
    if n.argument("initial", None, None) is not None:
        n.unsupported("an initial value")
    made = aten(n, target, *(_argument(n, name, i) for i, name in enumerate(names)))
    return list(made) if isinstance(made, tuple) else made


for _entry in _ROWS.replace("\n", "|").split("|"):
    if _entry.strip():
        _name, _target, *_names = _entry.split()
        operation(_name)(partial(_row, target=_target, names=tuple(_names)))

_WRITTEN: dict[str, Callable[[Value], Value]] = {
    "Cbrt": lambda x: fn.where(x < 0.0, -(abs(x) ** (1 / 3)), abs(x) ** (1 / 3)),
    "Deg2rad": lambda x: x * (math.pi / 180),
    "Rad2deg": lambda x: x * (180 / math.pi),
}
for _name, _function in _WRITTEN.items():
    operation(_name)(lambda n, f=_function: f(_floats(n.input())))


@operation("Square")
def square(n: KerasNode) -> Value:
    return n.input() * n.input()


@operation("Cast", "ConvertToTensor", "SaturateCast")
def cast(n: KerasNode) -> Value:
    to = n.argument("dtype", 1, None)
    return n.input() if to is None else n.input().cast(dtype(str(to)))


@operation("OnesLike", "ZerosLike", "FullLike")
def like(n: KerasNode) -> Value:
    x, to = n.input(), n.argument("dtype", None, None)
    number = {"OnesLike": 1, "ZerosLike": 0}.get(n.kind)
    number = n.argument("fill_value", 1) if number is None else number
    return n.expand(n.const(number, x.dtype if to is None else dtype(str(to))), x.type.shape)


@operation("CountNonzero")
def count_nonzero(n: KerasNode) -> Value:
    return n.input().cast(bool_).cast(i32).sum(_axes(n))


@operation("Prod")
def prod(n: KerasNode) -> Value:
    return n.input().prod(_axes(n), keepdims=bool(n.argument("keepdims", None, False)))


@operation("Argmax", "Argmin", "Argsort")
def places(n: KerasNode) -> Value:
    x, axis = n.input(), n.argument("axis", 1, None)
    if n.kind == "Argsort":
        return aten(n, "argsort", x, -1 if axis is None else axis, False).cast(i32)
    return aten(n, n.kind.lower(), x, axis, bool(n.argument("keepdims", None, False))).cast(i32)


@operation("Sort")
def sorted_(n: KerasNode) -> Value:
    return aten(n, "sort", n.input(), n.argument("axis", 1, -1))[0]


@operation("TopK")
def top_k(n: KerasNode) -> list[Value]:
    values, place = aten(n, "topk", n.input(), n.argument("k", 1))
    return [values, place.cast(i32)]


@operation("Einsum")
def einsum_(n: KerasNode) -> Value:
    return n.add(einsum.Einsum(str(n.argument("subscripts"))), *n.together(*n.inputs))


@operation("Dot", "Tensordot")
def tensordot(n: KerasNode) -> Value:
    a, b = n.together(n.argument("x1", 0), n.argument("x2", 1))
    axes = 1 if n.kind == "Dot" else n.argument("axes", None, 2)
    if n.kind == "Dot" and b.type.rank > 1:
        axes = [[a.type.rank - 1], [b.type.rank - 2]]
    if isinstance(axes, int):
        axes = [list(range(a.type.rank - axes, a.type.rank)), list(range(axes))]
    left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = n.axes(tuple(left), a.type.rank), n.axes(tuple(right), b.type.rank)
    free_a = [i for i in range(a.type.rank) if i not in left]
    free_b = [i for i in range(b.type.rank) if i not in right]
    rows, columns = ([v.type.shape[i] for i in free] for v, free in ((a, free_a), (b, free_b)))
    inner = extents.product(a.type.shape[i] for i in left)
    a = n.reshape(a.transpose(*free_a, *left), (extents.product(rows), inner))
    b = n.reshape(b.transpose(*right, *free_b), (inner, extents.product(columns)))
    return n.reshape(n.add(mm.MatMul(), a, b), (*rows, *columns))


@operation("DotProductAttention")
def dot_product_attention(n: KerasNode) -> Value:
    q, k, v = (n.input(i).transpose(0, 2, 1, 3) for i in range(3))
    bias, mask = n.argument("bias", 3, None), n.argument("mask", 4, None)
    if bias is not None and mask is not None:
        bias, mask = fn.where(mask, bias, -math.inf), None
    causal = bool(n.argument("is_causal", None, False))
    cap = float(n.argument("attn_logits_soft_cap", None, None) or 0.0)
    extra = bias if bias is not None else mask
    op = att.Attention(n.argument("scale", 5, None), causal, cap)
    return n.add(op, q, k, v, *([] if extra is None else [extra])).transpose(0, 2, 1, 3)


@operation("Reshape", "Ravel")
def reshape(n: KerasNode) -> Value:
    shape = -1 if n.kind == "Ravel" else n.argument("newshape", 1)
    return reshaped(n, n.input(), [shape] if isinstance(shape, int) else list(shape))


@operation("ExpandDims")
def expand_dims(n: KerasNode) -> Value:
    x, axis = n.input(), n.argument("axis", 1)
    for a in [axis] if isinstance(axis, int) else sorted(axis):
        x = with_axis(n, x, a)
    return x


@operation("Hstack")
def hstack(n: KerasNode) -> Value:
    parts = n.together(*n.inputs)
    return n.add(slicing.Concat(min(1, parts[0].type.rank - 1)), *parts)


@operation("Split", "Unstack")
def split(n: KerasNode) -> list[Value]:
    x, axis = n.input(), n.argument("axis", None, 0)
    axis = n.axis(axis, x.type.rank)
    if n.kind == "Unstack":
        return list(aten(n, "unbind.int", x, axis))
    entry, extent = n.argument("indices_or_sections", 1), n.extent(x, axis)
    if isinstance(entry, int):
        if entry < 1 or extent % entry:
            n.bad(f"expected a divisor of {extent}, found {entry}")
        entry = range(extent // entry, extent, extent // entry)
    return list(
        aten(n, "split.sizes", x, [b - a for a, b in zip((0, *entry), (*entry, extent))], axis)
    )


@operation("Pad")
def pad(n: KerasNode) -> Value:
    x, entry, mode = n.input(), n.argument("pad_width", 1), n.argument("mode", None, "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        n.unsupported(f"mode {mode!r}")
    entry = [entry] if isinstance(entry, int) else entry
    pairs = [[p, p] if isinstance(p, int) else p for p in entry]
    pairs = pairs * x.type.rank if len(pairs) == 1 else pairs
    value = n.argument("constant_values", 2, None) or 0
    return n.add(slicing.Pad((*(p[0] for p in pairs), *(p[1] for p in pairs)), mode, value), x)


@operation("Tile")
def tile(n: KerasNode) -> Value:
    entry = n.argument("repeats", 1)
    return repeated(n, n.input(), [entry] if isinstance(entry, int) else entry)


@operation("Repeat")
def repeat(n: KerasNode) -> Value:
    x, count, axis = n.input(), n.argument("repeats", 1), n.argument("axis", 2, None)
    count = count[0] if isinstance(count, list) and len(count) == 1 else count
    if not isinstance(count, int):
        n.unsupported("a number of repeats for each element")
    if axis is None:
        x, axis = n.reshape(x, (extents.product(x.type.shape),)), 0
    axis, dims = n.axis(axis, x.type.rank), x.type.shape
    wide = n.expand(with_axis(n, x, axis + 1), (*dims[: axis + 1], count, *dims[axis + 1 :]))
    return n.reshape(wide, (*dims[:axis], extents.product((dims[axis], count)), *dims[axis + 1 :]))


@operation("OneHot")
def one_hot(n: KerasNode) -> Value:
    x, to = n.input(), dtype(str(n.argument("dtype", None, None) or "float32"))
    op = gather.OneHot(n.argument("num_classes", 1), n.argument("axis", 2, -1))
    return n.add(op, x.cast(i64), n.const([0, 1], to))


@operation("Take", "TakeAlongAxis")
def take(n: KerasNode) -> Value:
    x, place = (_tensor(n, n.argument(k, i)) for i, k in enumerate(("x", "indices")))
    axis = n.argument("axis", 2, None)
    if axis is None:
        x, axis = n.reshape(x, (extents.product(x.type.shape),)), 0
    axis = n.axis(axis, x.type.rank)
    op = gather.Gather(axis) if n.kind == "Take" else gather.GatherElements(axis)
    return n.add(op, x, place.cast(i64))


@operation("GetItem")
def get_item(n: KerasNode) -> Value:
    """Indexing by slices, single indices and new axes, or by one tensor of indices."""
    x, key = n.input(), n.args[1] if len(n.args) > 1 else n.argument("key")
    parts = list(key) if isinstance(key, (list, tuple)) else [key]
    used = sum(p is not None and p is not ... for p in parts)
    rank, axis = x.type.rank, 0
    for p in parts:
        if p is ...:
            axis += rank - used
        elif p is None:
            x, axis = with_axis(n, x, axis), axis + 1
        elif isinstance(p, slice):
            if not all(e is None or type(e) is int for e in (p.start, p.stop, p.step)):
                n.unsupported("a slice whose ends are computed")
            x, axis = _sliced(n, x, axis, p), axis + 1
        elif type(p) is int:
            x = n.add(gather.Gather(axis), x, n.const(p, i64))
        elif isinstance(p, (Tensor, np.ndarray)) and used == 1:
            place = _tensor(n, p.value if isinstance(p, Tensor) else p)
            if place.dtype is bool_:
                n.unsupported("a mask as an index")
            x, axis = n.add(gather.Gather(axis), x, place.cast(i64)), axis + place.type.rank
        else:
            n.unsupported(f"the index {p!r:.60}")
    return x


def _sliced(n: KerasNode, x: Value, axis: int, s: slice) -> Value:
    step, limit = s.step or 1, (1 << 31) - 1
    if s.start is None and s.stop is None and step == 1:
        return x
    start = s.start if s.start is not None else (0 if step > 0 else limit)
    stop = s.stop if s.stop is not None else (limit if step > 0 else -limit)
    return n.add(slicing.Slice((start,), (stop,), (axis,), (step,)), x)


@operation("Resize")
def resize(n: KerasNode) -> Value:
    x = n.channels_first(_floats(n.input()))
    if n.option("crop_to_aspect_ratio", False) or n.option("pad_to_aspect_ratio", False):
        n.unsupported("crop_to_aspect_ratio and pad_to_aspect_ratio")
    smooth = bool(n.option("antialias", False))
    return n.as_given(
        resized(n, x, n.positive("size", 2), n.option("interpolation", "bilinear"), smooth)
    )
