"""Long sums for few elements: blocks divide the terms, and a second launch adds the partial sums.

    C[i, j] = sum(A[i, k] * B[k, j] over k)

    C_rf[part, i, j] = sum(A[i, part * n + k] * B[part * n + k, j] over n values of k)   # a launch
    C[i, j] = sum(C_rf[part, i, j] over part)                                            # a launch

The partial sums are in the kernel's workspace.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.ir.expr import same
from tilesmith.ir.layout import Layout, LayoutDim
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.sketch.structure import StageBody
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Compute, IterVar

from .blocks import bind_elements, block_size


def parts_of(
    op: Compute, blocks: int, tile: tuple[int, int], target: Target, multiple: int = 1
) -> int:
    """The number of parts into which the terms of a product are divided; 1 for undivided sums.

    blocks: number of blocks if sums are not divided.
    tile: rows and columns of the result that a block computes.
    multiple: a divisor of the number of terms in a part.

    The blocks of all parts run at the same time.  Parts have the same number of terms.  Storing and
    loading the partial sums moves no more elements than loading the operands.
    """
    assert target.device is not None
    length, (height, width) = divided_axis(op).extent, tile
    if not isinstance(length, int) or not blocks:
        return 1
    most = min(target.device.units // blocks, length)
    fitting = (
        n
        for n in range(most, 1, -1)
        if not length % (n * multiple) and length // n * (height + width) >= 2 * height * width
    )
    return next(fitting, 1)


def parts_of_elements(body: StageBody, target: Target) -> int:
    """Like `parts_of`, for a product of a vector and a matrix.  Each thread computes one element,
    and neighbouring threads read neighbouring elements.  1 for undivided sums and for any other
    stage.
    """
    factors, op = product_of_loads(body.op), body.op
    if factors is None or not op.axis:
        return 1
    last = op.axis[-1].var
    reads = [r for r in body.reads if any(same(r.load.indices, f.indices) for f in factors)]
    if any(r.stride(last) not in (0, 1) for r in reads) or not any(r.stride(last) for r in reads):
        return 1
    threads = block_size(target)
    return parts_of(op, -(-body.spatial // threads), (1, threads), target)


def divided_axis(op: Compute) -> IterVar:
    """The axis of a sum that is divided: the longest."""
    return max(op.reduce_axis, key=lambda a: expected_size([a.extent]))


def divide_sum(s: Schedule, name: str, out: str, parts: int, target: Target) -> str:
    """Divide the terms of the sum `name` into parts, and add up the parts per element of `out`.
    `out` is `name` or its elementwise reader.  Returns the stage of partial sums; its first axis
    numbers parts.
    """
    stage = s[name]
    terms = divided_axis(stage.state.compute)
    part, _ = stage.split(terms, nparts=parts)
    partial = s.rfactor(stage.op.outputs[0], part)
    layout = s[out].state.layout
    if layout is not None:  # the partial sums are stored in the order of `out`
        behind = (replace(d, axis=d.axis + 1) for d in layout.dims)
        s.transform_layout(partial, Layout((LayoutDim(0), *behind)))
    thread = bind_elements(s[out], target)
    if out != name:
        assert thread is not None, "products have axes"
        s[name].set_scope("register")
        s[name].compute_at(s[out], thread)
    return s[partial].name
