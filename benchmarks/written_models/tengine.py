"""Writes small Tengine models (`.tmfile`) for tests, and random weights into files without any."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from tilesmith.frontend.tengine.model import OPERATORS

NUMBERS = {kind: (number, fields.split()) for number, (kind, fields) in OPERATORS.items()}
VARIABLE, CONSTANT, INPUT = 1, 2, 3


class ModelWriter:
    """A model with one node after the other."""

    def __init__(self) -> None:
        self._content = bytearray(struct.pack("<3H2xI", 2, 0, 0, 0))
        self._tensors: list[int] = []
        self._buffers: list[int] = []
        self._nodes: list[int] = []
        self._inputs: list[int] = []

    def put(self, data: bytes) -> int:
        self._content += bytes(-len(self._content) % 4)
        self._content += data
        return len(self._content) - len(data)

    def words(self, *numbers: float) -> int:
        codes = "".join("f" if isinstance(n, float) else "i" for n in numbers)
        return self.put(struct.pack(f"<{codes}", *numbers))

    def vector(self, numbers: Sequence[int]) -> int:
        return self.words(len(numbers), *numbers)

    def text(self, text: str) -> int:
        stored = text.encode() + b"\0"
        return self.words(len(stored), self.put(stored))

    def tensor(
        self, name: str, kind: int, dims: Sequence[int], data: bytes = b"", type: int = 0
    ) -> int:
        """A tensor; a constant without `data` has no contents in the file."""
        buffer = len(self._buffers)
        if kind == CONSTANT:
            self._buffers.append(self.words(len(data), self.put(data) if data else 0))
        shape = self.vector(dims) if dims else 0
        number = len(self._tensors)
        self._tensors.append(self.words(number, buffer, shape, self.text(name), 0, 0, kind, type))
        return number

    def node(
        self, number: int, name: str, reads: Sequence[int], makes: Sequence[int], params: int = 0
    ) -> None:
        inputs = self.vector(reads) if reads else 0
        operator = self.words(1, number, params)
        place = len(self._nodes)
        self._nodes.append(
            self.words(place, inputs, self.vector(makes), operator, self.text(name), 0, 0)
        )

    def input(self, name: str, *dims: int) -> int:
        made = self.tensor(name, INPUT, dims)
        self._inputs.append(len(self._nodes))
        self.node(12, name, (), (made,))
        return made

    def constant(self, name: str, array: np.ndarray, type: int = 0) -> int:
        made = self.tensor(name, CONSTANT, array.shape, array.tobytes(), type)
        self.node(4, name, (), (made,))
        return made

    def add(self, kind: str, name: str, *reads: int, **params: float) -> int:
        """A node with one result.  Parameters that are left out are 0."""
        number, fields = NUMBERS[kind]
        made = self.tensor(name, VARIABLE, ())
        values = [
            float(params.pop(f[:-2], 0)) if f.endswith(":f") else int(params.pop(f, 0))
            for f in fields
        ]
        assert not params, params
        self.node(number, name, reads, (made,), self.words(*values) if values else 0)
        return made

    def finish(self, *outputs: int) -> bytes:
        """The file; `outputs` are numbers of nodes (default: the last one)."""
        last = [len(self._nodes) - 1] if not outputs else list(outputs)
        subgraph = self.words(
            0, 0, 0, self.vector(self._inputs), self.vector(last), self.vector(self._nodes),
            self.vector(self._tensors), self.vector(self._buffers), 0, 0,
        )  # fmt: skip
        root = self.words(0, 0, self.vector([subgraph]), self.text("model"))
        struct.pack_into("<I", self._content, 8, root)
        return bytes(self._content)


def filled(content: bytes, seed: int = 0) -> bytes:
    """A file whose constants without contents have random ones: Tengine's files for benchmarks.

    Weights keep the size of activations.
    """
    made, random = bytearray(content), np.random.default_rng(seed)

    def words(offset: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}I", made, offset)

    def vector(offset: int) -> tuple[int, ...]:
        return words(offset + 4, words(offset, 1)[0]) if offset else ()

    (root,) = words(8, 1)
    (graph,) = vector(words(root, 4)[2])
    _, _, _, _, _, _, tensors, buffers, _, _ = words(graph, 10)
    places = vector(buffers)
    for place in vector(tensors):
        _, buffer, dims, _, _, _, kind, _ = words(place, 8)
        if kind != CONSTANT or words(places[buffer], 2)[1]:
            continue
        shape = vector(dims)
        array = random.uniform(0.1, 0.5, shape)
        if len(shape) > 1:
            array = random.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
        made += bytes(-len(made) % 16)
        struct.pack_into("<II", made, places[buffer], 4 * array.size, len(made))
        made += array.astype("<f4").tobytes()
    return bytes(made)
