"""Paddle's `.pdmodel` files: a ProgramDesc, whose operators become those of Paddle 3.

Operators of Paddle 3 take sizes and axes as inputs.  Older operators take them as attributes or
inputs.  A row of `_ROWS` translates an old operator, so that one function imports both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.networks import Layer, Network, Part
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.paddle.control import condition_of
from tilesmith.frontend.paddle.parameters import read_parameters
from tilesmith.frontend.paddle.schema import FIELDS, SCHEMA, dtype_named
from tilesmith.support.errors import ModelError

COMBINE = "builtin.combine"

_ROWS = """
arg_max: argmax X @axis
arg_min: argmin X @axis
assign_value: assign_value_
batch_norm: batch_norm_ X Mean Variance Scale Bias -> Y, data_format=data_layout
bicubic_interp_v2: bicubic_interp X OutSize SizeTensor* Scale
bilinear_interp: bilinear_interp X OutSize SizeTensor* Scale
bilinear_interp_v2: bilinear_interp X OutSize SizeTensor* Scale
clip: clip X Min|@min Max|@max
concat: concat X* AxisTensor|@axis
conv2d: conv2d Input Filter -> Output
conv2d_transpose: conv2d_transpose Input Filter @output_size Bias -> Output
conv3d: conv3d Input Filter -> Output
cumsum: cumsum X @axis
depthwise_conv2d: conv2d Input Filter -> Output
depthwise_conv2d_transpose: conv2d_transpose Input Filter @output_size -> Output
dropout: dropout X Seed @dropout_prob, mode=dropout_implementation
elementwise_add: add X Y
elementwise_div: divide X Y
elementwise_floordiv: floor_divide X Y
elementwise_max: maximum X Y
elementwise_min: minimum X Y
elementwise_mod: remainder X Y
elementwise_mul: multiply X Y
elementwise_sub: subtract X Y
expand_as_v2: expand_as X Y
expand_v2: expand X Shape|expand_shapes_tensor*|@shape
fill_any_like: full_like X @value
fill_constant: full_with_tensor ValueTensor|@str_value ShapeTensor|ShapeTensorList*|@shape
fill_constant_batch_size_like: full_batch_size_like Input @str_value
flatten_contiguous_range: flatten X
gather: gather X Index Axis|@axis
grid_sampler: grid_sample X Grid -> Output
group_norm: group_norm X Scale Bias -> Y, data_format=data_layout
hard_sigmoid: hardsigmoid X
hard_swish: hardswish X
index_select: index_select X Index, axis=dim
instance_norm: instance_norm X Scale Bias -> Y
layer_norm: layer_norm X Scale Bias -> Y
leaky_relu: leaky_relu X, negative_slope=alpha
lookup_table: embedding_of_columns Ids W
lookup_table_v2: embedding Ids W
matmul: matmul X Y, transpose_x=transpose_X transpose_y=transpose_Y
matmul_v2: matmul X Y, transpose_x=trans_x transpose_y=trans_y
mul: matmul_with_flatten X Y
nearest_interp: nearest_interp X OutSize SizeTensor* Scale
nearest_interp_v2: nearest_interp X OutSize SizeTensor* Scale
one_hot_v2: one_hot X depth_tensor|@depth
pad3d: pad3d X Paddings|@paddings, pad_value=value
pool2d: pool2d X @ksize
pow: pow X, y=factor
prelu: prelu X Alpha
range: arange Start End Step
elementwise_fmax: fmax X Y
elementwise_fmin: fmin X Y
linear_interp_v2: linear_interp X OutSize SizeTensor* Scale
trilinear_interp_v2: trilinear_interp X OutSize SizeTensor* Scale
reduce_amax: amax X, axis=dim keepdim=keep_dim
reduce_amin: amin X, axis=dim keepdim=keep_dim
rnn: rnn_of Input PreState* WeightList* SequenceLength -> Out State
reduce_all: all X, axis=dim keepdim=keep_dim
reduce_any: any X, axis=dim keepdim=keep_dim
reduce_max: max X @dim, keepdim=keep_dim
reduce_mean: mean X @dim, keepdim=keep_dim
reduce_min: min X @dim, keepdim=keep_dim
reduce_prod: prod X @dim, keepdim=keep_dim
reduce_sum: sum X @dim, keepdim=keep_dim
reshape2: reshape X Shape|ShapeTensor*|@shape
roll: roll X ShiftsTensor|@shifts
scale: scale X ScaleTensor|@scale
shape: shape Input
size: numel Input
slice: slice Input StartsTensor|StartsTensorList*|@starts EndsTensor|EndsTensorList*|@ends
split: split_of X @sections AxisTensor|@axis -> Out*
squeeze2: squeeze X @axes
stack: stack X* -> Y
strided_slice: strided_slice Input StartsTensor|@starts EndsTensor|@ends StridesTensor|@strides
sum: add_n X*
set_value: set_value_with_tensor Input ValueTensor @starts @ends @steps
einsum: einsum Operands*
sync_batch_norm: batch_norm_ X Mean Variance Scale Bias -> Y, data_format=data_layout
affine_channel: affine_channel X Scale Bias
multiclass_nms3: multiclass_nms3 BBoxes Scores RoisNum -> Out Index NmsRoisNum
yolo_box: yolo_box X ImgSize -> Boxes Scores
select_input: select_input X* Mask
max_pool2d_with_index: max_pool2d_with_index X -> Out Mask, kernel_size=ksize
scatter: scatter X Ids Updates
scatter_nd_add: scatter_nd_add X Index Updates
index_sample: index_sample X Index
gather_nd: gather_nd X Index
take_along_axis: take_along_axis Input Index -> Result, axis=Axis
tile: tile X RepeatTimes|repeat_times_tensor*|@repeat_times
top_k: topk X K|@k -> Out Indices
top_k_v2: topk X K|@k -> Out Indices
argsort: argsort X -> Out Indices
transpose2: transpose X, perm=axis
unbind: unbind X -> Out*
unsqueeze2: unsqueeze X AxesTensor|AxesTensorList*|@axes
unstack: unstack X -> Y*
where: where Condition X Y
meshgrid: meshgrid X* -> Out*
"""
"""A row for each old operator: the new operator, its inputs, `->` and its outputs (by default Out),
and `new=old` names of attributes.  `A|B` stands for the first of several inputs that is given, `A*`
for a list, `@a` for an attribute that becomes an input.  An operator without a row keeps its name
and has the inputs X and Y.
"""


@cache
def rows() -> dict[str, tuple[str, list[str], list[str], dict[str, str]]]:
    """`_ROWS` by old operator: the new operator, its inputs, its outputs, and the old names of its
    attributes by their new names.
    """
    made = {}
    for line in _ROWS.strip().split("\n"):
        name, _, rest = line.partition(": ")
        operands, _, renamed = rest.partition(", ")
        before, _, after = operands.partition(" -> ")
        kind, *inputs = before.split()
        pairs = (pair.partition("=") for pair in renamed.split())
        made[name] = kind, inputs, after.split() or ["Out"], {new: old for new, _, old in pairs}
    return made


def read_program(content: bytes | memoryview, parameters: memoryview | None) -> Network:
    """The operators of a program's first block.  Raises ModelError for a damaged file."""
    program = SCHEMA.decode(content, "ProgramDesc")
    if not program.blocks:
        raise ModelError("expected a program with at least one block, found none")
    block = program.blocks[0]
    variables = {v.name: v for v in block.vars}
    stored = [
        v.name
        for v in block.vars
        if v.persistable and v.type is not None and v.type.type == "LOD_TENSOR"
    ]
    weights: dict[str, Any] = dict(read_parameters(parameters, stored))
    feeds = [op for op in block.ops if op.type == "feed"]
    inputs = [_declared(variables, _slots(op.outputs)["Out"][0]) for op in feeds]
    fetched = [_slots(op.inputs)["X"][0] for op in block.ops if op.type == "fetch"]
    layers = _block(program.blocks, 0, weights)
    version = program.version.version if program.version is not None else 0
    kind = f"Paddle program, version {version // 1_000_000}.{version // 1000 % 1000}"
    return Network(kind, tuple(inputs), {name: name for name in fetched}, layers, weights)


def _block(
    blocks: Sequence[Message], number: int, weights: dict[str, Any], depth: int = 0
) -> tuple[Layer, ...]:
    """The layers of a block.  Blocks inside become parts of their layers."""
    if not 0 <= number < len(blocks) or depth > MAX_DEPTH:
        raise ModelError(f"block {number}: expected one of {len(blocks)} blocks, without cycles")
    layers: list[Layer] = []
    for place, op in enumerate(blocks[number].ops):
        if op.type in ("feed", "fetch"):
            continue
        label = f"{op.type}.{number}.{place}" if number else f"{op.type}.{place}"
        if op.type in ("while", "conditional_block"):
            inner = next((a.block_idx for a in op.attrs if a.name == "sub_block"), -1)
            inside = _block(blocks, inner, weights, depth + 1)
            layers.append(_holder(op, label, inside))
        else:
            layers += _layers(op, label, weights)
    return tuple(layers)


def _holder(op: Message, label: str, inside: tuple[Layer, ...]) -> Layer:
    """A layer with a block, whose operators assign to the variables of the enclosing block."""
    inputs, outputs = _slots(op.inputs), _slots(op.outputs)
    if op.type == "conditional_block":
        of, made = inputs.get("Cond", ()), outputs.get("Out", ())
        return Layer(op.type, label, of, made, parts=(Part((), made, inside),))
    condition = inputs.get("Condition", ())[:1]
    carried = (*condition, *(o for o in outputs.get("Out", ()) if o not in condition))
    parts = (condition_of(carried), Part(carried, carried, inside))
    return Layer(op.type, label, carried, carried, parts=parts)


def _slots(slots: tuple[Message, ...]) -> dict[str, tuple[str, ...]]:
    return {s.parameter: tuple(map(str, s.arguments)) for s in slots}


def _declared(variables: Mapping[str, Message], name: str) -> Declared:
    tensor = variables[name].type.lod_tensor if name in variables else None
    if tensor is None or tensor.tensor is None:
        raise ModelError(f"input {name!r}: expected a declaration of a tensor, found none")
    dims = tuple("" if d < 0 else int(d) for d in tensor.tensor.dims)
    return Declared(name, dtype_named(tensor.tensor.data_type), dims)


def _layers(op: Message, label: str, weights: dict[str, Any]) -> Iterator[Layer]:
    """An operator in Paddle 3's form.  Layers that make its list operands come before it."""
    kind, wanted, made, renamed = rows().get(op.type) or (op.type, ["X", "Y"], ["Out"], {})
    attributes = dict(map(_attribute, op.attrs))
    attributes |= {new: attributes.get(old) for new, old in renamed.items()}
    inputs, outputs = _slots(op.inputs), _slots(op.outputs)
    names: list[str] = []
    for token in wanted:
        chosen = ""
        for form in token.split("|"):
            slot = form.rstrip("*@").removeprefix("@")
            if form.startswith("@") and attributes.get(slot) is not None:
                chosen = f"{label}.{slot}"
                weights[chosen] = np.asarray(_numbers(attributes, slot))
            elif form.endswith("*") and inputs.get(slot):
                chosen = f"{label}.{slot}"
                yield Layer(COMBINE, chosen, inputs[slot], (chosen,))
            elif not form.startswith("@") and inputs.get(slot):
                chosen = inputs[slot][0]
            if chosen:
                break
        names.append(chosen)
    results = tuple(o for slot in made for o in outputs.get(slot.rstrip("*"), ()))
    yield Layer(kind, results[0] if results else label, tuple(names), results, attributes)


def _numbers(attributes: Mapping[str, Any], name: str) -> Any:
    """An attribute as numbers.  Some old operators store a number as text."""
    held = attributes[name]
    if not isinstance(held, str):
        return held
    try:
        return int(held) if held.lstrip("-").isdigit() else float(held or attributes["value"])
    except (ValueError, KeyError):
        raise ModelError(f"attribute {name!r}: expected a number, found {held!r}") from None


def _attribute(attribute: Message) -> tuple[str, Any]:
    kind = attribute.type
    value: Any = getattr(attribute, FIELDS[kind]) if kind in FIELDS else None
    if kind == "SCALAR" and value is not None:
        return attribute.name, _scalar(value)
    return attribute.name, [_scalar(v) for v in value] if kind == "SCALARS" and value else value


def _scalar(scalar: Message) -> float:
    return {"BOOLEAN": scalar.b, "LONG": scalar.i}.get(scalar.type, scalar.r)
