"""What `benchmarks/movement.py` compares with besides ONNX Runtime: NumPy and PyTorch.

Both write into memory that is theirs before the first run, where they have a form that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Add
from tilesmith.ops.gather import Gather
from tilesmith.ops.pool import AvgPool, GlobalAvgPool, MaxPool
from tilesmith.ops.resize import Resize
from tilesmith.ops.shape import DepthToSpace, Expand, SpaceToDepth, Transpose
from tilesmith.ops.slicing import Concat, Flip, Pad, Slice, Split, Tile

Run = Callable[[], object]


def blocks(op: SpaceToDepth | DepthToSpace, shape: Sequence[int]) -> tuple[Any, Any]:
    """The shape that splits, and the permutation that brings the parts together."""
    n, c, h, w = shape
    b = op.block
    if isinstance(op, SpaceToDepth):
        return (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)
    return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)


def slices(op: Slice, rank: int) -> tuple[slice, ...]:
    found = [slice(None)] * rank
    for axis, start, end, step in zip(op.axes, op.starts, op.ends, op.steps, strict=True):
        found[axis] = slice(start, end, step)  # type: ignore[call-overload]  # numbers here
    return tuple(found)


def in_numpy(op: Op, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Run | None:
    """The operator in NumPy, into `results`; None where NumPy does not have it."""
    a, out = arrays[0], results[0]
    view: np.ndarray | None = None
    match op:
        case Transpose():
            view = a.transpose(op.perm)
        case Slice():
            view = a[slices(op, a.ndim)]
        case Flip():
            view = np.flip(a, op.axes)
        case Expand():
            view = np.broadcast_to(a, out.shape)
        case SpaceToDepth() | DepthToSpace():
            shape, perm = blocks(op, a.shape)
            parts = a.reshape(shape).transpose(perm)
            return lambda: np.copyto(out.reshape(parts.shape), parts)
        case Split():
            views = np.split(a, np.cumsum(op.sizes)[:-1], op.axis)
            return lambda: [np.copyto(r, v) for r, v in zip(results, views, strict=True)]
        case Add():
            return lambda: np.add(*arrays, out=out)
        case Gather():
            return lambda: np.take(a, arrays[1], op.axis, out=out, mode="clip")
        case Concat():
            return lambda: np.concatenate(arrays, op.axis, out=out)
        case Tile():
            return lambda: np.copyto(out, np.tile(a, op.repeats))
        case Pad():
            half = a.ndim
            widths = [(int(op.pads[i]), int(op.pads[i + half])) for i in range(half)]
            mode: Any = op.mode
            return lambda: np.copyto(out, np.pad(a, widths, mode))
    if view is None:
        return None
    return lambda: np.copyto(out, view)


def in_torch(op: Op, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Run | None:
    """The operator in PyTorch, into `results`; None where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    f = torch.nn.functional
    tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]
    outs = [torch.from_numpy(r) for r in results]
    a, out = tensors[0], outs[0]
    match op:
        case Transpose():
            return lambda: out.copy_(a.permute(op.perm))
        case Slice():
            return lambda: out.copy_(a[slices(op, a.ndim)])
        case Flip():
            return lambda: out.copy_(torch.flip(a, op.axes))
        case Expand():
            return lambda: out.copy_(a.expand(out.shape))
        case SpaceToDepth() | DepthToSpace():
            shape, perm = blocks(op, tuple(a.shape))
            parts = a.reshape(shape).permute(perm)
            return lambda: out.view(parts.shape).copy_(parts)
        case Split():
            views = torch.split(a, list(op.sizes), op.axis)  # type: ignore[arg-type]  # numbers
            return lambda: [r.copy_(v) for r, v in zip(outs, views, strict=True)]
        case Add():
            return lambda: torch.add(a, tensors[1], out=out)
        case Gather():
            return lambda: torch.index_select(a, op.axis, tensors[1], out=out)
        case Concat():
            return lambda: torch.cat(tensors, op.axis, out=out)
        case Tile():
            return lambda: out.copy_(torch.tile(a, op.repeats))
        case Pad():
            half = a.ndim
            widths = [int(op.pads[i + e]) for i in range(half - 1, 1, -1) for e in (0, half)]
            return lambda: out.copy_(f.pad(a, widths, op.mode))
        case MaxPool():
            pads = op.pads[:2] if op.pads else (0, 0)
            return lambda: out.copy_(f.max_pool2d(a, op.kernel, op.strides, pads))
        case AvgPool():
            inside, pads = bool(op.count_include_pad), op.pads[:2] if op.pads else (0, 0)
            return lambda: out.copy_(
                f.avg_pool2d(a, op.kernel, op.strides, pads, count_include_pad=inside)
            )
        case GlobalAvgPool():
            return lambda: out.copy_(f.adaptive_avg_pool2d(a, 1))
        case Resize():
            mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[op.mode]
            size = out.shape[2:]
            return lambda: out.copy_(f.interpolate(a, size, mode=mode))
    return None


def peers(
    op: Op, arrays: Sequence[np.ndarray], wanted: Sequence[np.ndarray], threads: int
) -> dict[str, Run]:
    """By engine, the operator on row-major arrays; NumPy only for one thread, since it has no
    more.  Raises AssertionError for other results than `wanted`.
    """
    found: dict[str, Run] = {}
    for name, make in (("NumPy", in_numpy), ("PyTorch", in_torch)):
        if name == "NumPy" and threads > 1:
            continue
        results = [np.zeros(w.shape, w.dtype) for w in wanted]
        run = make(op, arrays, results)
        if run is None:
            continue
        if name == "PyTorch":
            import torch

            torch.set_num_threads(threads)
        run()
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=name)
        found[name] = run
    return found
