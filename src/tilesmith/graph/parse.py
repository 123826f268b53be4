"""The parser of the text form of graphs (see `graph.text`), by recursive descent.

It checks the text, not the program: it takes types as written, and `graph.verify` checks them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

import tilesmith.graph.measure
import tilesmith.graph.parts  # noqa: F401  (likewise)
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.text import read_elements
from tilesmith.ir.dtypes import BY_NAME, DType, by_name, i64
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.parse import parse_expr, tokenize
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.text import reserved
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.table import OPS
from tilesmith.support.errors import ParseError

_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NAME = re.compile(r"[A-Za-z_/][A-Za-z0-9_./~-]*")
_DIGITS = re.compile(r"[0-9]+")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_NUMBER = re.compile(r"-?(?:inf\b|nan\b|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
_DIGEST = re.compile(r"@([0-9a-f]+)")
_LAYOUT = re.compile(r'@"([^"\n]*)"')
_LOC = re.compile(r'[ \t]*#[ \t]*("(?:[^"\\\n]|\\.)*")')
_COMMENT = re.compile(r"#[^\n]*")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SIZES = re.compile(r"([0-9]+)\.\.([0-9]+)~([0-9]+)")
_EXPR = re.compile(r"`([^`\n]*)`")

_WORDS: dict[str, Any] = {
    "True": True,
    "False": False,
    "None": None,
    "inf": float("inf"),
    "nan": float("nan"),
}


def parse_graph(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that `text` describes.

    constants: the contents of the constants that the text names by digest.

    Raises ParseError with line and column.
    """
    parser = _Parser(text, constants or {})
    try:
        graph = parser.graph()
    except RecursionError:
        raise ParseError("the graph is nested too deeply to be read") from None
    parser.skip()
    if parser.pos != len(text):
        parser.fail("expected the end of the text")
    return graph


class _Parser:
    """A position in the text; each method reads one construct and moves on."""

    def __init__(self, text: str, constants: Mapping[str, np.ndarray]) -> None:
        self.text = text
        self.pos = 0
        self.constants = constants
        self.dims: dict[str, Var] = {}  # symbolic dimensions by name, one scope for the whole text

    # Characters

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        start = self.pos if at is None else at
        line = self.text.count("\n", 0, start) + 1
        column = start - self.text.rfind("\n", 0, start)
        rest = self.text[start:].split("\n", 1)[0]
        end = "the end of the line" if start < len(self.text) else "the end"
        shown = f"'{rest[:30]}'" if rest else end
        raise ParseError(f"line {line}, column {column}: {message}, found {shown}")

    def skip(self) -> None:
        while True:
            space = _SPACE.match(self.text, self.pos)
            comment = _COMMENT.match(self.text, space.end()) if space else None
            self.pos = comment.end() if comment else (space.end() if space else self.pos)
            if comment is None:
                return

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.pos)
        if match:
            self.pos = match.end()
        return match

    def need(self, pattern: re.Pattern[str], what: str) -> str:
        match = self.take(pattern)
        return match.group() if match else self.fail(f"expected {what}")

    def accept(self, symbol: str) -> bool:
        self.skip()
        if self.text.startswith(symbol, self.pos):
            self.pos += len(symbol)
            return True
        return False

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            self.fail(f"expected '{symbol}'")

    def keyword(self, word: str) -> bool:
        self.skip()
        match = _WORD.match(self.text, self.pos)
        if match and match.group() == word:
            self.pos = match.end()
            return True
        return False

    def string(self, what: str) -> str:
        start = self.pos
        return self.unquote(self.need(_STRING, what), start)

    def unquote(self, quoted: str, at: int) -> str:
        try:
            return json.loads(quoted)
        except ValueError as e:
            self.fail(f"bad string ({e})", at)

    # Graphs

    def graph(self) -> Graph:
        if not self.keyword("graph"):
            self.fail("expected 'graph'")
        self.skip()
        quoted = self.text.startswith('"', self.pos)
        name = self.string("a name") if quoted else self.need(_NAME, "the graph's name")
        if self.accept("<"):
            self.symbols()
        scope: dict[str, Value] = {}
        inputs: list[Value] = []
        defaults: list[tuple[int, Data]] = []
        self.expect("(")
        while not self.accept(")"):
            if inputs:
                self.expect(",")
            label, value = self.definition(scope)
            scope[label] = value
            if self.accept("="):
                defaults.append((len(inputs), self.contents(value)))
            inputs.append(value)
        self.expect("{")
        constants: list[Constant] = []
        nodes: list[Node] = []
        while not self.keyword("return"):
            if self.keyword("const"):
                constants.append(self.const(scope))
            else:
                nodes.append(self.node(scope))
        outputs: list[Value] = []
        names: list[str] = []
        homes: list[tuple[int, int]] = []
        while not self.accept("}"):
            if outputs:
                self.expect(",")
            outputs.append(self.use(scope))
            if not self.keyword("as"):
                self.fail("expected 'as' and the output's name")
            names.append(self.string("the output's name"))
            if self.keyword("in"):
                self.skip()
                start = self.pos
                home = self.use(scope)
                if home not in inputs:
                    self.fail("expected an input", start)
                homes.append((len(outputs) - 1, inputs.index(home)))
        return Graph(
            name, tuple(inputs), tuple(constants), tuple(nodes), tuple(outputs), tuple(names),
            tuple(homes), tuple(defaults),
        )  # fmt: skip

    def symbols(self) -> None:
        """Declarations of symbolic dimensions, up to the closing bracket."""
        first = True
        while not self.accept(">"):
            if not first:
                self.expect(",")
            first = False
            self.skip()
            start = self.pos
            name = self.need(_SYMBOL, "a symbolic dimension's name")
            if name in self.dims or name in reserved():
                self.fail("this name is taken", start)
            self.skip()
            start = self.pos
            match = self.take(_SIZES)
            if match is None:
                self.fail("expected sizes like 1..64~8")
            try:
                sizes = Sizes(*(int(match.group(i)) for i in (1, 2, 3)))
            except ValueError as e:
                self.fail(str(e), start)
            self.dims[name] = Var(name, i64, 1, sizes)

    def label(self) -> str:
        """A value's printed name, the key of a scope.  A number stands for a value without
        a label.
        """
        self.expect("%")
        if self.text.startswith('"', self.pos):
            return self.string("a name")
        match = _NAME.match(self.text, self.pos)
        if match is None:
            digits = _DIGITS.match(self.text, self.pos)
            if digits is None:
                self.fail("expected a value's name after '%'")
            self.pos = digits.end()
            return f"%{digits.group()}"
        self.pos = match.end()
        return match.group()

    def definition(self, scope: dict[str, Value]) -> tuple[str, Value]:
        """A value and its key, which must not be in `scope` yet."""
        self.skip()
        start = self.pos
        label = self.label()
        if label in scope:
            self.fail("this value is defined already", start)
        self.expect(":")
        type_ = self.tensor_type()
        match = self.take(_LAYOUT)
        layout = self.layout(match.group(1)) if match else None
        return label, Value("" if label.startswith("%") else label, type_, layout)

    def use(self, scope: dict[str, Value]) -> Value:
        self.skip()
        start = self.pos
        label = self.label()
        return scope[label] if label in scope else self.fail("undefined value", start)

    def const(self, scope: dict[str, Value]) -> Constant:
        label, value = self.definition(scope)
        scope[label] = value
        self.expect("=")
        return Constant(value, self.contents(value))

    def contents(self, value: Value) -> Data:
        """Elements, or the contents that the digest names."""
        self.skip()
        start = self.pos
        digest = self.take(_DIGEST)
        if digest:
            array = self.constants.get(digest.group(1))
            if array is None:
                self.fail("the contents of this constant were not given (`constants_of`)", start)
            return Data.of(array)
        elements = []
        self.expect("[")
        while not self.accept("]"):
            if elements:
                self.expect(",")
            elements.append(self.attribute())
        return Data.of(self.elements(value, elements, start))

    def elements(self, value: Value, elements: list[Any], at: int) -> np.ndarray:
        shape = value.shape if value.layout is None else value.layout.physical_shape(value.shape)  # type: ignore[type-var]
        try:
            return read_elements(elements, value.dtype).reshape(shape)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError) as e:
            self.fail(f"expected the elements of {value.type} ({e})", at)

    def node(self, scope: dict[str, Value]) -> Node:
        # The results come into scope after the inputs are read: a node cannot read itself.
        outputs: dict[str, Value] = {}
        self.skip()
        while self.text.startswith("%" if not outputs else ",", self.pos):
            if outputs:
                self.expect(",")
            start = self.pos
            label, value = self.definition(scope)
            if label in outputs:
                self.fail("this value is defined already", start)
            outputs[label] = value
            self.skip()
        if outputs:
            self.expect("=")
        self.skip()
        start = self.pos
        name = self.need(_OPERATOR, "an operator")
        if name not in OPS:
            self.fail("unknown operator", start)
        inputs: list[Value] = []
        self.expect("(")
        while not self.accept(")"):
            if inputs:
                self.expect(",")
            inputs.append(self.use(scope))
        op = self.op(OPS[name], start)
        match = _LOC.match(self.text, self.pos)
        loc = ""
        if match:
            loc = self.unquote(match.group(1), self.pos)
            self.pos = match.end()
        scope.update(outputs)
        return Node(op, tuple(inputs), tuple(outputs.values()), loc)

    def op(self, cls: type[Op], at: int) -> Op:
        attributes: dict[str, Any] = {}
        valid = [f.name for f in fields(cls)]
        after_inputs = self.pos
        if self.accept("{"):
            while not self.accept("}"):
                if attributes:
                    self.expect(",")
                self.skip()
                start = self.pos
                key = self.need(_WORD, "an attribute's name")
                if key not in valid:
                    self.fail(f"{cls.name} has attributes {', '.join(valid) or '(none)'}", start)
                if key in attributes:
                    self.fail(f"attribute '{key}' is given twice", start)
                self.expect("=")
                attributes[key] = self.attribute()
        else:
            self.pos = after_inputs  # the loc comment is still to be read
        try:
            return cls(**attributes)
        except (TypeError, ValueError) as e:
            self.fail(f"cannot make operator {cls.name} ({e})", at)

    # Types and attributes

    def tensor_type(self) -> TensorType:
        self.skip()
        start = self.pos
        name = self.need(_WORD, "a type like f32[1,3]")
        dtype = by_name(name)
        if dtype is None:
            self.fail(f"unknown element type; known are {', '.join(BY_NAME)}", start)
        return self.dimensions(dtype)

    def dimensions(self, dtype: DType) -> TensorType:
        self.expect("[")
        start, depth = self.pos, 0
        dims: list[Dim] = []
        while True:
            if self.pos >= len(self.text) or self.text[self.pos] == "\n":
                self.fail("expected ']'")
            c = self.text[self.pos]
            depth += (c in "([") - (c in ")]")
            if depth < 0 or (c == "," and depth == 0):
                piece = self.text[start : self.pos].strip()
                if piece or dims or c == ",":
                    dims.append(self.dimension(piece, start))
                start = self.pos + 1
            self.pos += 1
            if depth < 0:
                return TensorType(dtype, tuple(dims))

    def dimension(self, piece: str, at: int) -> Dim:
        if re.fullmatch(r"[0-9]+", piece):
            return int(piece)
        return self.expr(piece, at)

    def expr(self, piece: str, at: int) -> Expr:
        try:
            tokens = tokenize(piece)
            for token, after in pairwise(tokens):
                is_call = after.text == "("
                if token.kind == "name" and token.text not in reserved() and not is_call:
                    self.dims.setdefault(token.text, Var(token.text))
            return parse_expr(piece, self.dims)
        except ParseError as e:
            self.fail(f"bad dimension '{piece}' ({e})", at)

    def layout(self, text: str) -> Layout:
        try:
            return Layout.parse(text)
        except ValueError as e:
            self.fail(f"bad layout ({e})")

    def attribute(self) -> Any:
        self.skip()
        start = self.pos
        if self.text.startswith('"', start):
            return self.string("a string")
        if match := self.take(_LAYOUT):
            return self.layout(match.group(1))
        if match := self.take(_EXPR):
            return self.expr(match.group(1), start)
        if match := self.take(_NUMBER):
            number = match.group()
            return int(number) if re.fullmatch(r"-?[0-9]+", number) else float(number)
        if self.accept("("):
            return self.tuple_items()
        word = _WORD.match(self.text, self.pos)
        name = word.group() if word else ""
        if name == "graph":
            return self.graph()
        dtype = by_name(name)
        if word and name in _WORDS:
            self.pos = word.end()
            return _WORDS[name]
        if word and dtype is not None:
            self.pos = word.end()
            return self.dimensions(dtype) if self.text.startswith("[", self.pos) else dtype
        return self.fail("expected an attribute's value")

    def tuple_items(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while not self.accept(")"):
            if items:
                self.expect(",")
                if self.accept(")"):
                    return tuple(items)
            items.append(self.attribute())
        return tuple(items)
