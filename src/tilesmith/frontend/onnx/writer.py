"""An ONNX model under construction: names, constants and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Binary, Const, Expr, Unary, Var
from tilesmith.ir.types import Dim
from tilesmith.ops.base import Op
from tilesmith.support.errors import UnsupportedError

from .tensors import ELEMENT_TYPES

CODES = {d: code for code, d in ELEMENT_TYPES.items()}
"""ONNX's numbers of element types."""

_ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "min": "Min", "max": "Max"}
"""ONNX's operators of extents."""


class Writer:
    """The ONNX model under construction.

    `written` holds nodes that were written together with an earlier one.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.written: set[Node] = set()
        self._names: dict[Value, str] = {}
        self._taken = set(graph.output_names) | {v.name for v in graph.inputs}
        self._constants: dict[tuple[str, bytes], str] = {}
        self._extents: dict[Dim, str] = {}
        for v in graph.inputs:
            self._names[v] = v.name
        if shared := {v.name for v in graph.inputs} & set(graph.output_names):
            raise UnsupportedError(f"an input and an output are called {min(shared)!r}")

    def name(self, v: Value) -> str:
        """The name of a value; a constant becomes an initializer when it is first read."""
        if v not in self._names:
            self._names[v] = self._fresh(v.name or "t")
            constant = self.graph.constant.get(v)
            if constant is not None:
                self._initialize(self._names[v], logical_array(constant), v.dtype)
        return self._names[v]

    def constant(self, array: np.ndarray) -> str:
        """The name of a small constant; equal constants share one name."""
        key = (f"{array.dtype}{array.shape}", array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._fresh("c")
            dtype = next(d for d in CODES if d.numpy == array.dtype)
            self._initialize(self._constants[key], array, dtype)
        return self._constants[key]

    def numbers(self, values: Dim | Sequence[Dim]) -> str:
        """The name of a scalar or a vector of i64, as ONNX's shapes and axes are.  It is a constant
        if all its numbers are known; open extents are computed from the shapes of the inputs.
        """
        if isinstance(values, Expr):
            return self.between("Squeeze", [self._extent(values)])
        if isinstance(values, int) or not any(isinstance(d, Expr) for d in values):
            return self.constant(np.asarray(values, np.int64))
        return self.between("Concat", [self._extent(d) for d in values], axis=0)

    def _extent(self, d: Dim) -> str:
        """The name of a vector of one number, an extent."""
        if d not in self._extents:
            self._extents[d] = self._new_extent(d)
        return self._extents[d]

    def _new_extent(self, d: Dim) -> str:
        match d:
            case int():
                return self.numbers([d])
            case Const():
                return self.numbers([int(d.value)])
            case Unary("neg", a):
                return self.between("Neg", [self._extent(a)])
            case Binary(op, a, b) if op in _ARITHMETIC:
                return self.between(_ARITHMETIC[op], [self._extent(a), self._extent(b)])
            case Binary("floormod", a, b):
                return self.between("Mod", [self._extent(a), self._extent(b)])
            case Binary("floordiv", a, b):  # ONNX's quotients are rounded towards zero
                terms = [self._extent(a), self._extent(b)]
                whole = self.between("Sub", [terms[0], self.between("Mod", terms)])
                return self.between("Div", [whole, terms[1]])
            case Var():
                for v in self.graph.inputs:
                    for axis, extent in enumerate(v.shape):
                        if extent is d:
                            return self.between("Shape", [v.name], start=axis, end=axis + 1)
        raise UnsupportedError(f"no form in ONNX is known for the extent {d}; give shapes=")

    def put(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """Add a node.  Attributes that are None are omitted."""
        from onnx import helper

        stated = {k: v for k, v in attributes.items() if v is not None}
        label = self._fresh(f"{outputs[0]}/{kind}")
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=label, **stated))

    def write(self, node: Node, kind: str, *more: str, **attributes: Any) -> None:
        """Write a node as one ONNX node.

        more: inputs after the node's own.
        """
        inputs = [self.name(v) for v in node.inputs]
        self.put(kind, [*inputs, *more], [self.name(v) for v in node.outputs], **attributes)

    def between(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """The result of a new ONNX node that corresponds to none of our nodes."""
        result = self._fresh("t")
        self.put(kind, inputs, [result], **attributes)
        return result

    def info(self, name: str, v: Value) -> Any:
        """The declaration of an input or output.  An extent that is computed has no name."""
        from onnx import helper

        dims = [
            d if isinstance(d, int) else d.name if isinstance(d, Var) else None for d in v.shape
        ]
        return helper.make_tensor_value_info(name, CODES[v.dtype], dims)

    def only_reader(self, v: Value, kind: type[Op]) -> Node | None:
        """The node of this kind that is the only reader of `v`, if there is one."""
        readers = self.graph.consumers.get(v, ())
        if len(readers) != 1 or v in self.graph.outputs or type(readers[0].op) is not kind:
            return None
        return readers[0]

    def _fresh(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def _initialize(self, name: str, array: np.ndarray, dtype: DType) -> None:
        from onnx import helper, numpy_helper

        if dtype.bits >= 8 or dtype.is_bool:
            self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
            return
        values = array.astype(np.int32).reshape(-1) & ((1 << dtype.bits) - 1)
        per_byte = 8 // dtype.bits
        padded = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
        padded[: values.size] = values
        parts = (padded[i::per_byte] << (i * dtype.bits) for i in range(per_byte))
        packed = np.bitwise_or.reduce(list(parts)).astype(np.uint8)
        self.initializers.append(
            helper.make_tensor(name, CODES[dtype], array.shape, packed.tobytes(), raw=True)
        )
