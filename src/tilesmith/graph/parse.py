"""The parser of the text form of graphs (see `graph.text`), by recursive descent.

The parser checks the text, not the program: types are taken as written, for `graph.verify` to
check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

import tilesmith.graph.measure
import tilesmith.graph.parts  # noqa: F401  (likewise)
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.text import read_elements
from tilesmith.ir.dtypes import BY_NAME, by_name, i64
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.parse import parse_expr, tokenize
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.text import reserved
from tilesmith.ir.tokens import Token, TokenReader, tokens_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.table import OPS
from tilesmith.support.errors import ParseError

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<loc>\#[ \t]*"(?:[^"\\\n]|\\.)*")
      |(?P<space>[ \t\r]+|\#[^\n]*)
      |(?P<newline>\n)
      |(?P<value>%(?:[A-Za-z_/][A-Za-z0-9_./~-]*|[0-9]+|"(?:[^"\\\n]|\\.)*"))
      |(?P<layout>@"[^"\n]*")
      |(?P<digest>@[0-9a-f]+)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<expr>`[^`\n]*`)
      |(?P<sizes>[0-9]+\.\.[0-9]+~[0-9]+)
      |(?P<number>-(?:inf|nan)\b|-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      |(?P<type>[A-Za-z_]\w*\[[^\]\n]*\])
      |(?P<name>[A-Za-z_/][A-Za-z0-9_./~-]*)
      |(?P<symbol>[=(){}\[\],:<>%@])
    """,
    re.VERBOSE,
)

_WORDS: dict[str, Any] = {
    "True": True,
    "False": False,
    "None": None,
    "inf": float("inf"),
    "nan": float("nan"),
}


def parse_graph(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that `text` describes.

    constants: digest -> contents, for the constants that the text names by digest.

    Raises ParseError with line and column.
    """
    parser = _Parser(tokens_of(_TOKEN, text), constants or {})
    try:
        graph = parser.graph()
    except RecursionError:
        raise ParseError("the graph is nested too deeply to be read") from None
    if parser.token.kind != "end":
        raise parser.error("expected the end of the text")
    return graph


class _Parser(TokenReader):
    """Each method reads one construct and advances past it."""

    def __init__(self, tokens: list[Token], constants: Mapping[str, np.ndarray]) -> None:
        super().__init__(tokens)
        self.constants = constants
        self.dims: dict[str, Var] = {}  # symbolic dimensions by name, one scope for the whole text

    # Tokens

    @property
    def token(self) -> Token:
        """The next token.  Comments are skipped; only after a node a comment is read (`loc`)."""
        while self.tokens[self.position].kind in ("newline", "loc"):
            self.position += 1
        return self.tokens[self.position]

    def take(self, kind: str) -> str | None:
        """The text of the next token if its kind is `kind`; else None, and nothing is read."""
        return self.next().text if self.token.kind == kind else None

    def need(self, kind: str, what: str) -> str:
        if self.token.kind != kind:
            raise self.error(f"expected {what}")
        return self.next().text

    def unquoted(self, quoted: str, token: Token) -> str:
        try:
            return json.loads(quoted)
        except ValueError as e:
            raise self.error(f"bad string ({e})", token) from None

    def quoted(self, what: str) -> str:
        token = self.token
        return self.unquoted(self.need("string", what), token)

    def listed(self, close: str, read: Callable[[], T]) -> list[T]:
        """Items with commas between them, up to and including the token `close`."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(read())
        return items

    # Graphs

    def graph(self) -> Graph:
        self.expect("graph")
        is_quoted = self.token.kind == "string"
        name = self.quoted("a name") if is_quoted else self.need("name", "the graph's name")
        if self.accept("<"):
            self.listed(">", self.symbol)
        scope: dict[str, Value] = {}
        defaults: dict[Value, Data] = {}
        self.expect("(")
        inputs = self.listed(")", lambda: self.parameter(scope, defaults))
        self.expect("{")
        constants: list[Constant] = []
        nodes: list[Node] = []
        while not self.accept("return"):
            if self.accept("const"):
                constants.append(self.const(scope))
            else:
                nodes.append(self.node(scope))
        results = self.listed("}", lambda: self.result(scope, inputs))
        homes = [(i, home) for i, (_, _, home) in enumerate(results) if home is not None]
        return Graph(
            name, tuple(inputs), tuple(constants), tuple(nodes), tuple(v for v, _, _ in results),
            tuple(n for _, n, _ in results), tuple(homes),
            tuple((inputs.index(v), data) for v, data in defaults.items()),
        )  # fmt: skip

    def symbol(self) -> None:
        """The declaration of a symbolic dimension."""
        token = self.token
        name = self.need("name", "a symbolic dimension's name")
        if name in self.dims or name in reserved():
            raise self.error("this name is taken", token)
        token = self.token
        numbers = re.findall("[0-9]+", self.need("sizes", "sizes like 1..64~8"))
        try:
            sizes = Sizes(*map(int, numbers))
        except ValueError as e:
            raise self.error(str(e), token) from None
        self.dims[name] = Var(name, i64, 1, sizes)

    def parameter(self, scope: dict[str, Value], defaults: dict[Value, Data]) -> Value:
        label, value = self.definition(scope)
        scope[label] = value
        if self.accept("="):
            defaults[value] = self.contents(value)
        return value

    def result(self, scope: dict[str, Value], inputs: list[Value]) -> tuple[Value, str, int | None]:
        """A result, its name, and the number of the input in whose memory it lives; None if it
        has memory of its own.
        """
        value = self.use(scope)
        if not self.accept("as"):
            raise self.error("expected 'as' and the output's name")
        name = self.quoted("the output's name")
        if not self.accept("in"):
            return value, name, None
        token = self.token
        home = self.use(scope)
        if home not in inputs:
            raise self.error("expected an input", token)
        return value, name, inputs.index(home)

    def label(self) -> str:
        """The key of a value in a scope: its printed name, or `%` and a number if it has no
        label.
        """
        token = self.token
        name = self.need("value", "'%' and a value's name")[1:]
        if name.startswith('"'):
            return self.unquoted(name, token)
        return f"%{name}" if name[0].isdigit() else name

    def definition(self, scope: dict[str, Value]) -> tuple[str, Value]:
        """A value and its key, which must not be in `scope` yet."""
        token = self.token
        label = self.label()
        if label in scope:
            raise self.error("this value is defined already", token)
        self.expect(":")
        type_ = self.tensor_type()
        layout = self.layout() if self.token.kind == "layout" else None
        return label, Value("" if label.startswith("%") else label, type_, layout)

    def use(self, scope: dict[str, Value]) -> Value:
        token = self.token
        label = self.label()
        if label not in scope:
            raise self.error("undefined value", token)
        return scope[label]

    def const(self, scope: dict[str, Value]) -> Constant:
        label, value = self.definition(scope)
        scope[label] = value
        self.expect("=")
        return Constant(value, self.contents(value))

    def contents(self, value: Value) -> Data:
        """The contents of a constant: its elements, or the contents that its digest names."""
        token = self.token
        if (digest := self.take("digest")) is not None:
            array = self.constants.get(digest[1:])
            if array is None:
                raise self.error(
                    "the contents of this constant were not given (`constants_of`)", token
                )
            return Data.of(array)
        self.expect("[")
        return Data.of(self.elements(value, self.listed("]", self.attribute), token))

    def elements(self, value: Value, elements: list[Any], token: Token) -> np.ndarray:
        shape = value.shape if value.layout is None else value.layout.physical_shape(value.shape)  # type: ignore[type-var]
        try:
            return read_elements(elements, value.dtype).reshape(shape)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError) as e:
            raise self.error(f"expected the elements of {value.type} ({e})", token) from None

    def node(self, scope: dict[str, Value]) -> Node:
        # The results come into scope after the inputs are read: a node cannot read itself.
        outputs: dict[str, Value] = {}
        is_let = self.accept("let")
        while self.accept(",") if outputs else is_let or self.token.kind == "value":
            token = self.token
            label, value = self.definition(scope)
            if label in outputs:
                raise self.error("this value is defined already", token)
            outputs[label] = value
        if outputs:
            self.expect("=")
        token = self.token
        name = self.need("name", "an operator")
        if name not in OPS:
            raise self.error("unknown operator", token)
        self.expect("(")
        inputs = self.listed(")", lambda: self.use(scope))
        op = self.op(OPS[name], token)
        scope.update(outputs)
        return Node(op, tuple(inputs), tuple(outputs.values()), self.loc())

    def loc(self) -> str:
        """The place in the source model, if a comment after the node gives one."""
        token = self.tokens[self.position]
        if token.kind != "loc":
            return ""
        self.position += 1
        return self.unquoted(token.text[1:].strip(), token)

    def op(self, cls: type[Op], at: Token) -> Op:
        attributes: dict[str, Any] = {}
        valid = [f.name for f in fields(cls)]

        def attribute() -> None:
            token = self.token
            key = self.need("name", "an attribute's name")
            if key not in valid:
                known = ", ".join(valid) or "(none)"
                raise self.error(f"{cls.name} has attributes {known}", token)
            if key in attributes:
                raise self.error(f"attribute '{key}' is given twice", token)
            self.expect("=")
            attributes[key] = self.attribute()

        after_inputs = self.position
        if self.accept("{"):
            self.listed("}", attribute)
        else:
            self.position = after_inputs  # the location comment comes next
        try:
            return cls(**attributes)
        except (TypeError, ValueError) as e:
            raise self.error(f"cannot make operator {cls.name} ({e})", at) from None

    # Types and attributes

    def tensor_type(self) -> TensorType:
        """A type such as `f32[1,n + 1]`."""
        token = self.token
        name, _, shape = self.need("type", "a type like f32[1,3]")[:-1].partition("[")
        dtype = by_name(name)
        if dtype is None:
            raise self.error(f"unknown element type; known are {', '.join(BY_NAME)}", token)
        return TensorType(dtype, tuple(self.dimension(d, token) for d in _dimensions(shape)))

    def dimension(self, piece: str, token: Token) -> Dim:
        return int(piece) if re.fullmatch(r"[0-9]+", piece) else self.expr(piece, token)

    def expr(self, piece: str, token: Token) -> Expr:
        try:
            tokens = tokenize(piece)
            for word, after in pairwise(tokens):
                is_call = after.text == "("
                if word.kind == "name" and word.text not in reserved() and not is_call:
                    self.dims.setdefault(word.text, Var(word.text))
            return parse_expr(piece, self.dims)
        except ParseError as e:
            raise self.error(f"bad dimension '{piece}' ({e})", token) from None

    def layout(self) -> Layout:
        token = self.next()
        try:
            return Layout.parse(token.text[2:-1])
        except ValueError as e:
            raise self.error(f"bad layout ({e})", token) from None

    def attribute(self) -> Any:
        token = self.token
        if token.kind == "string":
            return self.quoted("a string")
        if token.kind == "layout":
            return self.layout()
        if token.kind == "type":
            return self.tensor_type()
        if token.text == "graph":
            return self.graph()
        self.position += 1
        if token.kind == "expr":
            return self.expr(token.text[1:-1], token)
        if token.kind == "number":
            is_int = re.fullmatch(r"-?[0-9]+", token.text) is not None
            return int(token.text) if is_int else float(token.text)
        if token.text == "(":
            return self.tuple_items()
        if token.kind == "name" and token.text in _WORDS:
            return _WORDS[token.text]
        if token.kind == "name" and token.text in OPS:
            return self.op(OPS[token.text], token)
        dtype = by_name(token.text) if token.kind == "name" else None
        if dtype is None:
            raise self.error("expected an attribute's value", token)
        return dtype

    def tuple_items(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while not self.accept(")"):
            if items:
                self.expect(",")
                if self.accept(")"):
                    break
            items.append(self.attribute())
        return tuple(items)


def _dimensions(shape: str) -> list[str]:
    """The text of each dimension: commas inside parentheses do not divide."""
    pieces, depth = [""], 0
    for c in shape:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += c
    return [p.strip() for p in pieces] if shape.strip() else []
