"""Darknet's files: a configuration in text, and one array with the weights of all layers.

A section of the text is a layer.  Its input is the result of the section before it.  The array of
weights has the layers' weights in order; their sizes follow from the layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, LayerNode, Network
from tilesmith.frontend.common.source import Source
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32
from tilesmith.support.errors import ModelError

_OPTION = re.compile(r"([^=\s]+)\s*=\s*(.*)")
DATA = "data"
"""The name of the input."""

_SHORT = {
    "conv": "convolutional", "conn": "connected", "max": "maxpool", "avg": "avgpool",
    "soft": "softmax", "lrn": "normalization", "local_avg": "local_avgpool", "empty": "silence",
}  # fmt: skip
_ONLY_TRAINING = ("cost", "contrastive")
_BRANCHES = {"route": "layers", "shortcut": "from", "scale_channels": "from", "sam": "from"}
"""For sections that read results of other layers, the option that lists those layers."""

_HEADS = ("yolo", "region", "detection", "Gaussian_yolo")


@dataclass(slots=True)
class Weights:
    """The numbers of a .weights file, read from front to back.

    numbers: all numbers; None without a file.
    named: the tensors read so far, by name.
    position: index of the next number.
    """

    numbers: np.ndarray | None
    named: dict[str, np.ndarray] = field(default_factory=dict)
    position: int = 0

    def take(self, n: LayerNode, what: str, *shape: int) -> Value:
        """The next tensor, as a constant named after the layer and `what`."""
        if self.numbers is None:
            raise ModelError(
                "expected a file of weights: give the paths of .cfg and .weights as a pair"
            )
        name, count = f"{n.loc}.{what}", int(np.prod(shape, dtype=object))
        end = self.position + count
        if end > self.numbers.size:
            raise ModelError(
                f"{what} {list(shape)}: expected {count} numbers from number {self.position} on, "
                f"found {self.numbers.size - self.position}"
            )
        self.named[name] = self.numbers[self.position : end].reshape(shape)
        self.position = end
        return n.stored(name)


def read(source: Source) -> Network:
    """The network.  Raises ModelError for damaged files."""
    assert source.content is not None
    try:
        sections = _sections(bytes(source.content).decode())
    except UnicodeDecodeError as e:
        raise ModelError(f"expected UTF-8 text, found {e}") from None
    file = source.companion(".weights")
    weights = Weights(None if file is None else _numbers(file))
    (_, net), *rest = sections
    layers: list[Layer] = []
    names: list[str] = []
    for kind, options in rest:
        before = names[-1] if names else DATA
        name = f"{kind}_{len(names)}"
        if kind not in _ONLY_TRAINING:
            inputs = _inputs(kind, options, names, before)
            layers.append(Layer(kind, name, inputs, (name,), {**options, "weights": weights}))
        names.append(name if kind not in _ONLY_TRAINING else before)
    consumed = {i for layer in layers for i in layer.inputs}
    outputs = [layer.name for layer in layers if layer.name not in consumed]
    if weights.numbers is not None:  # `inspect` counts the bytes of named tensors
        weights.named[""] = weights.numbers
    return Network(
        "Darknet",
        (Declared(DATA, f32, _dims(net)),),
        {name: name for name in outputs},
        layers,
        weights.named,
        is_resizable=True,
    )


def _sections(text: str) -> list[tuple[str, dict[str, str]]]:
    """The name of each section, and its options as texts."""
    sections: list[tuple[str, dict[str, str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = re.split("[#;]", line, maxsplit=1)[0].strip()
        option = _OPTION.fullmatch(line)
        if line.startswith("[") and line.endswith("]"):
            kind = line[1:-1].strip()
            sections.append((_SHORT.get(kind, kind), {}))
        elif option and sections:
            sections[-1][1][option[1]] = option[2]
        elif line:
            raise ModelError(f"line {number}: expected [section] or option=value, found {line!r}")
    return sections


def _dims(net: Mapping[str, str]) -> tuple[int, ...]:
    """The shape of the input.  The batch is 1, as Darknet runs images one by one."""

    def number(name: str, default: str = "0") -> int:
        try:
            return int(net.get(name, default))
        except ValueError:
            raise ModelError(f"[net] {name}: expected an integer, found {net[name]!r}") from None

    height, width, channels = number("height"), number("width"), number("channels", "3")
    if height and width:
        return (1, channels, height, width)
    if not number("inputs"):
        raise ModelError("[net]: expected height and width, or inputs, found neither")
    return (1, number("inputs"))


def _inputs(
    kind: str, options: Mapping[str, Any], names: Sequence[str], before: str
) -> tuple[str, ...]:
    """The names of the values that a layer reads."""
    if kind in _HEADS:
        return (before, DATA)  # heads need the input's size
    if kind not in _BRANCHES:
        return (before,)
    option = _BRANCHES[kind]
    numbers = re.findall(r"-?\d+", str(options.get(option, "")))
    if not numbers:
        raise ModelError(f"[{kind}] {option}: expected numbers of layers, found none")
    others = []
    for text in numbers:
        number = int(text) + (len(names) if int(text) < 0 else 0)
        if not 0 <= number < len(names):
            raise ModelError(
                f"layer {len(names)} [{kind}] {option}: expected a layer before, found {text}"
            )
        others.append(names[number])
    return tuple(others) if kind == "route" else (before, *others)


def _numbers(file: memoryview) -> np.ndarray:
    """The numbers of a .weights file after its header.

    The header has the version and the number of training images, a number of 64 bits, or of 32 bits
    before version 0.2.
    """
    if len(file) < 16:
        raise ModelError(f"weights: expected a header of 16 bytes, found {len(file)} bytes")
    major, minor, _ = np.frombuffer(file[:12], "<i4").tolist()
    if not (0 <= major < 1000 and 0 <= minor < 1000):
        raise ModelError(f"weights: expected a version below 1000, found {major}.{minor}")
    start = 20 if major * 10 + minor >= 2 else 16
    return np.frombuffer(file[start : len(file) - (len(file) - start) % 4], "<f4")
