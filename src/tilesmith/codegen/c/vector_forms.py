"""Forms of vector expressions with a short C text: contiguous indices, masks, constant accesses."""

from __future__ import annotations

from tilesmith.codegen.lane_loads import known_lanes
from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Const, Expr
from tilesmith.ir.simplify import simplify

from .prelude import is_narrow

Access = tuple[int, int]
"""An access to contiguous elements at a constant index: the first element, and their number."""


def padded(lanes: int) -> int:
    """The number of lanes of the C vector type: `lanes`, rounded up to a power of two."""
    return 1 << (lanes - 1).bit_length()


def value_name(dtype: DType) -> str:
    """The element type of C vectors that hold values of `dtype`."""
    return "f32" if is_narrow(dtype) else dtype.name


def value_bits(dtype: DType) -> int:
    """The bits of an element of C vectors that hold values of `dtype`."""
    return 32 if is_narrow(dtype) else 8 * dtype.bytes


def contiguous(indices: tuple[Expr, ...]) -> Expr | None:
    """The index of the first element of a contiguous access; None for other accesses."""
    index = indices[0] if len(indices) == 1 else None
    if not isinstance(index, ir.Ramp) or not isinstance(index.stride, Const):
        return None
    return index.base if index.stride.value == 1 else None


def holds_everywhere(mask: Expr) -> Expr | None:
    """A scalar condition under which a mask holds in all lanes; None for masks of other forms."""
    if isinstance(mask, ir.Broadcast):
        return mask.value
    if isinstance(mask, ir.Binary) and mask.op == "and":
        a, b = holds_everywhere(mask.a), holds_everywhere(mask.b)
        return None if a is None or b is None else ir.Binary("and", a, b)
    if not isinstance(mask, ir.Compare) or mask.op not in ("lt", "le"):
        return None
    least, most = _range(mask.b), _range(mask.a)
    return None if least is None or most is None else ir.Compare(mask.op, most[1], least[0])


def _range(e: Expr) -> tuple[Expr, Expr] | None:
    """The values of the smallest and the largest lane of an index; None if its form does not show
    them.
    """
    if isinstance(e, ir.Broadcast):
        return e.value, e.value
    if not isinstance(e, ir.Ramp) or not isinstance(e.stride, Const) or e.stride.value < 0:
        return None
    return e.base, simplify(e.base + int(e.stride.value) * (e.lanes - 1))


def is_below(amount: Expr, bits: int) -> bool:
    """Whether every lane of a shift amount is a constant from 0 to `bits` - 1."""
    value = amount.value if isinstance(amount, ir.Broadcast) else None
    return isinstance(value, Const) and 0 <= value.value < bits


def is_safe(e: Expr, cond: Expr | None) -> bool:
    """Whether `e` may be evaluated where `cond` does not hold.  It may if it checks no index, and
    each of its loads has a mask that implies `cond`.
    """
    left, seen = [(e, cond)], set[tuple[Expr, Expr | None]]()
    while left:
        item = e, cond = left.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(e, ir.Load):
            if cond is None or e.mask is None or not _contains(e.mask, cond):
                return False
            left += [(i, None) for i in e.indices]
        elif isinstance(e, ir.Call) and e.name == "check_index":
            return False
        else:
            left += [(c, cond) for c in e.children]
    return True


def _contains(mask: Expr, cond: Expr) -> bool:
    if mask is cond:
        return True
    if not isinstance(mask, ir.Binary) or mask.op != "and":
        return False
    return _contains(mask.a, cond) or _contains(mask.b, cond)


def constant_first(indices: tuple[Expr, ...]) -> int | None:
    """The first element of an access, if its index is constant, else None."""
    index = indices[0] if len(indices) == 1 else None
    base = index.base if isinstance(index, ir.Ramp) else index
    return int(base.value) if isinstance(base, Const) else None


def constant_access(indices: tuple[Expr, ...], lanes: int) -> Access | None:
    """The contiguous elements of an access at a constant index; None for other accesses."""
    first = constant_first(indices)
    near = lanes == 1 or contiguous(indices) is not None
    return (first, lanes) if first is not None and near else None


def holds(mask: Expr | None) -> bool:
    """Whether a mask certainly holds in all lanes."""
    return mask is None or all(known_lanes(mask) or (False,))
