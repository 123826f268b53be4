"""ncnn's files: layers with numbered parameters, and all layers' weights in order.

Tensors have no batch axis: an image is [C, H, W].
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, LayerNode, Network
from tilesmith.frontend.common.source import Source
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i32
from tilesmith.support.errors import ModelError

from .binary import FIRST_LIST, MAGIC, layers_of

_PARAMETER = re.compile(r"(-?\d+)=(.*)")

_HALF, _INT8, _PLAIN = 0x01306B47, 0x000D4B38, 0x0002C056
"""The flags before weights in f16, before weights in int8, and before f32 weights that ncnn must
not quantise."""


@dataclass(slots=True)
class Weights:
    """The bytes of a .bin file, read from front to back.

    content: the bytes; None without a file.
    named: the tensors read so far, by name.
    position: offset of the next tensor.
    """

    content: memoryview | None
    named: dict[str, np.ndarray] = field(default_factory=dict)
    position: int = 0

    def take(self, n: LayerNode, what: str, *shape: int, flagged: bool = False) -> Value:
        """The next tensor, as a constant named after the layer and `what`.

        flagged: whether a flag before the numbers says how they are stored.
        """
        count = math.prod(shape)
        if min(shape, default=0) < 0:
            n.bad(f"{what}: expected a shape, found {list(shape)}")
        flag = int(self._read(what, "<u4", 1)[0]) if flagged else 0
        if flag == _HALF:
            array = self._read(what, "<f2", count).astype(np.float32)
        elif flag == _INT8:
            array = self._read(what, "i1", count)
        elif flag in (0, _PLAIN):
            array = self._read(what, "<f4", count)
        else:
            table = self._read(what, "<f4", 256)
            array = table[self._read(what, "u1", count)]
        name = f"{n.loc}.{what}"
        self.named[name] = array.reshape(shape)
        return n.stored(name)

    def _read(self, what: str, dtype: str, count: int) -> np.ndarray:
        if self.content is None:
            raise ModelError("expected a file of weights: give the paths of .param and .bin")
        start, size = self.position, count * np.dtype(dtype).itemsize
        if start + size > len(self.content):
            raise ModelError(
                f"{what}: expected {size} bytes from byte {start} of the weights on, found "
                f"{len(self.content) - start}"
            )
        self.position = start + size + -size % 4
        return np.frombuffer(self.content[start : start + size], dtype)


def read(source: Source) -> Network:
    """The network.  Raises ModelError for damaged files."""
    assert source.content is not None
    content = memoryview(source.content)
    weights = Weights(source.companion(".bin", own=".param.bin"))
    is_binary = content[:4] == MAGIC.to_bytes(4, "little")
    stated = list(layers_of(content) if is_binary else _layers(content))
    # the inputs of Embed layers are integers
    places = {name for layer in stated if layer.kind == "Embed" for name in layer.inputs}
    layers: list[Layer] = []
    inputs: list[Declared] = []
    for layer in stated:
        if layer.kind == "Input":
            dims = _dims(layer.attributes)
            inputs += [Declared(o, i32 if o in places else f32, dims) for o in layer.outputs]
        else:
            layers.append(replace(layer, attributes={**layer.attributes, "weights": weights}))
    unread: dict[str, None] = dict.fromkeys(o for layer in layers for o in layer.outputs)
    for layer in layers:
        for name in layer.inputs:
            unread.pop(name, None)
    if weights.content is not None:  # lets `inspect` count all bytes
        weights.named[""] = np.frombuffer(weights.content, np.uint8)
    return Network(
        "ncnn",
        tuple(inputs),
        {name: name for name in unread},
        layers,
        weights.named,
        is_resizable=True,
    )


def _layers(content: memoryview) -> Iterator[Layer]:
    try:
        lines = bytes(content).decode().splitlines()
    except UnicodeDecodeError as e:
        raise ModelError(f"expected UTF-8 text, found {e}") from None
    for number, line in enumerate(lines[2:], 3):
        if words := line.split():
            yield _layer(number, words)


def _layer(number: int, words: list[str]) -> Layer:
    try:
        kind, name, *rest = words
        reads, makes = int(rest[0]), int(rest[1])
        if min(reads, makes) < 0 or len(rest) < 2 + reads + makes:
            raise ValueError
    except (ValueError, IndexError):
        raise ModelError(
            f"line {number}: expected a layer's type, name, numbers of inputs and outputs, and "
            f"their names, found {' '.join(words)[:200]!r}"
        ) from None
    attributes: dict[str, Any] = {}
    for word in rest[2 + reads + makes :]:
        parameter = _PARAMETER.fullmatch(word)
        if parameter is None:
            raise ModelError(f"line {number}: expected number=value, found {word!r}")
        key, value = int(parameter[1]), parameter[2]
        if key <= FIRST_LIST:
            key, value = FIRST_LIST - key, value.partition(",")[2]
        attributes[str(key)] = value
    tops = tuple(rest[2 + reads : 2 + reads + makes])
    return Layer(kind, name, tuple(rest[2 : 2 + reads]), tops, attributes)


def _dims(attributes: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of an input; None if the file leaves it open."""
    numbers = [attributes.get(key, "0") for key in ("2", "11", "1", "0")]  # c, d, h, w
    try:
        dims = tuple(int(v) for v in numbers if int(v) > 0)
    except ValueError:
        raise ModelError(f"expected the sizes of an input, found {numbers}") from None
    return dims or None
