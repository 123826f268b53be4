"""Lowering: the buffers behind tensors, their shapes, scopes and layouts."""

from __future__ import annotations

import math

from tilesmith.ir.expr import Expr, const
from tilesmith.ir.layout import Layout
from tilesmith.ir.loop_tables import SCOPES, Scope
from tilesmith.ir.types import Dim
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import ScheduleError

from .relations import ceil_div, dim
from .state import At, StageState

STACK_LIMIT = 32 << 10
"""Largest size in bytes at which an attached stage without a chosen scope goes on the stack."""


STACK_BYTES = 512 << 10
"""Upper bound on the stack that a kernel uses in each thread, in bytes.  This is the size of the
smallest thread stack on common systems (macOS).
"""


def parameter(stage: StageState, value: int) -> Buffer:
    """The buffer that the caller passes for a value of `stage`."""
    tensor = stage.op.outputs[value]
    shape = physical(stage.layout, tensor.shape)
    return Buffer(tensor.name, tensor.dtype, shape, "param")


def allocation(stage: StageState, value: int, shape: tuple[Dim, ...], stack: int) -> Buffer:
    """The buffer that the kernel allocates for `shape` elements of a value of `stage`.

    stack: bytes of stack that are left for the buffer.

    Raises ScheduleError if the schedule chose the stack and the buffer is larger than that.
    """
    tensor = stage.op.outputs[value]
    layout = stage.layout.dense if stage.layout else None  # allocations have no space for halos
    sizes = aligned(stage, shape) if stage.aligns else physical(layout, shape)
    if stage.buffers > 1 and isinstance(stage.attach, At):
        sizes = (stage.buffers, *sizes)
    total = tensor.dtype.bytes
    for n in sizes:
        total = total * n if isinstance(n, int) and isinstance(total, int) else None
    scope: Scope
    may_move = stage.is_adaptable and total is None
    if stage.scope is not None and not (may_move and SCOPES[stage.scope].is_sized):
        scope = stage.scope
        if total is None and SCOPES[scope].is_sized:
            raise ScheduleError(
                f"{stage.name} is to be in {scope} memory, which needs a constant size; its part "
                "here is "
                f"{' x '.join(map(str, sizes))} elements: use the heap, or attach it where its "
                "part is constant"
            )
        if scope == "stack" and total is not None and total > stack:
            raise ScheduleError(
                f"{stage.name} is to be on the stack and has {total} bytes; a kernel may use "
                f"{STACK_BYTES} bytes of each thread's stack, and other stages and copies of "
                f"unrolled loops leave {stack} of them: set_scope('heap'), or attach it where its "
                "part is smaller"
            )
    elif isinstance(stage.attach, At) and total is not None and total <= min(STACK_LIMIT, stack):
        scope = "stack"
    else:
        scope = "heap"
    return Buffer(tensor.name, tensor.dtype, sizes, scope)


def bytes_of_stack(buffer: Buffer) -> int:
    """The bytes of stack that `buffer` takes."""
    # buffers on the stack have constant sizes
    sizes = [n for n in buffer.shape if isinstance(n, int)]
    return math.prod(sizes) * buffer.dtype.bytes if buffer.scope == "stack" else 0


def physical(layout: Layout | None, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Sizes in memory of a tensor of logical `shape`."""
    if layout is None:
        return tuple(dim(n) for n in shape)
    return tuple(dim(n) for n in layout.physical_shape(shape))  # type: ignore[arg-type]  # ints and Exprs mix


def halo(layout: Layout | None, axis: int, extent: Dim) -> tuple[int, Dim]:
    """The range of indices along `axis` of the elements and of the zeros around them: (first, one
    past the last).
    """
    for d in () if layout is None else layout.dims:
        if d.axis == axis and d.part == "whole":
            return -d.before, dim(extent + d.after)
    return 0, extent


def capacity(layout: Layout | None, axis: int, extent: Dim) -> tuple[int, Dim]:
    """The range of logical indices along `axis` that lie inside the memory: (first, one past the
    last).
    """
    if layout is not None:
        for d in layout.dims:
            if d.axis == axis and d.part == "outer":
                return 0, dim(ceil_div(extent, d.block) * d.block)
            if d.axis == axis and d.part == "whole":
                return -d.before, dim(extent + d.after)
    return 0, extent


def aligned(stage: StageState, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """`shape` with dimensions padded to the strides that storage_align requests."""
    sizes = list(shape)
    for axis, factor, offset in sorted(stage.aligns, reverse=True):
        inner = 1
        for n in sizes[axis + 2 :]:
            if not isinstance(n, int):
                raise ScheduleError(
                    f"storage_align of {stage.name} needs constant inner dimensions, found {n}"
                )
            inner *= n
        start = sizes[axis + 1]
        if not isinstance(start, int):
            raise ScheduleError(
                f"storage_align of {stage.name} needs constant inner dimensions, found {start}"
            )
        padded = next(
            (p for p in range(start, start + factor) if p * inner % factor == offset), None
        )
        if padded is None:
            raise ScheduleError(
                f"storage_align of {stage.name}: no padding of dimension {axis + 1} makes the "
                "stride of dimension "
                f"{axis} equal {offset} modulo {factor}, because further dimensions hold {inner} "
                "elements"
            )
        sizes[axis + 1] = padded
    return tuple(sizes)


def physical_indices(stage: StageState, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The physical indices of the element at logical `indices`."""
    if stage.layout is None or stage.layout.is_row_major:
        return indices
    mapped = stage.layout.map_indices(indices)
    return tuple(const(i) if isinstance(i, int) else i for i in mapped)
