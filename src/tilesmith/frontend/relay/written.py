"""The Relay form of each operator: a function per operator, or only a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilesmith.frontend.relay.elementwise import BINARY, UNARY
from tilesmith.frontend.relay.parse import type_name
from tilesmith.frontend.relay.writer import Writer
from tilesmith.graph.control import If, Loop
from tilesmith.graph.nodes import Node, Value
from tilesmith.ir.dtypes import i64
from tilesmith.ops import activation as ac
from tilesmith.ops import (
    conv,
    gather,
    matmul,
    norm,
    pool,
    quantize,
    reduce,
    resize,
    scan,
    scatter,
    shape,
    slicing,
    sort,
)
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.support.errors import UnsupportedError

WriteNode: TypeAlias = "Callable[[Writer, Node], str | Sequence[str]]"
"""Writes a node; returns its result as Relay's text, or its results."""

WRITERS: dict[type[Op], WriteNode] = {}
"""Writers of nodes, by operator."""


def _writes(*kinds: type[Op]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(write: Callable[..., Any]) -> Callable[..., Any]:
        WRITERS.update(dict.fromkeys(kinds, write))
        return write

    return enter


def _named(name: str, **attributes: str) -> WriteNode:
    """A writer of a call of Relay's operator `name` with the node's operands.

    attributes: Relay's name of an attribute -> the name in Tilesmith's operator.
    """

    def write(w: Writer, n: Node) -> str:
        settings = {k: getattr(n.op, ours) for k, ours in attributes.items()}
        return w.call(name, *map(w.name, n.inputs), **settings)

    return write


for _name, _kind in reversed((*UNARY.items(), *BINARY.items())):  # the first name wins
    if isinstance(_kind, type):
        WRITERS[_kind] = _named(_name)
WRITERS |= {
    ew.Where: _named("where"),
    ac.LeakyRelu: _named("nn.leaky_relu", alpha="alpha"),
    norm.Softmax: _named("nn.softmax", axis="axis"),
    norm.LogSoftmax: _named("nn.log_softmax", axis="axis"),
    norm.InstanceNorm: _named("nn.instance_norm", epsilon="epsilon"),
    norm.GroupNorm: _named("nn.group_norm", num_groups="groups", epsilon="epsilon"),
    norm.Lrn: _named("nn.lrn", size="size", bias="bias", alpha="alpha", beta="beta"),
    shape.Transpose: _named("transpose", axes="perm"),
    shape.DepthToSpace: _named("nn.depth_to_space", block_size="block", mode="mode"),
    shape.SpaceToDepth: _named("nn.space_to_depth", block_size="block"),
}
for _kind, _name in {
    reduce.ReduceSum: "sum", reduce.ReduceMean: "mean", reduce.ReduceProd: "prod",
    reduce.ReduceLogSumExp: "logsumexp",
}.items():  # fmt: skip
    WRITERS[_kind] = _named(_name, axis="axes", keepdims="keepdims")


@_writes(reduce.ReduceMax, reduce.ReduceMin)
def _extreme(w: Writer, n: Node) -> str:
    name = "max" if type(n.op) is reduce.ReduceMax else "min"
    if n.inputs[0].dtype.is_bool:
        name = {"max": "any", "min": "all"}[name]
    return _named(name, axis="axes", keepdims="keepdims")(w, n)  # type: ignore[return-value]


@_writes(reduce.ArgMax, reduce.ArgMin)
def _place(w: Writer, n: Node) -> str:
    op: Any = n.op
    name = "argmax" if type(op) is reduce.ArgMax else "argmin"
    last = {"select_last_index": True} if op.select_last_index else {}
    place = w.call(name, w.name(n.inputs[0]), axis=[op.axis], keepdims=op.keepdims, **last)
    return w.call("cast", place, dtype="int64")


@_writes(ew.Mod)
def _mod(w: Writer, n: Node) -> str:
    name = "mod" if getattr(n.op, "fmod", False) else "floor_mod"
    return w.call(name, *map(w.name, n.inputs))


@_writes(ew.Cast)
def _cast(w: Writer, n: Node) -> str:
    return w.call("cast", w.name(n.inputs[0]), dtype=type_name(n.outputs[0].dtype))


@_writes(ew.Clip)
def _clip(w: Writer, n: Node) -> str:
    op: Any = n.op
    low, high = (
        v if v is not None else limit for v, limit in ((op.min, -np.inf), (op.max, np.inf))
    )
    return w.call("clip", w.name(n.inputs[0]), a_min=float(low), a_max=float(high))


def _formula(kind: type[Op]) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """A decorator that registers a function as the formula of an elementwise operator.

    The function gets the writer, the operator, the operand, and a function that writes numbers of
    the operand's type.
    """

    def enter(make: Callable[..., str]) -> Callable[..., str]:
        def write(w: Writer, n: Node) -> str:
            dtype = n.inputs[0].dtype
            return make(w, n.op, w.name(n.inputs[0]), lambda v: w.number(v, dtype))

        WRITERS[kind] = write
        return make

    return enter


@_formula(ew.Round)
def _round(w: Writer, op: Any, x: str, number: Callable[[float], str]) -> str:
    """Round ties to even numbers.  Relay's `round` rounds them away from zero."""
    whole = w.call("trunc", x)
    is_tie = w.call("equal", w.call("abs", w.call("subtract", x, whole)), number(0.5))
    half = w.call("round", w.call("multiply", x, number(0.5)))
    return w.call("where", is_tie, w.call("multiply", half, number(2.0)), w.call("round", x))


@_formula(ew.Reciprocal)
def _reciprocal(w: Writer, op: Any, x: str, number: Callable[[float], str]) -> str:
    return w.call("divide", number(1.0), x)


@_formula(ew.Log1p)
def _log1p(w: Writer, op: Any, x: str, number: Callable[[float], str]) -> str:
    return w.call("log", w.call("add", x, number(1.0)))


@_formula(ac.HardSigmoid)
def _hard_sigmoid(w: Writer, op: Any, x: str, number: Callable[[float], str]) -> str:
    line = w.call("add", w.call("multiply", x, number(op.alpha)), number(op.beta))
    return w.call("clip", line, a_min=0.0, a_max=1.0)


@_formula(ac.Elu)
def _elu(w: Writer, op: Any, x: str, number: Callable[[float], str]) -> str:
    below = w.call("subtract", w.call("exp", w.call("minimum", x, number(0.0))), number(1.0))
    scaled = w.call("multiply", below, number(op.alpha))
    return w.call("where", w.call("less", x, number(0.0)), scaled, x)


@_formula(ac.Softplus)
def _softplus(w: Writer, op: Any, x: str, number: Callable[[float], str]) -> str:
    small = w.call("exp", w.call("negative", w.call("abs", x)))
    return w.call("add", w.call("nn.relu", x), w.call("log", w.call("add", small, number(1.0))))


# Layers


@_writes(conv.Conv, conv.ConvTranspose)
def _conv(w: Writer, n: Node) -> str:
    op: Any = n.op
    x, kernel = n.inputs
    rank = x.type.rank - 2
    transposed = type(op) is conv.ConvTranspose
    name = f"nn.conv{rank}d" + "_transpose" * transposed
    more: dict[str, Any] = {}
    if transposed:
        name, more = name, {"output_padding": list(op.output_padding)} if op.output_padding else {}
    operands = [w.name(v) for v in n.inputs]
    if not transposed and op.to is not None:
        more["out_dtype"] = type_name(op.to)
    channels = kernel.type.shape[1] * op.groups if transposed else kernel.type.shape[0]
    return w.call(
        name, *operands, **_window(op, rank), groups=op.groups, channels=channels,
        kernel_size=kernel.type.shape[2:], **more,
    )  # fmt: skip


def _window(op: Any, rank: int) -> dict[str, Any]:
    return {
        "strides": op.strides or (1,) * rank,
        "padding": op.pads or (0,) * (2 * rank),
        "dilation": op.dilations or (1,) * rank,
    }


@_writes(pool.MaxPool, pool.AvgPool)
def _pool(w: Writer, n: Node) -> str:
    op: Any = n.op
    rank, kind = len(op.kernel), "max" if type(op) is pool.MaxPool else "avg"
    counts = {k: v for k, v in op.attributes.items() if k == "count_include_pad"}
    window = _window(op, rank)
    return w.call(
        f"nn.{kind}_pool{rank}d", w.name(n.inputs[0]), pool_size=op.kernel, **window,
        ceil_mode=op.ceil_mode, **counts,
    )  # fmt: skip


@_writes(pool.GlobalAvgPool, pool.GlobalMaxPool)
def _global(w: Writer, n: Node) -> str:
    name = "mean" if type(n.op) is pool.GlobalAvgPool else "max"
    axes = [*range(2, n.inputs[0].type.rank)]
    return w.call(name, w.name(n.inputs[0]), axis=axes, keepdims=True)


@_writes(norm.BatchNorm)
def _batch_norm(w: Writer, n: Node) -> str:
    return f"{_named('nn.batch_norm', epsilon='epsilon')(w, n)}.0"


@_writes(norm.LayerNorm)
def _layer_norm(w: Writer, n: Node) -> str:
    op: Any = n.op
    offset = "zeros_like" if len(n.inputs) == 2 else ""
    operands = [*map(w.name, n.inputs)]
    operands += [w.call(offset, operands[1])] if offset else []
    return w.call("nn.layer_norm", *operands, axis=-1, epsilon=op.epsilon)


@_writes(matmul.MatMul)
def _matmul(w: Writer, n: Node) -> str:
    op: Any = n.op
    to = {} if op.to is None else {"out_dtype": type_name(op.to)}
    flips = {"transpose_a": op.transpose_a, "transpose_b": op.transpose_b}
    (a, b), out = n.inputs, n.outputs[0].type
    left, right = w.name(a), w.name(b)
    if a.type.rank == b.type.rank == 2:
        return w.call("nn.matmul", left, right, **flips, **to)
    rows, columns = ((1, *a.shape)[-2:], (*b.shape, *[1] * (b.type.rank == 1))[-2:])
    lead = out.static_shape[: out.rank - (a.type.rank > 1) - (b.type.rank > 1)]
    count = int(np.prod(lead, dtype=np.int64))

    def stacked(x: str, v: Value, matrix: Sequence[Any]) -> str:
        wide = (*lead, *matrix)
        if v.type.rank > 2 and v.shape != wide:
            x = w.call("broadcast_to", x, shape=wide)
        elif v.type.rank <= 2:
            x = w.call("broadcast_to", w.call("reshape", x, newshape=matrix), shape=wide)
        return w.call("reshape", x, newshape=(count, *matrix))

    y = w.call("nn.batch_matmul", stacked(left, a, rows), stacked(right, b, columns), **flips, **to)
    return w.call("reshape", y, newshape=out.static_shape)


# Shapes and indices


@_writes(shape.Reshape, shape.Squeeze, shape.Unsqueeze, shape.Flatten)
def _reshape(w: Writer, n: Node) -> str:
    return w.call("reshape", w.name(n.inputs[0]), newshape=n.outputs[0].type.static_shape)


@_writes(shape.Expand)
def _expand(w: Writer, n: Node) -> str:
    return w.call("broadcast_to", w.name(n.inputs[0]), shape=n.outputs[0].type.static_shape)


@_writes(slicing.Concat)
def _concat(w: Writer, n: Node) -> str:
    op: Any = n.op
    return w.call("concatenate", w.tuple([w.name(v) for v in n.inputs]), axis=op.axis)


@_writes(slicing.Split)
def _split(w: Writer, n: Node) -> Sequence[str]:
    op: Any = n.op
    places = [int(p) for p in np.cumsum(op.sizes)[:-1]]
    made = w.call("split", w.name(n.inputs[0]), indices_or_sections=places, axis=op.axis)
    return [f"{made}.{i}" for i in range(len(n.outputs))]


@_writes(slicing.Slice)
def _slice(w: Writer, n: Node) -> str:
    return _named("strided_slice", begin="starts", end="ends", strides="steps", axes="axes")(w, n)  # type: ignore[return-value]


@_writes(slicing.Flip)
def _flip(w: Writer, n: Node) -> str:
    x = w.name(n.inputs[0])
    for axis in n.op.attributes["axes"]:
        x = w.call("reverse", x, axis=axis)
    return x


@_writes(slicing.Pad)
def _pad(w: Writer, n: Node) -> str:
    op: Any = n.op
    rank = n.inputs[0].type.rank
    if min(op.pads, default=0) < 0 or op.mode == "wrap":
        raise UnsupportedError(f"Relay has no form of {op}")
    widths = [*zip(op.pads[:rank], op.pads[rank:], strict=True)]
    value = w.number(op.value, n.inputs[0].dtype)
    return w.call("nn.pad", w.name(n.inputs[0]), value, pad_width=widths, pad_mode=op.mode)


def _from_front(w: Writer, places: Value, extents: Any) -> str:
    """Indices counted from the front.  A negative index of Tilesmith counts from the end."""
    constant = w.constants.get(places)
    if places.dtype.kind == "uint" or (
        constant is not None and constant.data.array.min(initial=0) >= 0
    ):
        return w.name(places)
    name, zero = w.name(places), w.number(0, places.dtype)
    wide = w.call("add", name, w.stored(np.asarray(extents, places.dtype.numpy), places.dtype))
    return w.call("where", w.call("less", name, zero), wide, name)


@_writes(gather.FromFront)
def _front(w: Writer, n: Node) -> str:
    """Indices from the front, which are never negative, as i64.  Relay doesn't check the range."""
    return w.call("cast", w.name(n.inputs[0]), dtype="int64")


@_writes(gather.Gather, gather.GatherElements)
def _gather(w: Writer, n: Node) -> str:
    op: Any = n.op
    x, places = n.inputs
    name, more = ("take", {"mode": "fast"}) if type(op) is gather.Gather else ("gather", {})
    axis = op.axis % x.type.rank
    return w.call(name, w.name(x), _from_front(w, places, x.shape[axis]), axis=axis, **more)


@_writes(gather.GatherNd)
def _gather_nd(w: Writer, n: Node) -> str:
    x, places = n.inputs
    batch, rank = n.op.attributes["batch_dims"], places.type.rank
    extents = x.shape[batch : batch + places.type.static_shape[-1]]
    tuples = _from_front(w, places, extents)
    turned = w.call("transpose", tuples, axes=[rank - 1, *range(rank - 1)])
    return w.call("gather_nd", w.name(x), turned, batch_dims=batch)


@_writes(gather.OneHot)
def _one_hot(w: Writer, n: Node) -> str:
    op: Any = n.op
    places, values = n.inputs
    constant = w.constants.get(values)
    if constant is None:
        raise UnsupportedError("Relay has no form of one_hot with computed values")
    off, on = (w.number(v, values.dtype) for v in constant.data.array.tolist())
    index = _from_front(w, places, op.depth)
    kind = type_name(values.dtype)
    return w.call("one_hot", index, on, off, depth=op.depth, axis=op.axis, dtype=kind)


@_writes(ew.BitShift)
def _shift(w: Writer, n: Node) -> str:
    return w.call(f"{n.op.attributes['direction']}_shift", *map(w.name, n.inputs))


@_writes(scatter.ScatterNd)
def _scatter_nd(w: Writer, n: Node) -> str:
    op: Any = n.op
    x, places, updates = n.inputs
    extents, rank = x.shape[: places.type.static_shape[-1]], places.type.rank
    turned = w.call("transpose", _from_front(w, places, extents), axes=[rank - 1, *range(rank - 1)])
    mode = op.reduction.replace("none", "update")
    return w.call("scatter_nd", w.name(x), turned, w.name(updates), mode=mode)


@_writes(scatter.ScatterElements)
def _scatter(w: Writer, n: Node) -> str:
    op: Any = n.op
    x, places, updates = n.inputs
    axis = op.axis % x.type.rank
    return w.call(
        "scatter_elements", w.name(x), _from_front(w, places, x.shape[axis]), w.name(updates),
        axis=axis, reduction=op.reduction.replace("none", "update"),
    )  # fmt: skip


@_writes(sort.TopK)
def _topk(w: Writer, n: Node) -> Sequence[str]:
    op: Any = n.op
    made = w.call(
        "topk", w.name(n.inputs[0]), k=op.k, axis=op.axis, is_ascend=not op.largest, dtype="int64"
    )
    return [f"{made}.0", f"{made}.1"]


@_writes(scan.CumSum, scan.CumProd)
def _running(w: Writer, n: Node) -> str:
    op: Any = n.op
    name = "cumsum" if type(op) is scan.CumSum else "cumprod"
    x = w.name(n.inputs[0])
    x = w.call("reverse", x, axis=op.axis) if op.reverse else x
    y = w.call(name, x, axis=op.axis, exclusive=op.exclusive)
    return w.call("reverse", y, axis=op.axis) if op.reverse else y


_ROUNDINGS = {
    "round_prefer_floor": "",
    "round_prefer_ceil": "round",
    "floor": "floor",
    "ceil": "ceil",
}


@_writes(resize.Resize)
def _resize(w: Writer, n: Node) -> str:
    op: Any = n.op
    x, rank = n.inputs[0], n.inputs[0].type.rank
    ratios = tuple(s / d for s, d in zip(op.sizes, x.type.static_shape, strict=True))
    plain = not (op.antialias or op.roi) and op.scales in ((), ratios)
    if not plain or rank not in (3, 4, 5) or op.sizes[:2] != x.shape[:2]:
        raise UnsupportedError(f"Relay has no form of {op}")
    method = {"nearest": "nearest_neighbor"}.get(op.mode, op.mode)
    rounding = _ROUNDINGS[op.rounding]
    if not rounding and op.coordinates == "asymmetric":
        rounding = "round_prefer_floor"
    return w.call(
        f"image.resize{rank - 2}d", w.name(x), size=op.sizes[2:], method=method,
        coordinate_transformation_mode=op.coordinates, rounding_method=rounding,
        cubic_alpha=op.cubic_a, cubic_exclude=int(op.exclude_outside),
    )  # fmt: skip


@_writes(quantize.Dequantize)
def _dequantize(w: Writer, n: Node) -> str:
    op: Any = n.op
    x, scale, *zero = n.inputs
    if op.block or scale.type.rank > 1 or x.dtype.bits != 8:
        raise UnsupportedError(f"Relay has no form of {op}")
    zeros = np.zeros(scale.type.static_shape, np.int32)
    offset = w.call("cast", w.name(zero[0]), dtype="int32") if zero else w.call(
        "cast", w.stored(zeros.astype(np.int64), i64), dtype="int32"
    )  # fmt: skip
    return w.call("qnn.dequantize", w.name(x), w.name(scale), offset, axis=op.axis)


# Control flow


@_writes(If)
def _if(w: Writer, n: Node) -> Sequence[str]:
    op: Any = n.op
    if op.symbols:
        raise UnsupportedError("Relay has no form of branches with results of different extents")
    condition, *arguments = map(w.name, n.inputs)
    then, otherwise = (w.block(b, arguments, WRITERS) for b in (op.then, op.otherwise))
    made = w.bind(f"if ({condition}) {{{then}}} else {{{otherwise}}}")
    return [made] if len(n.outputs) == 1 else [f"{made}.{i}" for i in range(len(n.outputs))]


@_writes(Loop)
def _loop(w: Writer, n: Node) -> Sequence[str]:
    """A loop becomes a function that calls itself.

    Its parameters are the iteration's number, the condition if there is one, and carried values.
    """
    op: Any = n.op
    if op.symbols or op.inside or op.sliced or op.collected:
        raise UnsupportedError("Relay has no form of loops that collect results or change extents")
    carried, _, same = op.split(n.inputs)
    leading = [*n.inputs[: op.leading]]
    steps = w.number(op.steps, i64) if op.steps is not None else w.name(leading.pop(0))
    first = [w.number(0, i64), *map(w.name, (*leading, *carried))]
    types = [f"{w.fresh()}: {w.type_of(v)}" for v in (op.body.inputs[0], *leading, *carried)]
    own = [t.partition(":")[0] for t in types]
    loop = w.fresh()

    def following(results: Sequence[str]) -> str:
        number = w.call("add", own[0], w.number(1, i64))
        return f"{loop}({', '.join((number, *results))})"

    states = own[1 + len(leading) :]
    arguments = [own[0], *states, *map(w.name, same)]
    with w.nested() as lines:
        going = w.call("less", own[0], steps)
        if leading:
            going = w.call("logical_and", going, own[1])
        again = w.block(op.body, arguments, WRITERS, following)
        lines.append(f"if ({going}) {{{again}}} else {{{w.tuple(states)}}}")
    w.let(loop, f"fn ({', '.join(types)}) {{{w.joined(lines)}}}")
    made = w.bind(f"{loop}({', '.join(first)})")
    return [f"{made}.{i}" for i in range(len(states))]
