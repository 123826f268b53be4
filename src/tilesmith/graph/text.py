"""The canonical text of a graph; `graph.parse` reads it back.

    graph main(%x: f32[1,3,8,8]) {
      const %w: f32[4,3,3,3] = @0f3c9a5e71b2d846
      const %0: f32[] = [0.5]
      %y: f32[1,4,8,8]@"0 2 3 1" = conv(%x, %w) {pads=(1, 1, 1, 1)}  # "conv1"
      %1: f32[1,4,8,8] = fused(%y, %0) {body=graph g(%a: f32[1,4,8,8], %b: f32[]) {
        %0: f32[1,4,8,8] = mul(%a, %b)
        return %0 as "out"
      }}
      return %1 as "y"
    }

- A value is named by its label, made unique with `~1`, `~2`, ...  Values without a label are
  numbered.
- A label is quoted if it starts with a digit or has characters other than letters, digits and
  `_./~-`.
- `graph main<n 1..64~8>(%x: f32[n,3])` declares the symbolic dimension n, from 1 to 64 and expected
  to be 8.  Symbols that nodes define are declared there too.
- A node without results is written without "=".
- In A-normal form (`form="anf"`) each node with results is written as `let %y: f32[1,4] = ...`.
- `return %y as "y" in %x` says that result y lives in the memory of input x.
- Attributes with their default value are left out.  An attribute may be an operator:
  `of=conv {pads=(1, 1, 1, 1)}`.
- A constant of at most 8 elements is written out, in its physical order, if its numbers read back
  exactly.  Another constant is named by the digest of its contents; `constants_of` collects these
  contents.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from tilesmith.graph.nodes import Constant, Data, Graph, Node, Structure, Value
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.text import Names, print_expr
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.support.errors import InternalError

NameOf: TypeAlias = "Callable[[Any], str]"

Form: TypeAlias = Literal["graph", "anf"]
"""The form of a printed graph: nodes as definitions, or as a `let` each (A-normal form)."""

INLINE_ELEMENTS = 8
"""Upper bound on the elements of a constant that is written out."""

BARE_NAME = re.compile(r"[A-Za-z_/][A-Za-z0-9_./~-]*\Z")


def print_graph(graph: Graph, form: Form = "graph") -> str:
    """The text of `graph`, ending in a newline.  Both forms are read back as the same graph."""
    return _Printer(is_anf=form == "anf").graph(graph, "") + "\n"


def node_text(node: Node) -> str:
    """The text of one node, for messages.  Values without a label are numbered within the node."""
    values = dict.fromkeys((*node.inputs, *node.outputs))
    alone = Graph("", tuple(values), (), (), (), ())
    return _Printer().node(node, _names(alone), "  ")


def constants_of(graph: Graph) -> dict[str, np.ndarray]:
    """Digest -> physical array, for all constants that the text names by digest, also in
    sub-graphs.
    """
    arrays: dict[str, np.ndarray] = {}
    for c in (*graph.constants, *graph.default_of.values()):
        if inline_elements(c) is None:
            arrays[c.data.digest] = c.data.array
    for node in graph.nodes:
        for body in node.op.bodies if isinstance(node.op, Structure) else ():
            arrays.update(constants_of(body))
    return arrays


def _contents(constant: Constant) -> str:
    """The contents of a constant: its elements, or its digest."""
    elements = inline_elements(constant)
    return f"@{constant.data.digest}" if elements is None else elements


def inline_elements(constant: Constant) -> str | None:
    """The elements of a small constant as text; None if the text names the constant by its
    digest.
    """
    dtype, n = constant.value.dtype, 1
    for d in constant.value.shape:
        if not isinstance(d, int):
            return None
        n *= d
    if n > INLINE_ELEMENTS:
        return None  # decided without reading the contents
    array = constant.data.array
    if array.size > INLINE_ELEMENTS:
        return None
    elements = array.reshape(-1).tolist()
    if dtype.is_float:
        elements = [float(x) if x == x else math.nan for x in elements]
    if read_elements(elements, dtype).tobytes() != array.tobytes():
        return None  # "nan" would lose a NaN's sign or payload
    return f"[{', '.join(map(attribute_text, elements))}]"


def read_elements(elements: list[Any], dtype: DType) -> np.ndarray:
    """The flat array of `dtype` from elements that `inline_elements` wrote."""
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.array(elements, np.float64).astype(dtype.numpy)
    return np.array(elements, dtype.numpy)


def attribute_text(value: Any, dims: NameOf | None = None) -> str:
    """An attribute as text; `dims` names symbolic dimensions.  Sub-graphs are not indented."""
    return _Printer(dims).attribute(value, "")


def type_text(type: TensorType, dims: NameOf) -> str:
    """A type whose symbolic dimensions are named by `dims`."""
    shown = (str(d) if isinstance(d, int) else print_expr(d, dims) for d in type.shape)
    return f"{type.dtype}[{','.join(shown)}]"


class _Printer:
    """Writes the text of one program.  `dims` names the symbolic dimensions of the program and of
    its sub-graphs.
    """

    def __init__(self, dims: NameOf | None = None, is_anf: bool = False) -> None:
        self.dims = Names() if dims is None else dims
        self.is_anf = is_anf
        self.declared: set[Var] = set()

    def graph(self, graph: Graph, indent: str) -> str:
        name = _names(graph)
        inner = indent + "  "
        defaults = {v: f" = {_contents(c)}" for v, c in graph.default_of.items()}
        params = ", ".join(self.definition(v, name) + defaults.get(v, "") for v in graph.inputs)
        title = graph.name if BARE_NAME.match(graph.name) else json.dumps(graph.name)
        lines = [f"graph {title}{self.symbols(graph)}({params}) {{"]
        lines += [
            f"{inner}const {self.definition(c.value, name)} = {_contents(c)}"
            for c in graph.constants
        ]
        lines += [inner + self.node(n, name, inner) for n in graph.nodes]
        homes = {o: f" in {name[graph.inputs[i]]}" for o, i in graph.in_place}
        returned = ", ".join(
            f"{name[v]} as {json.dumps(n)}{homes.get(o, '')}"
            for o, (v, n) in enumerate(zip(graph.outputs, graph.output_names))
        )
        lines.append(f"{inner}return {returned}".rstrip())
        lines.append(f"{indent}}}")
        return "\n".join(lines)

    def symbols(self, graph: Graph) -> str:
        """The declaration of the symbols that no enclosing graph has declared, with their sizes."""
        new = [v for v in graph.symbols if v.sizes is not None and v not in self.declared]
        self.declared.update(new)
        shown = ", ".join(f"{self.dims(v)} {v.sizes}" for v in new)
        return f"<{shown}>" if new else ""

    def node(self, node: Node, name: dict[Value, str], indent: str) -> str:
        outputs = ", ".join(self.definition(v, name) for v in node.outputs)
        inputs = ", ".join(name[v] for v in node.inputs)
        braces = self.braces(node.op, indent)
        loc = f"  # {json.dumps(node.loc)}" if node.loc else ""
        let = "let " if self.is_anf and outputs else ""
        defines = f"{let}{outputs} = " if outputs else ""
        return f"{defines}{node.op.name}({inputs}){braces}{loc}"

    def definition(self, value: Value, name: dict[Value, str]) -> str:
        layout = f'@"{value.layout}"' if value.layout is not None else ""
        return f"{name[value]}: {type_text(value.type, self.dims)}{layout}"

    def braces(self, op: Op, indent: str) -> str:
        """The attributes of an operator, in braces; empty if none is shown."""
        shown = ", ".join(self.shown_attributes(op, indent))
        return f" {{{shown}}}" if shown else ""

    def shown_attributes(self, op: Op, indent: str) -> list[str]:
        """`name=value` of the attributes that differ from their default."""
        shown = []
        for f in fields(op):
            default = f.default if f.default_factory is MISSING else f.default_factory()
            text = self.attribute(getattr(op, f.name), indent)
            # Compare the texts, because 0.0 == -0.0 and 1 == True in Python.
            if default is MISSING or text != self.attribute(default, indent):
                shown.append(f"{f.name}={text}")
        return shown

    def attribute(self, value: Any, indent: str) -> str:
        if isinstance(value, (bool, int, type(None))) and not isinstance(value, np.generic):
            return repr(value)
        if isinstance(value, float):
            return repr(float(value)) if math.isfinite(value) else str(float(value))
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, tuple):
            items = ", ".join(self.attribute(v, indent) for v in value)
            return f"({items},)" if len(value) == 1 else f"({items})"
        if isinstance(value, DType):
            return str(value)
        if isinstance(value, TensorType):
            return type_text(value, self.dims)
        if isinstance(value, Layout):
            return f'@"{value}"'
        if isinstance(value, Graph):
            return self.graph(value, indent)
        if isinstance(value, Op):
            return f"{value.name}{self.braces(value, indent)}"
        if isinstance(value, Data):
            return f"@{value.digest}"
        if isinstance(value, Expr):
            return f"`{print_expr(value, self.dims)}`"
        raise InternalError(
            f"attribute {value!r} of type {type(value).__name__} has no text form; attributes are "
            "numbers, strings, None, dtypes, types, layouts, operators, graphs and tuples of these"
        )


def _names(graph: Graph) -> dict[Value, str]:
    """A unique printed name for every value, in order of definition."""
    names: dict[Value, str] = {}
    used: set[str] = set()
    unnamed = 0
    constants = [c.value for c in graph.constants]
    results = [v for n in graph.nodes for v in n.outputs]
    for v in (*graph.inputs, *constants, *results):
        if not v.name:
            names[v] = f"%{unnamed}"
            unnamed += 1
            continue
        label, copies = v.name, 0
        while label in used:
            copies += 1
            label = f"{v.name}~{copies}"
        used.add(label)
        names[v] = f"%{label if BARE_NAME.match(label) else json.dumps(label)}"
    for v in (*(i for n in graph.nodes for i in n.inputs), *graph.outputs):
        if v not in names:  # undefined values get a name for the verifier's message
            names[v] = f"%{json.dumps(f'undefined {v.name}')}"
    return names
