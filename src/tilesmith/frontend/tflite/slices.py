"""TFLite's operators that slice tensors, pad them, and write into them."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.frontend.common import computed
from tilesmith.frontend.common.lists import listed, picked
from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.shaping import reversed_sequences, symmetrically_padded
from tilesmith.frontend.common.slices import updated
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.registry import stored_op
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import gather, rules, slicing
from tilesmith.ops.functions import where

_FAR = 1 << 40
"""An index beyond every extent."""


@stored_op("SLICE")
def cut(n: OptionNode) -> Result:
    x, begin, size = n.input(0), n.input(1), n.input(2)
    axes = tuple(range(x.type.rank))
    if any(len(n.elements(v, "bounds")) != len(axes) for v in (begin, size)):
        n.bad(f"expected {len(axes)} starts and sizes, found {begin.type} and {size.type}")
    if n.is_known(begin) and n.is_known(size):
        starts, sizes = n.dims(begin, "begin"), n.dims(size, "size")
        pairs = zip(starts, sizes, strict=True)
        ends = tuple(_FAR if same_dim(s, -1) else extents.total((b, s)) for b, s in pairs)
        return n.add(slicing.Slice(starts, ends, axes, (1,) * len(axes)), x)
    start, length = listed(begin), listed(size)
    end = where(length.equals(-1), _FAR, start + length)
    return computed.sliced(n, x, start, end, axes, None)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The selection of a strided slice along one axis.

    number: index of the axis's elements in the lists of starts, ends and strides.
    axis: the axis of the input.
    step: distance between indices.
    from_border, to_border: whether the start or the end is ignored.
    is_index: whether a single index is selected, so that the axis is dropped.
    """

    number: int
    axis: int
    step: int
    from_border: bool
    to_border: bool
    is_index: bool


@stored_op("STRIDED_SLICE")
def strided_slice(n: OptionNode) -> Result:
    x, begin, end = n.input(0), n.input(1), n.input(2)
    steps = n.int_list(n.input(3), "strides")
    if any(len(n.elements(v, "bounds")) != len(steps) for v in (begin, end)):
        n.bad(f"expected {len(steps)} starts and ends, found {begin.type} and {end.type}")
    if 0 in steps:
        n.bad(f"strides: expected numbers other than 0, found {list(steps)}")
    entries, new_axes = _entries(n, steps, x.type.rank)
    if n.option("offset"):  # ends are relative to the starts
        end = end + begin
    kept = [e for e in entries if not e.is_index]
    dropped = [e.axis for e in entries if e.is_index]
    if n.is_known(begin) and n.is_known(end):
        x = _known_slice(n, x, entries, n.dims(begin, "begin"), n.dims(end, "end"))
        x = x.reshape(*(d for a, d in enumerate(x.type.shape) if a not in dropped))
    else:
        x = _computed_slice(n, x, kept, begin, end)
        for e in reversed(entries):
            if e.is_index:
                x = n.add(gather.Gather(e.axis), x, picked(begin, e.number).reshape())
    if not new_axes:
        return x
    dims = list(x.type.shape)
    for a in new_axes:
        dims.insert(a, 1)
    return x.reshape(*dims)


def _entries(n: OptionNode, steps: tuple[int, ...], rank: int) -> tuple[list[_Entry], list[int]]:
    """The selections along axes of an input of rank `rank`, and the new axes of the result."""

    def marked(name: str) -> set[int]:
        mask = n.option(name)
        return {i for i in range(len(steps)) if mask >> i & 1}

    rest, new = marked("ellipsis_mask"), marked("new_axis_mask")
    new -= rest
    single = marked("shrink_axis_mask") - new
    begin_mask, end_mask = marked("begin_mask"), marked("end_mask")
    if len(rest) > 1:
        n.bad("expected at most one ellipsis")
    covered = rank - (len(steps) - len(new) - len(rest))
    if covered < 0:
        n.bad(f"expected at most {rank} indices, found {len(steps) - len(new) - len(rest)}")
    entries, new_axes, axis, out = [], [], 0, 0
    for i, step in enumerate(steps):
        if i in rest:
            axis, out = axis + covered, out + covered
        elif i in new:
            new_axes.append(out)
            out += 1
        else:
            is_index = i in single
            entries.append(
                _Entry(i, axis, step, i in begin_mask and not is_index, i in end_mask, is_index)
            )
            axis, out = axis + 1, out + (not is_index)
    return entries, new_axes


def _known_slice(
    n: OptionNode, x: Value, entries: list[_Entry], begin: tuple[Dim, ...], end: tuple[Dim, ...]
) -> Value:
    starts, ends, steps = [], [], []
    for e in entries:
        first, last = begin[e.number], end[e.number]
        if e.is_index:
            starts.append(first)
            ends.append(_FAR if same_dim(first, -1) else extents.total((first, 1)))
            steps.append(1)
            continue
        far = _FAR if e.step > 0 else -_FAR
        starts.append((0 if e.step > 0 else _FAR) if e.from_border else first)
        ends.append(far if e.to_border else last)
        steps.append(e.step)
    axes = tuple(e.axis for e in entries)
    return n.add(slicing.Slice(tuple(starts), tuple(ends), axes, tuple(steps)), x)


def _computed_slice(
    n: OptionNode, x: Value, entries: list[_Entry], begin: Value, end: Value
) -> Value:
    entries = [e for e in entries if not (e.from_border and e.to_border and e.step == 1)]
    if not entries:
        return x
    numbers = [e.number for e in entries]
    far = [_FAR if e.step > 0 else -_FAR for e in entries]
    first = [0 if e.step > 0 else _FAR for e in entries]
    skips = [n.const([getattr(e, f) for e in entries]) for f in ("from_border", "to_border")]
    starts = where(skips[0], n.of_dims(first), picked(listed(begin), numbers))
    ends = where(skips[1], n.of_dims(far), picked(listed(end), numbers))
    axes = [e.axis for e in entries]
    return computed.sliced(n, x, starts, ends, axes, n.of_dims([e.step for e in entries]))


def _borders(n: OptionNode, pads: Value, rank: int) -> Value:
    """Numbers of elements added before every axis, then after every axis; `pads` has a row for each
    axis.
    """
    if not rules.equal_shapes("pad", pads.type.shape, (rank, 2)):
        n.bad(f"paddings: expected [{rank}, 2], found {pads.type}")
    return listed(pads.transpose(1, 0))


def _padded(n: OptionNode, mode: str, filler: Value | float | int | bool) -> Value:
    x = n.input(0)
    pads = _borders(n, n.input(1), x.type.rank)
    if isinstance(filler, Value) or not n.is_known(pads):
        return computed.padded(n, x, pads, tuple(range(x.type.rank)), mode, filler)
    return n.add(slicing.Pad(n.dims(pads, "paddings"), mode, filler), x)


@stored_op("PAD")
def pad(n: OptionNode) -> Result:
    return _padded(n, "constant", n.stored_zero)


@stored_op("PADV2")
def pad_with(n: OptionNode) -> Result:
    value = n.optional(2)
    if value is None:
        return pad(n)
    if not n.is_known(value):
        return _padded(n, "constant", n.reshape(value, ()))
    return _padded(n, "constant", n.scalar(value, "constant_values"))


@stored_op("MIRROR_PAD")
def mirror_pad(n: OptionNode) -> Result:
    if n.choice("mode", ("REFLECT", "SYMMETRIC")) == "REFLECT":
        return _padded(n, "reflect", 0)
    x = n.input(0)
    pads = n.int_list(_borders(n, n.input(1), x.type.rank), "paddings")
    return symmetrically_padded(n, x, pads)


@stored_op("REVERSE_V2")
def reverse(n: OptionNode) -> Result:
    x = n.input(0)
    return n.add(slicing.Flip(n.axes(n.int_list(n.input(1), "axis"), x.type.rank)), x)


@stored_op("REVERSE_SEQUENCE")
def reverse_sequence(n: OptionNode) -> Result:
    x, lengths = n.input(0), n.input(1)
    time = n.axis(n.option("seq_dim"), x.type.rank, "seq_dim")
    batch = n.axis(n.option("batch_dim"), x.type.rank, "batch_dim")
    wanted = x.type.shape[batch]
    if time == batch or not rules.equal_shapes("reverse_sequence", lengths.type.shape, (wanted,)):
        n.bad(f"expected two axes and [{wanted}] lengths, found {lengths.type}")
    return reversed_sequences(n, x, lengths, time, batch)


@stored_op("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(n: OptionNode) -> Result:
    return updated(n, n.input(0), n.input(1), listed(n.input(2)))
