"""TVM's `topi`: operators on tensors.

An operator is imported as one of Relay's text, and becomes the tensor expressions of its nodes.
Composite operators, such as softmax, become several tensors.  Functions are defined here where
TVM's `topi` has other arguments than Relay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from tilesmith import te
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.relay.importer import flat
from tilesmith.frontend.relay.node import RelayNode
from tilesmith.frontend.relay.parse import type_name
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Value
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose
from tilesmith.ir.dtypes import DType
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.te.tensor import Placeholder, producers_first
from tilesmith.tuning.template import auto_schedule

from ..names import elsewhere
from .positions import TOPI, divided
from .relay.expressions import Namespace, import_function, operator_names
from .target import Target


class _Operands:
    """The tensors of a call as values of a graph."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._tensors: dict[Value, te.Tensor] = {}

    def value(self, operand: Any, like: DType) -> Any:
        """A tensor or a number, which gets the type `like`, as a value; a list as a tuple.

        Raises UsageError for a number that `like` does not hold.
        """
        if isinstance(operand, (list, tuple)):
            return tuple(self.value(o, like) for o in operand)
        if not isinstance(operand, te.Tensor):
            return self._builder.constant(_held(operand, like))
        name = f"x{len(self._tensors)}"
        made = self._builder.input(name, TensorType(operand.dtype, operand.shape))
        self._tensors[made] = operand
        return made

    def results(self, values: Sequence[Value]) -> Any:
        """The tensors of a graph's outputs; one tensor if it has one.  Raises UsageError for an
        operator that no tensor expression describes.
        """
        graph = decompose(dce(self._builder.finish(values)))
        known = dict(zip(graph.inputs, self._tensors.values(), strict=True))
        known |= {c.value: _constant(c.data.array) for c in graph.constants}
        for node in graph.nodes:
            if type(node.op).compute is Op.compute:
                raise UsageError(
                    f"topi: no tensor expression describes the operator {node.op.name}"
                )
            made = node.op.compute(*(known[v] for v in node.inputs))
            tensors = made if isinstance(made, tuple) else (made,)
            known |= dict(zip(node.outputs, tensors, strict=True))
        found = tuple(known[v] for v in graph.outputs)
        return found[0] if len(found) == 1 else found


def _held(number: Any, dtype: DType) -> np.ndarray:
    """A number as an element of `dtype`.  Fractions of a float type are rounded."""
    given = np.asarray(number)
    if given.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            made = given.astype(dtype.numpy)
        is_rounded = dtype.is_float and given.dtype.kind == "f"
        if is_rounded and np.array_equal(np.isfinite(made), np.isfinite(given)):
            return made
        if made.tolist() == given.tolist():  # Python compares integers and floats exactly
            return made
    raise UsageError(
        f"topi: expected a number that the type {type_name(dtype)} of the tensors holds, found "
        f"{shown(number)}; cast a tensor first"
    )


def _constant(array: np.ndarray) -> te.Tensor:
    if array.size != 1:
        raise UsageError(f"topi: expected constants of one element, found shape {array.shape}")
    return full(array.shape, to_dtype(array.dtype), array.item())


def apply(op: Op, *inputs: te.Tensor) -> Any:
    """The tensors of an operator of Tilesmith; one tensor if it has one result.  Raises UsageError
    for an operator that no tensor expression describes, ModelError for inputs that do not fit.
    """
    b = Builder()
    operands = _Operands(b)
    return operands.results(flat(b.add(op, *(operands.value(t, t.dtype) for t in inputs))))


def _applied(name: str, *given: Any, **attributes: Any) -> Any:
    """The tensors of an operator of Relay for its operands and attributes.

    Raises UsageError for operands without a tensor and numbers that its type does not hold,
    ModelError or UnsupportedError for a call that the operator does not have.
    """
    b = FoldingBuilder()
    operands = _Operands(b)
    typed = given[1:] if name == "where" else given  # the condition has a type of its own
    types = [x.dtype for x in flat(_plain(typed)) if isinstance(x, te.Tensor)]
    if not types:
        raise UsageError(f"topi.{name}: expected tensors, found {shown(typed)}")
    slots = operands.value(given, types[0])
    made = {k: _plain(v) for k, v in attributes.items()}
    node = RelayNode(b, name, "", _no_graph, _no_graph, name, slots, made)
    function = import_function(f"topi.{name}", name)
    try:
        results = flat(function(node))
    except (ArithmeticError, LookupError, TypeError, ValueError) as e:
        # The call has operands or numbers that the import function does not expect.
        raise ModelError(f"topi.{name}: {e}") from e
    node.check_all_read()
    return operands.results(results)


def _by_place(name: str) -> Callable[..., Any]:
    """The function of TVM's topi for an operator of Relay."""

    def call(*args: Any, **attributes: Any) -> Any:
        operands, more = divided(f"topi.{name}", name, TOPI, args, (te.Tensor,))
        twice = sorted(more.keys() & attributes.keys())
        if twice:
            raise UsageError(f"topi.{name}: expected {twice[0]} once, found it by place and name")
        return _applied(name, *operands, **more, **attributes)

    return call


def _no_graph(*_: Any) -> Any:
    raise UsageError("topi: expected an operator on tensors, found one on functions")


def _plain(value: Any) -> Any:
    """An attribute as Relay's text has it: tuples of numbers and texts."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return type_name(value) if isinstance(value, DType) else value


_RENAMED: Mapping[str, str] = {
    **{f"broadcast_{word}": name for word, name in (
        ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("div", "divide"),
        ("maximum", "maximum"), ("minimum", "minimum"))},
    "flip": "reverse",
    "identity": "copy",
}  # fmt: skip
"""Relay's names of TVM's functions."""


@checked(UsageError)
def elemwise_sum(xs: Sequence[te.Tensor]) -> te.Tensor:
    """The sum of tensors of one shape.  Raises UsageError for none."""
    if not xs:
        raise UsageError("topi.elemwise_sum: expected a list of tensors, found none")
    return reduce(partial(_applied, "add"), xs)


@checked(UsageError)
def full(shape: Sequence[Any], dtype: str | DType, fill_value: float) -> te.Tensor:
    value = te.const(fill_value, to_dtype(dtype))
    return te.compute(tuple(shape), lambda *i: value, name="full")


@checked(UsageError)
def full_like(x: te.Tensor, fill_value: float) -> te.Tensor:
    return full(x.shape, x.dtype, fill_value)


@checked(UsageError)
def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    return _applied("nn.matmul", a, b, transpose_a=transp_a, transpose_b=transp_b)


@checked(UsageError)
def einsum(subscripts: str, *operand: te.Tensor) -> te.Tensor:
    return _applied("einsum", operand, equation=subscripts)


def _conv2d(
    inp: te.Tensor, filt: te.Tensor, strides: Any, padding: Any, dilation: Any = 1,
    data_layout: str = "NCHW", kernel_layout: str = "", out_dtype: Any = None, groups: int = 1,
) -> te.Tensor:  # fmt: skip
    """Convolution, of [N, H, W, C] with [KH, KW, C, OC] for the layout "NHWC"."""
    layouts = {"NCHW": "OIHW", "NHWC": "HWIO"}
    if data_layout not in layouts:
        raise UsageError(f"conv2d: expected the layout NCHW or NHWC, found {data_layout!r}")
    return _applied("nn.conv2d", inp, filt, strides=strides, padding=padding, dilation=dilation,
                    groups=groups, data_layout=data_layout, out_dtype=out_dtype,
                    kernel_layout=kernel_layout or layouts[data_layout])  # fmt: skip


def _in_layout(layout: str) -> Callable[..., te.Tensor]:
    def conv2d(
        Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any = 1,
        out_dtype: Any = None,
    ) -> te.Tensor:  # fmt: skip
        return _conv2d(Input, Filter, stride, padding, dilation, layout, "", out_dtype)

    return conv2d


def _depthwise(
    Input: te.Tensor, Filter: te.Tensor, stride: Any, padding: Any, dilation: Any = 1,
    out_dtype: Any = None,
) -> te.Tensor:  # fmt: skip
    """Convolution of each channel of [N, C, H, W] with its own filters [C, M, KH, KW]."""
    channels = Filter.shape[0]
    return _conv2d(Input, Filter, stride, padding, dilation, "NCHW", "", out_dtype, channels)  # type: ignore[arg-type]


def _pool2d(
    data: te.Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
) -> te.Tensor:  # fmt: skip
    """Maxima ("max") or means ("avg") of windows.  `padding` is (top, left, bottom, right)."""
    if pool_type not in ("max", "avg"):
        raise UsageError(f"pool2d: expected max or avg, found {pool_type!r}")
    return _applied(f"nn.{pool_type}_pool2d", data, pool_size=kernel, strides=stride,
                    dilation=dilation, padding=padding, layout=layout, ceil_mode=ceil_mode,
                    count_include_pad=count_include_pad)  # fmt: skip


def _dense(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: Any = None
) -> te.Tensor:
    """The product of [M, K] and the transpose of [N, K], plus a bias [N]."""
    made = _applied("nn.dense", data, weight, out_dtype=out_dtype)
    return made if bias is None else _applied("add", made, bias)


def _pad(
    data: te.Tensor, pad_before: Sequence[int], pad_after: Any = None, pad_value: float = 0.0
) -> te.Tensor:
    after = pad_after or pad_before
    if len(pad_before) != len(after):
        raise UsageError(
            f"topi.nn.pad: expected as many numbers before as after, found {pad_before} and {after}"
        )
    pairs = list(zip(pad_before, after, strict=True))
    return _applied("nn.pad", data, pad_width=pairs, pad_value=float(pad_value))


nn = Namespace(
    lambda name: _by_place(f"nn.{name}"),
    conv2d=_conv2d,
    conv2d_nchw=_in_layout("NCHW"),
    conv2d_nhwc=_in_layout("NHWC"),
    dense=_dense,
    depthwise_conv2d_nchw=_depthwise,
    pad=_pad,
    pool2d=_pool2d,
)
"""Operators of networks."""


def _schedule(outs: Any, *_: Any, **__: Any) -> te.Schedule:
    """The schedule that rules choose, whatever the operator."""
    results = tuple(outs) if isinstance(outs, (tuple, list)) else (outs,)
    stages = producers_first(t.op for t in results)
    inputs = {t: None for read in stages.values() for t in read if isinstance(t.op, Placeholder)}
    current = Target.current()
    return auto_schedule((*inputs, *results), None if current is None else current.native)


def _schedule_named(name: str) -> Callable[..., te.Schedule]:
    if not name.startswith("schedule_"):
        raise UsageError(f"topi has no schedule {name!r}: expected schedule_...")
    return _schedule


generic = x86 = arm_cpu = cuda = Namespace(_schedule_named)


ELSEWHERE = {
    "tag": "no tag: rules see the expressions themselves",
    "testing": "NumPy",
    **dict.fromkeys(("util", "utils"), "Python's own functions"),
}
"""What to use for names of TVM."""


def __dir__() -> list[str]:
    own = {n for n, v in globals().items()
           if getattr(v, "__module__", "") == __name__ or isinstance(v, Namespace)}  # fmt: skip
    return sorted(n for n in {*own, *_RENAMED, *operator_names("")} if n[0] != "_")


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ELSEWHERE:
        elsewhere("topi", name, ELSEWHERE)
    of_relay = _RENAMED.get(name, name)
    import_function(f"topi.{name}", of_relay)  # an unknown name is refused here
    return _by_place(of_relay)
