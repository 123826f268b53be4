"""Code shared by the operator families: checks, broadcasting, accumulation types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn, TypeVar

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.dtypes import DType, f32
from tilesmith.ir.expr import Expr, ExprLike, cast, const
from tilesmith.ir.extents import product as product
from tilesmith.ir.extents import strides_of as strides_of
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.support.errors import ModelError, OpenDimensionError
from tilesmith.te import tensor as te

T = TypeVar("T")

FLOATS = ("float",)
INTEGERS = ("int", "uint")
NUMBERS = ("float", "int", "uint")
BOOLS = ("bool",)
ANY = ("float", "int", "uint", "bool")


def reject(op: str, expected: str, found: object) -> NoReturn:
    """Raise the ModelError for an input that is not valid.  The builder adds the node's name."""
    raise ModelError(f"{op}: expected {expected}, found {found}")


def shape_text(shape: Sequence[Dim]) -> str:
    return f"[{','.join(str(d) for d in shape)}]"


def check_count(op: str, inputs: Sequence[object], low: int, high: int | None = None) -> None:
    """Reject `inputs` if their number is outside `low`..`high` (default: exactly `low`)."""
    high = low if high is None else high
    if not low <= len(inputs) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        reject(op, f"{wanted} input{'s' if wanted != '1' else ''}", len(inputs))


def only(op: str, inputs: Sequence[T]) -> T:
    """The only input of an operator.  Raises ModelError for another number of inputs."""
    check_count(op, inputs, 1)
    return inputs[0]


def check_arithmetic(op: str, x: te.Tensor | TensorType, what: str = "an input") -> None:
    """Reject element types without arithmetic, whose elements can only be moved and converted."""
    if x.dtype.is_storage:
        described = f"{x.dtype}{shape_text(x.shape)}"
        reject(op, f"{what} converted to a type that has arithmetic", described)


def check_kind(
    op: str, x: te.Tensor | TensorType, kinds: Iterable[str], what: str = "an input"
) -> None:
    """Reject an element type whose kind is not in `kinds`.  Unless `kinds` is `ANY`, also reject a
    type without arithmetic.
    """
    if tuple(kinds) != ANY:
        check_arithmetic(op, x, what)
    if x.dtype.kind not in kinds:
        reject(op, f"{what} of kind {' or '.join(kinds)}", f"{x.dtype}{shape_text(x.shape)}")


def check_same_dtype(op: str, tensors: Sequence[te.Tensor]) -> None:
    if len({t.dtype for t in tensors}) > 1:
        reject(op, "inputs of one element type", ", ".join(str(t.dtype) for t in tensors))


def check_factors(op: str, a: te.Tensor, b: te.Tensor, to: DType | None) -> None:
    """Reject factors that are not numbers.  If `to`, the type of the result, is None, also reject
    factors of different types.
    """
    if to is None:
        check_same_dtype(op, (a, b))
    for x in (a, b):
        check_kind(op, x, NUMBERS)


def normalize_axis(op: str, axis: int, rank: int) -> int:
    """`axis` counted from the front.  Raises ModelError if it is outside -rank..rank-1."""
    if not -rank <= axis < rank:
        reject(op, f"an axis in {-rank}..{rank - 1} for rank {rank}", axis)
    return axis % rank


def normalize_axes(op: str, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, sorted (None: all).  Raises ModelError for repeated axes."""
    if axes is None:
        return tuple(range(rank))
    normalized = sorted(normalize_axis(op, a, rank) for a in axes)
    if len(set(normalized)) != len(normalized):
        reject(op, "each axis once", tuple(axes))
    return tuple(normalized)


def static(op: str, dim: Dim, what: str) -> int:
    """`dim` as an int.  Raises OpenDimensionError if it is symbolic: `op` can't handle that."""
    if not isinstance(dim, int):
        raise OpenDimensionError(
            f"{op}: {what} is the symbolic {dim}; give it a number with shapes=", (dim,)
        )
    return dim


class UnequalDims(OpenDimensionError):
    """Raised if two extents must be equal but are equal only for some sizes.  A frontend then
    restricts the sizes to those.

    first, second: the extents.
    """

    def __init__(self, first: Dim, second: Dim, message: str) -> None:
        super().__init__(message, (first, second))
        self.first, self.second = first, second


def equal(op: str, a: Dim, b: Dim) -> bool:
    """Whether two extents are equal.  Raises UnequalDims if the answer depends on the sizes."""
    known = extents.are_equal(a, b)
    if known is None:
        raise UnequalDims(
            a,
            b,
            f"{op}: expected extents that are equal or broadcast, found {a} and {b}; give "
            "numbers with shapes=",
        )
    return known


def equal_shapes(op: str, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are equal, with `equal` for each extent."""
    return len(a) == len(b) and all(equal(op, d, e) for d, e in zip(a, b, strict=True))


def divided(op: str, dim: Dim, by: int, what: str) -> Dim:
    """`dim / by`.  Raises ModelError if there is a remainder, UnequalDims if there may be one."""
    exact_quotient = extents.quotient(dim, by) if by > 0 else None
    if exact_quotient is not None:
        return exact_quotient
    if isinstance(dim, int):
        reject(op, f"{what} divisible by {by}", dim)
    raise UnequalDims(
        dim,
        extents.product((as_dim(dim // by), by)),
        f"{op}: expected {what} divisible by {by}, found the symbolic {dim}; give it a number with "
        "shapes=",
    )


def broadcast_shapes(op: str, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The common shape by NumPy's rules.  Raises ModelError if there is none."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            if _is_one(result[i]):
                result[i] = d
            elif not _is_one(d) and not equal(op, result[i], d):
                reject(op, "shapes that broadcast", " and ".join(shape_text(s) for s in shapes))
    return tuple(result)


def _is_one(d: Dim) -> bool:
    return same_dim(d, 1)


def broadcast_index(
    shape: Sequence[Dim], index: Sequence[Expr], out_shape: Sequence[Dim]
) -> tuple[ExprLike, ...]:
    """The index into a tensor of `shape` for element `index` of its broadcast to `out_shape`."""
    skip = len(out_shape) - len(shape)
    return tuple(
        const(0) if _is_one(d) and not _is_one(o) else i
        for d, o, i in zip(shape, out_shape[skip:], index[skip:], strict=True)
    )


def broadcast_load(x: te.Tensor, index: Sequence[Expr], out_shape: Sequence[Dim]) -> Expr:
    return x[tuple(broadcast_index(x.shape, index, out_shape))]


def accumulator(dtype: DType) -> DType:
    """The type in which sums of `dtype` are accumulated: f32 for 16-bit floats, else `dtype`."""
    return f32 if dtype.is_float and dtype.bits == 16 else dtype


def widen(e: Expr, to: DType | None = None) -> Expr:
    """`e` converted to `to`, by default to its accumulation type."""
    return cast(e, to or accumulator(e.dtype))


def narrow(x: te.Tensor, dtype: DType, name: str = "narrow") -> te.Tensor:
    """A stage that rounds the accumulated values `x` to `dtype`; `x` itself if it has that type."""
    if x.dtype is dtype:
        return x
    return te.compute(x.shape, lambda *i: cast(x[i], dtype), name, axis_names_of(x))


def axis_names_of(x: te.Tensor) -> list[str] | None:
    return [a.name for a in x.op.axis] if isinstance(x.op, te.Compute) else None


def widen_array(x: np.ndarray, to: DType | None = None) -> np.ndarray:
    """The NumPy counterpart of `widen`."""
    if to is not None:
        return x.astype(to.numpy)
    is_narrow = x.dtype == np.float16 or x.dtype.name == "bfloat16"
    return x.astype(np.float32) if is_narrow else x


def exact(x: np.ndarray) -> np.ndarray:
    """`x` in the type in which references of composite operators compute: f64 for floats."""
    return x if x.dtype.kind in "iub" else x.astype(np.float64)
