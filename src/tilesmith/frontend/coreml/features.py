"""A model's features: its inputs and outputs as the description declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tilesmith.frontend.common.inputs import Declared, Given, resizable
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.coreml.package import named_dtype
from tilesmith.ir.dtypes import DType, f16, f32, i8, i32, i64
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.errors import ModelError, UnsupportedError

Sizes: TypeAlias = "Mapping[int, tuple[int, int, int]]"
"""The smallest, the largest and the default size of each axis."""

CHANNELS = {"GRAYSCALE": 1, "GRAYSCALE_FLOAT16": 1, "RGB": 3, "BGR": 3}
"""The number of channels of each colour space."""


def described(model: Message) -> dict[str, Message]:
    """The types of the inputs by name: those of the model, or of its default function."""
    description = model.description
    for function in description.functions:
        if function.name == description.defaultFunctionName:
            description = function
            break
    return {f.name: f.type for f in required(description.input)}


def required(inputs: Sequence[Message]) -> list[Message]:
    """The inputs except optional numbers, such as thresholds.  The model has defaults for these."""
    numbers = ("doubleType", "int64Type")
    return [f for f in inputs if not (f.type.isOptional and f.type.which(*numbers))]


def declared(name: str, type_: Message, given: Given) -> Declared:
    """An input of a model that is not a program.  An image is f32 [1, channels, height, width]; its
    channels are red, green and blue.  A number is a scalar.
    """
    if type_.imageType is not None:
        image = type_.imageType
        channels = CHANNELS.get(image.colorSpace, 3)
        own: tuple[int, ...] = (1, channels, int(image.height), int(image.width))
        dtype = f32
    elif type_.multiArrayType is not None:
        own = tuple(type_.multiArrayType.shape.tolist())
        dtype = {"INT32": i32, "INT8": i8, "FLOAT16": f16}.get(type_.multiArrayType.dataType, f32)
        if not own:
            return Declared(name, dtype, None)
    elif type_.which("doubleType", "int64Type"):
        own, dtype = (), i64 if type_.has("int64Type") else f32
    else:
        raise UnsupportedError(f"input {name!r}: a feature that is no array, image or number")
    return _opened(name, dtype, own, sizes_of(type_, len(own)), given)


def declared_tensor(i: Message, type_: Message | None, given: Given) -> Declared:
    """An input of a program.  Its open dimensions have the sizes that the description allows."""
    tensor = i.type.tensorType
    if tensor is None:
        raise ModelError(f"input {i.name!r}: expected a tensor, found another type")
    dtype = named_dtype(tensor.dataType)
    if tensor.rank < 0:
        return Declared(i.name, dtype, None)
    dims = [d.constant.size if d.constant is not None else -1 for d in tensor.dimensions]
    sizes = {} if type_ is None else sizes_of(type_, len(dims))
    return _opened(i.name, dtype, dims, sizes, given)


def _opened(name: str, dtype: DType, dims: Sequence[int], sizes: Sizes, given: Given) -> Declared:
    """An input.  An axis is open if several sizes are allowed or the caller changes its size."""
    own: list[int | str] = []
    for axis, d in enumerate(dims):
        low, high, usual = sizes.get(axis, (d, d, d))
        if low == high and d >= 0:
            own.append(int(d))
            continue
        if axis in sizes and low < high:
            given.symbols.declare(f"{name}.{axis}", low, high, usual)
        own.append("")
    return resizable(Declared(name, dtype, tuple(own)), given)


def sizes_of(type_: Message, rank: int) -> Sizes:
    """The allowed sizes of an input's axes; empty if they are not ranges or lists of sizes."""
    if type_.imageType is not None:
        image = type_.imageType
        usual = (image.height, image.width)
        if image.imageSizeRange is not None:
            ranges = (image.imageSizeRange.heightRange, image.imageSizeRange.widthRange)
            pairs = [_range(r) for r in ranges]
        elif image.enumeratedSizes is not None:
            sizes = [(s.height, s.width) for s in image.enumeratedSizes.sizes]
            pairs = _spanned([usual, *sizes])
        else:
            return {}
        axes: Sequence[int] = (rank - 2, rank - 1)
    elif type_.multiArrayType is not None:
        array = type_.multiArrayType
        usual = tuple(array.shape.tolist())
        if array.shapeRange is not None:
            pairs = [_range(r) for r in array.shapeRange.sizeRanges]
        elif array.enumeratedShapes is not None:
            shapes = [tuple(s.shape.tolist()) for s in array.enumeratedShapes.shapes]
            pairs = _spanned([s for s in (usual, *shapes) if len(s) == rank])
        else:
            return {}
        axes = range(rank)
    else:
        return {}
    if not len(pairs) == len(axes) == len(usual):
        return {}
    return {a: (lo, hi, u) for a, (lo, hi), u in zip(axes, pairs, usual, strict=True)}


def _range(r: Message) -> tuple[int, int]:
    """The smallest and the largest size of a range.  A negative upper bound means no bound."""
    return r.lowerBound, r.upperBound if 0 <= r.upperBound < LARGEST else LARGEST


def _spanned(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The smallest and the largest extent of each axis among `shapes`."""
    return [(min(sizes), max(sizes)) for sizes in zip(*shapes, strict=True)]


def text_of(feature: Message) -> str:
    """A feature's type as text."""
    type_ = feature.type
    if type_ is None:
        return "unknown"
    if type_.imageType is not None:
        image = type_.imageType
        return f"image[{image.height},{image.width}], {image.colorSpace}"
    if type_.multiArrayType is not None:
        array = type_.multiArrayType
        return f"{array.dataType.lower()}{array.shape.tolist()}"
    if type_.dictionaryType is not None:
        keys = "string" if type_.dictionaryType.which("stringKeyType") else "int64"
        return f"dictionary of {keys}"
    for name, text in (("int64Type", "int64"), ("doubleType", "double"), ("stringType", "string")):
        if type_.has(name):
            return text
    return "sequence" if type_.has("sequenceType") else "unknown"


def about(feature: Message) -> str:
    """The description of a feature in words; empty if there is none."""
    text = str(feature.shortDescription)
    if feature.type is None or feature.type.imageType is None:
        return text
    colours = "grey" if "GRAY" in feature.type.imageType.colorSpace else "red, green and blue"
    return f"{text} (a picture: {colours} from 0 to 255)".strip()
