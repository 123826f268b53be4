"""Relay's text under construction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilesmith.frontend.relay.parse import type_name
from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Constant, Graph, Value
from tilesmith.ir.dtypes import DType, bool_, f16, f32, f64, i32, i64
from tilesmith.ops.base import Op

_SUFFIXES = {f32: "f", f64: "f64", f16: "f16", i32: "", i64: "i64"}
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*\Z")


class Writer:
    """A function under construction.

    constants: the constants of the graph and of its bodies, by value.
    """

    def __init__(self, graph: Graph, form: str) -> None:
        """form: "graph" for numbered nodes, "anf" for a `let` for each value."""
        self.constants: dict[Value, Constant] = dict(graph.constant)
        self.section: list[tuple[np.ndarray, DType]] = []
        self.lines: list[str] = []
        self._is_anf = form == "anf"
        self._count = 0
        self._depth = 1
        self._names: dict[Value, str] = {}
        self._stored: dict[tuple[str, bytes], str] = {}
        taken: set[str] = set()
        for i, v in enumerate(graph.inputs):
            name = v.name if _NAME.match(v.name) else re.sub(r"\W", "_", f"v_{v.name}")
            name = f"{name}_{i}" if name in taken or not v.name else name
            taken.add(name)
            self._names[v] = f"%{name}"
        self._taken = taken

    def name(self, v: Value) -> str:
        """A value as an operand."""
        if v not in self._names:
            constant = self.constants[v]
            self._names[v] = self.stored(logical_array(constant), v.dtype)
        return self._names[v]

    def stored(self, array: np.ndarray, dtype: DType) -> str:
        """A constant as an operand: a number, or a reference to the section of constants."""
        if array.ndim == 0 and (dtype in _SUFFIXES or dtype is bool_):
            return self.number(array.item(), dtype)
        key = f"{dtype}{array.shape}", array.tobytes()
        if key not in self._stored:
            self._stored[key] = f"meta[relay.Constant][{len(self.section)}]"
            self.section.append((array, dtype))
        return self._stored[key]

    def number(self, value: Any, dtype: DType) -> str:
        """A number as an operand of element type `dtype`."""
        if dtype is bool_:
            return str(bool(value))
        if dtype not in _SUFFIXES:
            return self.call("cast", self.number(value, i32), dtype=type_name(dtype))
        if not dtype.is_float:
            return f"{int(value)}{_SUFFIXES[dtype]}"
        return f"{_float(value)}{_SUFFIXES[dtype]}"

    def fresh(self) -> str:
        """A new name."""
        self._count += 1
        name = f"x{self._count - 1}"
        return f"%{name}" if name not in self._taken else self.fresh()

    def bind(self, expression: str) -> str:
        """Bind `expression` to a new name; returns the name."""
        if self._is_anf:
            name = self.fresh()
            self.let(name, expression)
            return name
        self._count += 1
        self.lines.append(f"%{self._count - 1} = {expression};")
        return f"%{self._count - 1}"

    def let(self, name: str, expression: str) -> None:
        """Bind a name."""
        self.lines.append(f"let {name} = {expression};")

    def call(self, operator: str, *operands: str, **attributes: Any) -> str:
        """Bind a call to a new name; returns the name.  Attributes that are None are omitted."""
        stated = [f"{k}={_attribute(v)}" for k, v in attributes.items() if v is not None]
        return self.bind(f"{operator}({', '.join((*operands, *stated))})")

    def tuple(self, items: Sequence[str]) -> str:
        """A tuple as an operand."""
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"

    def type_of(self, v: Value) -> str:
        """A value's type."""
        dims = ", ".join(map(str, v.type.static_shape))
        return f"Tensor[({dims}), {type_name(v.dtype)}]"

    @contextmanager
    def nested(self) -> Iterator[list[str]]:
        """A context in which new lines go to a block in braces; yields these lines."""
        outer, self.lines = self.lines, []
        self._depth += 1
        try:
            yield self.lines
        finally:
            self.lines = outer
            self._depth -= 1

    def joined(self, lines: Sequence[str]) -> str:
        """The text between the braces of a block with these lines."""
        indent = "\n" + "  " * (self._depth + 1)
        return "".join(indent + line for line in lines) + "\n" + "  " * self._depth

    def body(self, graph: Graph, writers: Mapping[type[Op], Callable[..., Any]]) -> list[str]:
        """Add a graph's nodes; returns its results as operands."""
        for node in graph.nodes:
            made = writers[type(node.op)](self, node)
            results = [made] if isinstance(made, str) else made
            self._names |= zip(node.outputs, results, strict=True)
        return [self.name(v) for v in graph.outputs]

    def block(
        self,
        graph: Graph,
        arguments: Sequence[str],
        writers: Mapping[type[Op], Callable[..., Any]],
        result: Callable[[Sequence[str]], str] | None = None,
    ) -> str:
        """The text of a block that computes a body for `arguments`.

        result: makes the block's result from the body's results.  None: the result itself, or a
            tuple of several.
        """
        self.constants |= graph.constant
        self._names |= zip(graph.inputs, arguments, strict=True)
        with self.nested() as lines:
            results = self.body(graph, writers)
            if result is None:
                lines.append(results[0] if len(results) == 1 else self.tuple(results))
            else:
                lines.append(result(results))
        return self.joined(lines)


def _float(value: float) -> str:
    """A float as text.  -0.0 keeps its sign."""
    return repr(float(value))


def _attribute(value: Any) -> str:
    if isinstance(value, (bool, int, np.integer)):
        return str(value)
    if isinstance(value, float):
        return f"{_float(value)}f"
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(_attribute, value))}]"
