"""The order of the arguments of TVM's functions on tensors, for calls without names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from tilesmith.support.arguments import shown
from tilesmith.support.errors import UsageError

Rows = Mapping[str, tuple[str, ...]]

OPERAND = "_"
"""The place of an operand in a row; other words of a row are names of attributes."""


def _rows(table: Mapping[str, str]) -> Rows:
    """The rows of a table that has several operators in a key, and a row as one text."""
    return {n: tuple(row.split()) for names, row in table.items() for n in names.split()}


def _pools(name: str) -> str:
    return " ".join(f"nn.{name.format(m)}_pool{n}d" for m in ("max", "avg") for n in (1, 2, 3))


_BLOCKS = "_ block_size layout"
_CONVOLUTION = "strides padding dilation groups"
_LAYOUTS = "data_layout kernel_layout out_layout"

RELAY = _rows({
    "all any max mean min prod sum": "_ axis keepdims exclude",
    "arange": "_ _ _ dtype",
    "argmax argmin": "_ axis keepdims exclude select_last_index",
    "argsort": "_ axis is_ascend dtype",
    "broadcast_to": "_ shape",
    "cast": "_ dtype",
    "clip": "_ a_min a_max",
    "concatenate stack": "_ axis",
    "cumprod cumsum": "_ axis dtype exclusive",
    "einsum": "_ equation",
    "expand_dims": "_ axis num_newaxis",
    "full": "_ shape dtype",
    "gather": "_ axis _",
    "gather_nd": "_ _ batch_dims index_rank",
    "image.grid_sample": "_ _ method layout padding_mode align_corners",
    "image.resize1d image.resize2d image.resize3d": "_ size",
    "layout_transform": "_ src_layout dst_layout",
    "logsumexp": "_ axis keepdims",
    "meshgrid": "_ indexing",
    "ndarray_size shape_of": "_ dtype",
    _pools("adaptive_{}"): "_ output_size layout",
    _pools("global_{}"): "_ layout",
    _pools("{}"): "_ pool_size strides dilation padding layout",
    "nn.batch_matmul": "_ _ out_dtype transpose_a transpose_b",
    "nn.batch_norm": "_ _ _ _ _ axis epsilon center scale",
    "nn.bias_add": "_ _ axis",
    "nn.conv1d nn.conv2d nn.conv3d":
        f"_ _ {_CONVOLUTION} channels kernel_size {_LAYOUTS} out_dtype",
    "nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose":
        f"_ _ strides padding dilation channels kernel_size groups {_LAYOUTS} output_padding",
    "nn.dense": "_ _ units out_dtype",
    "nn.depth_to_space": f"{_BLOCKS} mode",
    "nn.dropout": "_ rate",
    "nn.fast_softmax nn.log_softmax nn.softmax": "_ axis",
    "nn.group_norm": "_ _ _ num_groups axis epsilon center scale",
    "nn.instance_norm nn.layer_norm": "_ _ _ axis epsilon center scale",
    "nn.l2_normalize": "_ eps axis",
    "nn.leaky_relu": "_ alpha",
    "nn.lrn": "_ size axis bias alpha beta",
    "nn.matmul": "_ _ units out_dtype transpose_a transpose_b",
    "nn.mirror_pad": "_ pad_width mode",
    "nn.pad": "_ pad_width pad_value pad_mode",
    "nn.prelu": "_ _ axis",
    "nn.space_to_depth": _BLOCKS,
    "nn.upsampling": "_ scale_h scale_w layout method align_corners",
    "nn.upsampling3d": "_ scale_d scale_h scale_w layout method coordinate_transformation_mode",
    "one_hot": "_ _ _ depth axis dtype",
    "ones zeros": "shape dtype",
    "qnn.add qnn.subtract": "_ _ _ _ _ _ _ _ lhs_axis rhs_axis",
    "qnn.concatenate": "_ _ _ _ _ axis",
    "qnn.conv2d": f"_ _ _ _ _ _ kernel_size channels {_CONVOLUTION} {_LAYOUTS} out_dtype",
    "qnn.dense": "_ _ _ _ _ _ units out_dtype",
    "qnn.dequantize": "_ _ _ axis",
    "qnn.quantize": "_ _ _ axis out_dtype",
    "qnn.requantize": "_ _ _ _ _ axis rounding",
    "repeat": "_ repeats axis",
    "reshape": "_ newshape",
    "reverse": "_ axis",
    "reverse_sequence": "_ _ seq_axis batch_axis",
    "scatter scatter_add": "_ _ _ axis",
    "scatter_elements": "_ _ _ axis reduction",
    "scatter_nd": "_ _ _ mode",
    "sequence_mask": "_ _ mask_value axis",
    "slice_like": "_ _ axes",
    "sort": "_ axis is_ascend",
    "split": "_ indices_or_sections axis",
    "squeeze": "_ axis",
    "strided_slice": "_ begin end strides",
    "take": "_ _ axis batch_dims mode",
    "tile": "_ reps",
    "topk": "_ k axis ret_type is_ascend dtype",
    "transpose": "_ axes",
    "trilu": "_ _ upper",
    "variance": "_ axis keepdims exclude unbiased",
    "vision.all_class_non_max_suppression": "_ _ _ _ _ output_format",
    "vision.get_valid_counts": "_ score_threshold id_index score_index",
    "vision.non_max_suppression": "_ _ _ _ _ force_suppress top_k coord_start score_index "
        "id_index return_indices invalid_to_bottom",
    "vision.roi_align": "_ _ pooled_size spatial_scale sample_ratio layout mode",
    "vision.roi_pool": "_ _ pooled_size spatial_scale layout",
})  # fmt: skip
"""For a function of Relay, what its arguments without names are."""

_SAME = (
    "broadcast_to", "cast", "clip", "concatenate", "cumprod", "cumsum", "expand_dims", "gather",
    "layout_transform", "meshgrid", "nn.batch_norm", "nn.depth_to_space", "nn.l2_normalize",
    "nn.leaky_relu", "nn.log_softmax", "nn.prelu", "nn.softmax", "nn.space_to_depth",
    "nn.upsampling", "one_hot", "repeat", "reshape", "reverse", "reverse_sequence", "scatter",
    "scatter_add", "scatter_nd", "sequence_mask", "split", "squeeze", "stack", "strided_slice",
    "tile", "transpose", "trilu",
)  # fmt: skip
"""The operators whose arguments topi has in Relay's order."""

TOPI: Rows = {name: RELAY[name] for name in _SAME} | {**_rows({
    "all any max min prod sum": "_ axis keepdims",
    "argmax argmin": "_ axis keepdims select_last_index",
    "gather_nd": "_ _",
    "nn.lrn": "_ size axis alpha beta bias",
    "take": "_ _ axis",
})}  # fmt: skip
"""For an operator of topi, what its arguments without names are."""


def divided(
    what: str, name: str, rows: Rows, args: Sequence[Any], values: tuple[type, ...]
) -> tuple[list[Any], dict[str, Any]]:
    """The operands of a call, and the attributes that it gives without their names.

    what: the function's name in messages.
    name: the operator.
    rows: what its arguments are; those of an operator without a row are operands.
    args: the arguments without names.
    values: the classes of values of a program.

    Raises UsageError for an argument at a place that the row lacks, and for an operand that is no
    value, number or array.
    """
    row = rows.get(name, (OPERAND,) * len(args))
    if len(args) > len(row):
        raise UsageError(f"{what}: give attributes by name, found {shown(args[len(row)])}")
    operands: list[Any] = []
    attributes: dict[str, Any] = {}
    for place, value in zip(row, args):
        if place != OPERAND and not _is_value(value, values):
            attributes[place] = value
        elif _is_operand(value, values):  # a value may stand for an attribute, such as TopK's k
            operands.append(value)
        else:
            raise UsageError(
                f"{what}: expected a tensor or a number as operand, found {shown(value)}; give "
                "attributes by name"
            )
    return operands, attributes


def _is_value(value: Any, values: tuple[type, ...]) -> bool:
    """Whether `value` is a value of a program, or a list with one."""
    is_list = isinstance(value, (list, tuple))
    return isinstance(value, values) or (is_list and any(_is_value(v, values) for v in value))


def _is_operand(value: Any, values: tuple[type, ...]) -> bool:
    if isinstance(value, (list, tuple)):
        return _is_value(value, values) and all(_is_operand(v, values) for v in value)
    return isinstance(value, (*values, Number, np.ndarray, np.generic))
