"""Declarations of dot-product instructions of the form:

    c[l] += sum over k of a[k] * w[l, k]

Each lane of the result adds the products of `depth` neighbours in `w` with the `depth` elements of
`a`, which all lanes share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith import te
from tilesmith.ir.expr import Expr
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic


def lane_dot(
    name: str,
    lanes: int,
    depth: int,
    types: tuple[str, str, str],
    emit: Callable[..., Any],
    features: tuple[str, ...],
    tolerance: float = 0.0,
    fmas: float | str = 1.0,
    scratch: int = 0,
) -> TensorIntrinsic:
    """Declare a dot-product instruction of the form above.

    lanes: lanes of the result.
    depth: number of products in each lane.
    types: element types of `a`, `w` and the result.
    emit: writes the instruction, given the code, the old result, `a` repeated for each lane, and
        `w`.
    tolerance, fmas, scratch: as for `te.decl_tensor_intrin`.
    """
    of_a, of_w, of_c = types
    a = te.placeholder((depth,), of_a, "a")
    w = te.placeholder((lanes, depth), of_w, "w")
    k = te.reduce_axis(depth, "k")

    def term(n: Expr) -> Expr:
        return a[k].astype(of_c) * w[n, k].astype(of_c)

    c = te.compute((lanes,), lambda n: te.sum(term(n), axis=k), "c")

    def write(code: Any, old: Any, a: Any, w: Any) -> Any:
        return emit(code, old, code.repeated(a, lanes), w)

    return te.decl_tensor_intrin(
        name, c, write, features=features, tolerance=tolerance, fmas=fmas, scratch=scratch
    )


def matrix_dot(
    name: str,
    depth: int,
    types: tuple[str, str, str],
    emit: Callable[..., Any],
    features: tuple[str, ...],
    tolerance: float = 0.0,
) -> TensorIntrinsic:
    """Declare an instruction that multiplies two rows with two columns of `depth` elements: `c[i,
    j] += sum over k of a[i, k] * w[j, k]`.  A row has 8 bytes; rows have any stride.
    """
    of_a, of_w, of_c = types
    a = te.placeholder((2, depth), of_a, "a")
    w = te.placeholder((2, depth), of_w, "w")
    k = te.reduce_axis(depth, "k")
    c = te.compute(
        (2, 2), lambda i, j: te.sum(a[i, k].astype(of_c) * w[j, k].astype(of_c), axis=k), "c"
    )
    return te.decl_tensor_intrin(
        name, c, emit, load=_load_pair, features=features, tolerance=tolerance
    )


def _load_pair(code: Any, operand: Any, pointer: Any, distance: int) -> Any:
    """Load two rows of a matrix as one vector."""
    _, depth = operand.shape
    element = f"i{operand.dtype.bits}"
    if distance == depth * operand.dtype.bytes:
        return code.load(pointer, f"<{2 * depth} x {element}>")
    row = f"<{depth} x {element}>"
    return code.joined(code.load(pointer, row), code.load(pointer, row, distance))
