"""MXNet's samplers of images and regions, and the boxes of detectors."""

from __future__ import annotations

import numpy as np

from tilesmith.frontend.common.boxes import column
from tilesmith.frontend.common.networks import LayerNode
from tilesmith.frontend.common.regions import max_regions
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.mxnet.registry import mxnet_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ops import matmul as mm
from tilesmith.ops import sample, slicing


@mxnet_op("BilinearSampler")
def bilinear_sampler(n: LayerNode) -> Result:
    return _sampled(n, n.input(0), n.input(1).transpose(0, 2, 3, 1))


def _sampled(n: LayerNode, x: Value, grid: Value) -> Value:
    return n.add(sample.GridSample("linear", "zeros", True), x, grid)


def _grid(n: LayerNode, theta: Value) -> Value:
    """A regular grid of positions after affine transforms `theta`, [N, H, W, 2]."""
    if n.attr_string("transform_type", "affine") != "affine":
        n.unsupported(f"transform_type {n.attr_string('transform_type')}")
    sizes = n.attr_ints("target_shape")
    theta = n.reshape(theta, (theta.type.shape[0], 2, 3))
    return n.add(sample.AffineGrid(sizes, True), theta)


@mxnet_op("GridGenerator")
def grid_generator(n: LayerNode) -> Result:
    return _grid(n, n.input()).transpose(0, 3, 1, 2)


@mxnet_op("SpatialTransformer")
def spatial_transformer(n: LayerNode) -> Result:
    return _sampled(n, n.input(0), _grid(n, n.input(1)))


def _pooled_size(n: LayerNode, rois: Value) -> tuple[int, int]:
    size = n.attr_ints("pooled_size")
    if len(size) != 2 or rois.type.rank != 2 or n.extent(rois, 1) != 5:
        n.bad(f"expected two sizes and rois [R, 5], found {list(size)} and {rois.type}")
    return size[0], size[1]


@mxnet_op("ROIPooling", "_npx_roi_pooling")
def roi_pooling(n: LayerNode) -> Result:
    rois = n.input(1)
    size = _pooled_size(n, rois)
    return max_regions(n, n.input(), rois, size, n.attr_float("spatial_scale"))


@mxnet_op("_contrib_ROIAlign")
def roi_align(n: LayerNode) -> Result:
    rois = n.input(1)
    if n.attr_flag("position_sensitive", False):
        n.unsupported("position_sensitive")
    op = sample.RoiAlign(
        _pooled_size(n, rois),
        max(n.attr_int("sample_ratio", -1), 0),
        n.attr_float("spatial_scale"),
        "avg",
        n.attr_flag("aligned", False),
    )
    corners = n.add(slicing.Slice((1,), (5,), (1,), (1,)), rois)
    return n.add(op, n.input(), corners, column(n, rois, 0).cast(i64))


@mxnet_op("_contrib_MultiBoxPrior", "_npx_multibox_prior")
def multibox_prior(n: LayerNode) -> Result:
    rows, columns = n.shape(n.input())[2:4]
    sizes, ratios = n.attr_floats("sizes", (1.0,)), n.attr_floats("ratios", (1.0,))
    steps, offsets = n.attr_floats("steps", (-1.0, -1.0)), n.attr_floats("offsets", (0.5, 0.5))
    high, wide = (s if s > 0 else 1 / d for s, d in zip(steps, (rows, columns), strict=True))
    roots = np.sqrt(np.array(ratios))
    pairs = [*((s, roots[0]) for s in sizes), *((sizes[0], r) for r in roots[1:])]
    halves = np.array([(s * rows / columns * r / 2, s / r / 2) for s, r in pairs])
    across, down = (np.arange(columns) + offsets[1]) * wide, (np.arange(rows) + offsets[0]) * high
    x, y = np.meshgrid(across, down)
    centres = np.stack([x, y], -1).reshape(-1, 1, 2)
    boxes = np.concatenate([centres - halves, centres + halves], -1).reshape(1, -1, 4)
    boxes = np.clip(boxes, 0, 1) if n.attr_flag("clip", False) else boxes
    return n.const(boxes.astype(np.float32))


# Attention of GluonNLP: one tensor has the projected queries, keys and values


def _heads(n: LayerNode, parts: int) -> list[Value]:
    """Split the input [steps, batch, all] into `parts` tensors [batch * heads, steps, width]."""
    x, heads = n.input(), n.attr_int("heads", low=1)
    steps, batch, total = x.type.shape
    width = n.builder.divided("attention", total, parts * heads, "the width", n.loc)
    split = n.reshape(x, (steps, batch, heads, parts, width)).transpose(3, 1, 2, 0, 4)
    made = n.add(slicing.Split(0, (1,) * parts), split)
    return [n.reshape(p, (extents.product((batch, heads)), steps, width)) for p in made]


@mxnet_op("_contrib_interleaved_matmul_selfatt_qk")
def self_attention_scores(n: LayerNode) -> Result:
    query, key, _ = _heads(n, 3)
    width = n.extent(query, 2)
    return n.add(mm.MatMul(transpose_b=True), query * width**-0.5, key)


@mxnet_op("_contrib_interleaved_matmul_selfatt_valatt")
def self_attention_values(n: LayerNode) -> Result:
    *_, value = _heads(n, 3)
    y, (steps, batch, _) = n.add(mm.MatMul(), n.input(1), value), n.input().type.shape
    heads, width = n.attr_int("heads"), value.type.shape[2]
    y = n.reshape(y, (batch, heads, steps, width)).transpose(2, 0, 1, 3)
    return n.reshape(y, (steps, batch, extents.product((heads, width))))
