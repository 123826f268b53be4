"""Paddle's `.pdmodel` files: a ProgramDesc, whose operators become those of Paddle 3.

Operators of Paddle 3 take sizes and axes as inputs.  Older operators take them as attributes or
inputs.  A row of `_ROWS` translates an old operator, so that one function imports both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    inputs = [
        _declared(variables, _first(op.outputs, "Out")) for op in block.ops if op.type == "feed"
    ]
    fetched = [_first(op.inputs, "X") for op in block.ops if op.type == "fetch"]
    layers = _Blocks(program.blocks, weights).layers(0, frozenset(fetched))
    version = program.version.version if program.version is not None else 0
    kind = f"Paddle program, version {version // 1_000_000}.{version // 1000 % 1000}"
    return Network(kind, tuple(inputs), {name: name for name in fetched}, layers, weights)


class _Blocks:
    """The blocks of a program.  A block inside becomes a part of its operator's layer.

    Paddle 2 has no operator with two blocks.  Its operators `while` and `conditional_block` assign
    to variables of the enclosing block.
    """

    def __init__(self, blocks: Sequence[Message], weights: dict[str, Any]) -> None:
        self._blocks, self._weights = blocks, weights
        self._read: set[int] = set()
        self._depth = 0

    def layers(self, number: int, results: frozenset[str]) -> tuple[Layer, ...]:
        """The layers of a block.

        results: the variables that are read after the block.
        """
        if not 0 <= number < len(self._blocks) or number in self._read:
            raise ModelError(
                f"block {number}: expected one of {len(self._blocks)} blocks, each in one operator"
            )
        if self._depth > MAX_DEPTH:
            raise ModelError(f"blocks are more than {MAX_DEPTH} deep in blocks")
        self._read.add(number)
        ops = self._blocks[number].ops
        choices = _choices(ops)
        chosen = {place for c in choices.values() for place in (c.otherwise, *c.results)}
        layers: list[Layer] = []
        for place, op in enumerate(ops):
            label = f"{op.type}.{number}.{place}" if number else f"{op.type}.{place}"
            if op.type in ("feed", "fetch") or place in chosen:
                continue
            if op.type == "while":
                layers.append(self._loop(op, label))
            elif op.type == "conditional_block":
                after = results.union(v for o in ops[place + 1 :] for v in _arguments(o.inputs))
                layers.append(self._branches(ops, op, choices.get(place), after, label))
            else:
                layers += _layers(op, label, self._weights)
        return tuple(layers)

    def _inside(self, op: Message, results: Iterable[str]) -> tuple[Layer, ...]:
        number = next((a.block_idx for a in op.attrs if a.name == "sub_block"), -1)
        self._depth += 1
        layers = self.layers(number, frozenset(results))
        self._depth -= 1
        return layers

    def _loop(self, op: Message, label: str) -> Layer:
        condition = _slots(op.inputs).get("Condition", ())[:1]
        outputs = _slots(op.outputs).get("Out", ())
        carried = (*condition, *(o for o in outputs if o not in condition))
        parts = condition_of(carried), Part(carried, carried, self._inside(op, carried))
        return Layer("while", label, carried, carried, parts=parts)

    def _branches(
        self,
        ops: Sequence[Message],
        op: Message,
        choice: _Choice | None,
        after: frozenset[str],
        label: str,
    ) -> Layer:
        """A block that runs under a condition, and the block for the opposite condition.

        A variable to which only one block assigns keeps its value if the other block runs.
        """
        other = None if choice is None else ops[choice.otherwise]
        selected = {} if choice is None else choice.results
        assigned = (
            v for o in (op, other) if o is not None for v in _slots(o.outputs).get("Out", ())
        )
        read = {v for pair in selected.values() for v in pair[1:]}
        kept = [v for v in dict.fromkeys(assigned) if v in after and v not in read]
        made = (*kept, *(pair[0] for pair in selected.values()))
        parts: list[Part] = []
        for which, block in enumerate((op, other), 1):
            names = (*kept, *(pair[which] for pair in selected.values()))
            inside = () if block is None else self._inside(block, names)
            parts.append(Part((), names, inside))
        return Layer("if", label, _slots(op.inputs).get("Cond", ())[:1], made, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class _Choice:
    """A `conditional_block` with one for the opposite condition.

    otherwise: the place of the other one.
    results: for the place of each `select_input`: its result, and the variables of both blocks
        that it selects from.
    """

    otherwise: int
    results: dict[int, tuple[str, str, str]] = field(default_factory=dict)


def _choices(ops: Sequence[Message]) -> dict[int, _Choice]:
    """The pairs of conditional blocks whose results `select_input` selects from, by the place of
    the first block.  Between both blocks, only their conditions are computed.
    """
    makers = {v: i for i, op in enumerate(ops) for v in _arguments(op.outputs)}
    choices: dict[int, _Choice] = {}
    for place, op in enumerate(ops):
        values, mask = (_slots(op.inputs).get(slot, ()) for slot in ("X", "Mask"))
        if op.type != "select_input" or len(values) != 2 or len(mask) != 1:
            continue
        then, otherwise, number = (makers.get(v, -1) for v in (values[1], values[0], mask[0]))
        kinds = [ops[i].type if i >= 0 else "" for i in (then, otherwise, number)]
        if kinds != ["conditional_block", "conditional_block", "cast"] or then > otherwise:
            continue
        condition = _slots(ops[then].inputs).get("Cond", ())
        opposite = _slots(ops[otherwise].inputs).get("Cond", ())
        between = ops[then + 1 : otherwise]
        inverted = [_slots(o.inputs).get("X", ()) for o in between if o.type == "logical_not"]
        fits = (
            _slots(ops[number].inputs).get("X", ()) == condition
            and inverted == [condition] * len(between)
            and opposite in [_slots(o.outputs).get("Out", ()) for o in between]
        )
        if fits:
            made = _first(op.outputs, "Out"), values[1], values[0]
            choices.setdefault(then, _Choice(otherwise)).results[place] = made
    return choices


def _arguments(slots: tuple[Message, ...]) -> Iterator[str]:
    return (v for arguments in _slots(slots).values() for v in arguments)


def _first(slots: tuple[Message, ...], name: str) -> str:
    arguments = _slots(slots).get(name, ())
    if not arguments:
        raise ModelError(f"expected an operator with a variable {name!r}, found none")
    return arguments[0]


def _slots(slots: tuple[Message, ...]) -> dict[str, tuple[str, ...]]:
    return {s.parameter: tuple(map(str, s.arguments)) for s in slots}


def _declared(variables: Mapping[str, Message], name: str) -> Declared:
    type_ = variables[name].type if name in variables else None
    tensor = None if type_ is None else type_.lod_tensor
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
