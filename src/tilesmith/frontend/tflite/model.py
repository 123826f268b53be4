"""A TFLite model as objects: subgraphs, tensors with their quantisation, operators, signatures.

The file's numbers are checked here: indices of tensors, buffers and operators, shapes, scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilesmith.frontend.common.flatbuffer import Buffer, Table
from tilesmith.frontend.common.limits import checked_shape
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tflite.schema import ELEMENT_TYPES, OPERATORS, SCHEMA
from tilesmith.ir import dtypes as dt
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import ModelError, UnsupportedError

_DTYPES: dict[str, DType] = {
    "FLOAT32": dt.f32,
    "FLOAT16": dt.f16,
    "FLOAT64": dt.f64,
    "BFLOAT16": dt.bf16,
    "FLOAT8_E4M3FN": dt.f8e4m3fn,
    "FLOAT8_E5M2": dt.f8e5m2,
    "BOOL": dt.bool_,
    "STRING": dt.string,
    **{f"{s}INT{b}": getattr(dt, f"{s.lower() or 'i'}{b}") for s in ("U", "") for b in (8, 16)},
    **{f"{s}INT{b}": getattr(dt, f"{s.lower() or 'i'}{b}") for s in ("U", "") for b in (32, 64)},
    "INT4": dt.int4,
    "UINT4": dt.uint4,
    "INT2": dt.int2,
}
"""Element types by TFLite's names; complex numbers, resources and variants have none."""

OPEN = -1
"""A dimension of any extent in a tensor's signature."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """A tensor's quantisation: real = scale * (stored - zero_point).

    scales: f32 [1], or one for each index of `axis`.
    zero_points: i64, as many as `scales`.
    axis: the axis along which they vary; 0 for a single scale.
    """

    scales: np.ndarray
    zero_points: np.ndarray
    axis: int

    @property
    def is_single(self) -> bool:
        """Whether all elements share a scale."""
        return len(self.scales) == 1

    @property
    def scale(self) -> float:
        """The single scale, an f32 number."""
        return float(self.scales[0])

    @property
    def zero_point(self) -> int:
        """The single zero point."""
        return int(self.zero_points[0])


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a subgraph as the file declares it.

    name: its name, which need not be unique.
    type_name: TFLite's name of its element type.
    dims: for each axis an extent, or `OPEN`; None if the rank is not known.
    buffer: number of the buffer with its contents; 0 for none.
    quantization: None for a tensor that is not quantised.
    is_variable: whether it keeps its contents from run to run.
    sparsity: the table that describes sparse contents.
    """

    name: str
    type_name: str
    dims: tuple[int, ...] | None
    buffer: int
    quantization: Quantization | None
    is_variable: bool
    sparsity: Table | None

    @property
    def dtype(self) -> DType:
        """The element type.  Raises UnsupportedError for a type that Tilesmith lacks."""
        dtype = _DTYPES.get(self.type_name)
        if dtype is None:
            raise UnsupportedError(f"tensor {self.name!r} is of type {self.type_name.lower()}")
        return dtype

    @property
    def is_quantized(self) -> bool:
        """Whether the tensor's integers stand for real numbers."""
        return self.quantization is not None and "INT" in self.type_name

    def is_stored_as(self, other: Tensor) -> bool:
        """Whether equal numbers are stored as equal integers in both tensors."""
        a, b = self.quantization, other.quantization
        if a is None or b is None:
            return a is b
        return np.array_equal(a.scales, b.scales) and np.array_equal(a.zero_points, b.zero_points)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as numbers.  Raises ModelError if the file leaves an extent open."""
        if self.dims is None or OPEN in self.dims:
            raise ModelError(f"tensor {self.name!r}: expected a known shape, found {self.dims}")
        return self.dims


@dataclass(frozen=True, slots=True)
class Operator:
    """A node of a subgraph.

    kind: the builtin operator's name, "CUSTOM" for one of `custom_code`.
    version: its version.
    custom_code: name of a custom operator; empty for a builtin one.
    inputs: numbers of the subgraph's tensors; -1 for an input that is left out.
    outputs: numbers of the subgraph's tensors.
    intermediates: numbers of tensors that hold the quantisation of values inside the operator.
    options: the builtin operator's options; None if the file has none.
    custom_options: the custom operator's options.
    """

    kind: str
    version: int
    custom_code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Table | None
    custom_options: bytes

    @property
    def name(self) -> str:
        """The operator's name for messages."""
        return self.custom_code or self.kind


@dataclass(frozen=True, slots=True)
class Signature:
    """A function of the model with named inputs and outputs.

    name: its key.
    subgraph: number of the subgraph that computes it.
    inputs, outputs: name -> number of a tensor of the subgraph.
    """

    name: str
    subgraph: int
    inputs: dict[str, int]
    outputs: dict[str, int]


class Subgraph:
    """A function of the model: tensors, and operators in the order in which they run."""

    def __init__(self, model: Model, table: Table, number: int) -> None:
        self._model, self._table = model, table
        self.name: str = table.name or f"subgraph{number}"
        self.tensors = tuple(
            _tensor(t, f"tensor {i} of {self.name!r}", model)
            for i, t in enumerate(table.tensors or ())
        )
        self.inputs = self._numbers(table.inputs, "its inputs")
        self.outputs = self._numbers(table.outputs, "its outputs")

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(self._operator(i, o) for i, o in enumerate(self._table.operators or ()))

    def _numbers(self, given: Any, what: str, least: int = 0) -> tuple[int, ...]:
        numbers = () if given is None else tuple(map(int, given))
        for n in numbers:
            if not least <= n < len(self.tensors):
                raise ModelError(
                    f"{what}: expected numbers of {self.name!r}'s {len(self.tensors)} tensors, "
                    f"found {n}"
                )
        return numbers

    def _operator(self, number: int, o: Table) -> Operator:
        codes = self._model.codes
        what = f"operator {number} of {self.name!r}"
        if o.opcode_index >= len(codes):
            raise ModelError(
                f"{what}: expected one of {len(codes)} operator codes, found {o.opcode_index}"
            )
        kind, custom_code, version = codes[o.opcode_index]
        return Operator(
            kind,
            version,
            custom_code,
            self._numbers(o.inputs, f"the inputs of {what}", -1),
            self._numbers(o.outputs, f"the outputs of {what}"),
            self._numbers(o.intermediates, f"the intermediates of {what}"),
            o.builtin_options or o.builtin_options2,
            self._custom_options(o, what),
        )

    def _custom_options(self, o: Table, what: str) -> bytes:
        if o.large_custom_options_offset > 1:
            return self._model.outside(
                o.large_custom_options_offset, o.large_custom_options_size, f"options of {what}"
            ).tobytes()
        return b"" if o.custom_options is None else o.custom_options.tobytes()


class Model:
    """A model in a file."""

    def __init__(self, content: bytes | memoryview, root: Table) -> None:
        """content: the file's bytes; root: its root table."""
        self.content, self.root = content, root
        self.codes = [_code(c) for c in root.operator_codes or ()]
        """For each operator code its builtin name, its custom name and its version."""
        self._subgraphs: dict[int, Subgraph] = {}
        self._buffers: Sequence[Table] = root.buffers or ()
        if not root.subgraphs:
            raise ModelError("expected a TFLite model, found one without a subgraph")

    @property
    def subgraphs(self) -> list[Subgraph]:
        """All subgraphs."""
        return [self.subgraph(i) for i in range(len(self.root.subgraphs))]

    def subgraph(self, number: int) -> Subgraph:
        """Subgraph `number`; 0 is the model's main function."""
        if number not in self._subgraphs:
            tables = self.root.subgraphs
            if not 0 <= number < len(tables):
                raise ModelError(f"expected one of {len(tables)} subgraphs, found number {number}")
            self._subgraphs[number] = Subgraph(self, tables[number], number)
        return self._subgraphs[number]

    def buffer(self, number: int) -> np.ndarray | None:
        """The bytes of a buffer; None for an empty one.  They stay in the file's memory."""
        if not 0 <= number < len(self._buffers):
            raise ModelError(f"expected one of {len(self._buffers)} buffers, found number {number}")
        b = self._buffers[number]
        if b.offset > 1:
            return self.outside(b.offset, b.size, f"buffer {number}")
        return b.data if b.data is not None and len(b.data) else None

    def outside(self, offset: int, size: int, what: str) -> np.ndarray:
        """Bytes that lie outside of the tables in the file."""
        if offset + size > len(self.content):
            raise ModelError(
                f"damaged file: {what} needs bytes {offset} to {offset + size}, found a file of "
                f"{len(self.content)} bytes"
            )
        return np.frombuffer(self.content, np.uint8, size, offset)

    @property
    def signatures(self) -> list[Signature]:
        """The model's named functions, in the file's order."""
        return [_signature(self, s) for s in self.root.signature_defs or ()]

    @property
    def metadata(self) -> dict[str, bytes]:
        """The contents of the file's metadata, by name."""
        contents = {m.name or "": self.buffer(m.buffer) for m in self.root.metadata or ()}
        return {name: b"" if c is None else c.tobytes() for name, c in contents.items()}


def read(source: Source) -> Model:
    """The model in a file.  Raises ModelError for a damaged one."""
    content = source.content
    assert content is not None
    return Model(content, Buffer(content, SCHEMA).root("Model"))


def _code(c: Table) -> tuple[str, str, int]:
    """An operator code's builtin name, custom name and version.  Old files have an 8-bit number."""
    number = max(c.builtin_code, c.deprecated_builtin_code)
    if not 0 <= number < len(OPERATORS):
        raise ModelError(
            f"expected a builtin operator below number {len(OPERATORS)}, found {number}: the file "
            "is damaged, or of a newer version of the format"
        )
    return OPERATORS[number], c.custom_code or "", c.version


def _signature(model: Model, s: Table) -> Signature:
    name = s.signature_key or ""
    graph = model.subgraph(s.subgraph_index)

    def named(maps: Any, what: str) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for m in maps or ():
            if not m.name or m.name in numbers or m.tensor_index >= len(graph.tensors):
                raise ModelError(
                    f"{what} of signature {name!r}: expected unique names of tensors, found "
                    f"{m.name!r} for tensor {m.tensor_index}"
                )
            numbers[m.name] = m.tensor_index
        return numbers

    return Signature(name, s.subgraph_index, named(s.inputs, "inputs"), named(s.outputs, "outputs"))


def _tensor(t: Table, what: str, model: Model) -> Tensor:
    if not 0 <= t.type < len(ELEMENT_TYPES):
        raise ModelError(f"{what}: expected an element type, found number {t.type}")
    return Tensor(
        t.name or "",
        ELEMENT_TYPES[t.type],
        _dims(t, what),
        t.buffer,
        _quantization(t.quantization, what),
        t.is_variable,
        t.sparsity,
    )


def _dims(t: Table, what: str) -> tuple[int, ...] | None:
    """The dimensions that the file states.  A shape without numbers is a scalar's.  In files that
    say whether a tensor's rank is known, the rank may also be unknown.
    """
    shape = () if t.shape is None else tuple(map(int, t.shape))
    checked_shape([d for d in shape if d != OPEN], what)
    signature = t.shape_signature
    if signature is None or not len(signature):
        return shape
    dims = tuple(map(int, signature))
    if len(dims) != len(shape) or any(
        d != OPEN and d != g for d, g in zip(dims, shape, strict=True)
    ):
        raise ModelError(
            f"{what}: expected a shape that fits its signature {list(dims)}, found {list(shape)}"
        )
    return dims


def _quantization(q: Table | None, what: str) -> Quantization | None:
    if q is None or q.scale is None or not len(q.scale):
        return None
    if q.details is not None:
        raise UnsupportedError(f"{what}: {q.details.table_name} is not supported")
    scales = q.scale.astype(np.float32)
    zeros = q.zero_point
    if zeros is None or not len(zeros):
        zeros = np.zeros(len(scales), np.int64)
    if len(zeros) == 1:
        zeros = np.repeat(zeros, len(scales))
    if len(zeros) != len(scales) or not np.isfinite(scales).all():
        raise ModelError(
            f"{what}: expected finite scales and as many zero points, found {len(scales)} scales "
            f"and {len(zeros)} zero points"
        )
    axis = q.quantized_dimension if len(scales) > 1 else 0
    return Quantization(scales, zeros.astype(np.int64), axis)
