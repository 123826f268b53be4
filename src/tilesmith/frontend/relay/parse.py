"""The parser of Relay's text, version 0.0.5, by recursive descent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.ir.dtypes import DType, by_name, i32
from tilesmith.ir.tokens import Token, TokenReader, tokens_of
from tilesmith.support.errors import ParseError, UnsupportedError

from . import syntax as sx

T = TypeVar("T")

VERSION = "0.0.5"

METADATA = re.compile(r"^[ \t]*#\[metadata\]", re.MULTILINE)
"""The line between the program and the section of constants."""

_TOKEN = re.compile(
    r"""(?P<newline>\n)
      |(?P<space>[ \t\r]+|//[^\n]*)
      |(?P<open>/\*)
      |(?P<local>%(?:[A-Za-z_]\w*(?:(?:\.|::|/(?=[A-Za-z_])|:(?=[0-9]))\w+)*|[0-9]+(?:\.[0-9]+)*))
      |(?P<global>@[A-Za-z_][\w.]*)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<number>(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|inf|nan)(?:[fiu][0-9]*)?(?!\w))
      |(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      |(?P<symbol>->|=>|[<>=!]=|[-+*/<>=(){}\[\],:;.?\#|])
    """,
    re.VERBOSE,
)

_INFIX = (
    {"==": "equal", "!=": "not_equal"},
    {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"},
    {"+": "add", "-": "subtract"},
    {"*": "multiply", "/": "divide"},
)
"""Infix operators, in the order of rising precedence."""

_TYPE_NAME = re.compile(r"(float|int|uint|bfloat|bool)([0-9]*)")
_LETTERS = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "bool": "bool"}
_WORDS = {letters: word for word, letters in _LETTERS.items()}


def element_type(name: str) -> DType | None:
    """The element type with TVM's name, such as float32."""
    parts = _TYPE_NAME.fullmatch(name)
    return None if parts is None else by_name(_LETTERS[parts[1]] + parts[2])


def type_name(dtype: DType) -> str:
    """TVM's name of an element type.  Raises UnsupportedError if it has none."""
    letters = dtype.name.rstrip("0123456789")
    if letters not in _WORDS:
        raise UnsupportedError(f"Relay has no element type {dtype}")
    return _WORDS[letters] + dtype.name[len(letters) :]


def parse(text: str, constants: Sequence[np.ndarray] | None) -> sx.Module:
    """The program of a text without its section of constants.

    constants: the constants; None if the text has no such section.

    Raises ParseError with line and column.
    """
    parser = _Parser(tokens_of(_TOKEN, _without_comments(text)), constants)
    return parser.module()


def _without_comments(text: str) -> str:
    """`text` with spaces instead of comments.  Comments (`/*` to `*/`) may be nested."""
    pieces, depth, start = [""], 0, 0
    for m in re.finditer(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*|\*/', text):
        if depth == 0 and m.group() == "/*":
            pieces.append(text[start : m.start()])
            start = m.start()
        depth = max(depth + {"/*": 1, "*/": -1}.get(m.group(), 0), 0)
        if depth == 0 and m.group() == "*/":
            pieces.append(re.sub(r"[^\n]", " ", text[start : m.end()]))
            start = m.end()
    return "".join(pieces) + text[start:]


class _Parser(TokenReader):
    """Each method reads one construct and advances past it."""

    def __init__(self, tokens: list[Token], constants: Sequence[np.ndarray] | None) -> None:
        super().__init__([t for t in tokens if t.kind != "newline"])
        self.constants = constants
        self.names: set[str] = set()
        self.depth = 0

    def need(self, kind: str, what: str) -> str:
        if self.token.kind != kind:
            raise self.error(f"expected {what}")
        return self.next().text

    def listed(self, close: str, read: Callable[[], T]) -> list[T]:
        """Items separated by commas.  Also reads the token `close` behind them."""
        items: list[T] = []
        while not self.accept(close):
            items.append(read())
            if not self.accept(","):
                self.expect(close)
                break
        return items

    # Programs

    def module(self) -> sx.Module:
        if self.accept("#"):
            for word in ("[", "version", "="):
                self.expect(word)
            token = self.token
            if self.string() != VERSION:
                raise self.error(f'expected version "{VERSION}"', token)
            self.expect("]")
        functions: dict[str, sx.Function] = {}
        if self.token.text in ("type", "extern", "import"):
            raise self.error("algebraic data types and imports are not supported")
        while self.accept("def"):
            token = self.token
            name = self.need("global", "'@' and a function's name")[1:]
            if name in functions:
                raise self.error("this function is defined already", token)
            functions[name] = self.function()
        if not functions:
            functions["main"] = self.expression_of_free_variables()
        if self.token.kind != "end":
            raise self.error("expected 'def' or the end of the text")
        if "main" not in functions:
            raise self.error("expected a function @main")
        return sx.Module(functions, f"Relay {VERSION}")

    def expression_of_free_variables(self) -> sx.Function:
        free: list[tuple[str, sx.Type]] = []
        while self.accept("free_var"):
            free.append(self.parameter())
            self.accept(";")
        body = self.expression()
        is_alone = isinstance(body, sx.Function) and not free
        return body if is_alone else sx.Function(tuple(free), body)  # type: ignore[return-value]

    def function(self) -> sx.Function:
        """A function after `def @name` or `fn`."""
        if self.accept("["):
            self.listed("]", self.type)
        self.expect("(")
        parameters: list[tuple[str, sx.Type]] = []
        while not self.accept(")"):
            if self.token.kind == "local":
                parameters.append(self.parameter())
            else:
                self.attribute({})
            if not self.at(")"):
                self.expect(",")
        if self.accept("->"):
            self.type()
        return sx.Function(tuple(parameters), self.braced())

    def parameter(self) -> tuple[str, sx.Type]:
        return self.new_name(), self.type() if self.accept(":") else None

    def new_name(self) -> str:
        name = self.need("local", "'%' and a name")[1:]
        self.names.add(name)
        return name

    def braced(self) -> sx.Expr:
        self.expect("{")
        body = self.expression()
        self.expect("}")
        return body

    # Types

    def type(self) -> sx.Type:
        token = self.token
        if self.accept("("):
            return tuple(self.listed(")", self.type))
        if self.accept("fn"):
            self.expect("(")
            self.listed(")", self.type)
            self.expect("->")
            self.type()
            return None
        name = self.need("name", "a type")
        if name == "Tensor":
            self.expect("[")
            self.expect("(")
            dims = tuple(self.listed(")", self.dimension))
            self.expect(",")
            token = self.token
            name = self.need("name", "an element type")
            self.expect("]")
        else:
            dims = ()
            for opening, close in ("[]", "()"):  # a list or tuple of types
                if self.accept(opening):
                    self.listed(close, self.type)
                    return None
        dtype = element_type(name)
        if dtype is None and name != "_" and token is not self.tokens[self.position - 1]:
            raise self.error("unknown element type", token)
        return None if dtype is None else sx.Tensor(dims, dtype)

    def dimension(self) -> int | str:
        token = self.next()
        if token.kind == "number" and token.text.isdecimal():
            return int(token.text)
        if token.text == "?" or token.kind == "name":
            return "" if token.text in ("?", "Any", "_") else token.text
        raise self.error("expected a dimension", token)

    # Expressions

    def expression(self, is_value: bool = False) -> sx.Expr:
        """Bindings and a result, as one expression.

        is_value: whether a semicolon ends the expression.  If not, the expression before a
            semicolon is a binding without a name, and others follow.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"expressions stand more than {MAX_DEPTH} deep in one another")
        bindings: list[tuple[str, sx.Expr]] = []
        while True:
            if self.accept("let"):
                name, _ = self.parameter()
            elif self.token.kind == "local" and self.tokens[self.position + 1].text == "=":
                name = self.new_name()
            else:
                result = self.infix(0)
                if is_value or not self.accept(";"):
                    break
                bindings.append(("_", result))
                continue
            self.expect("=")
            bindings.append((name, self.expression(is_value=True)))
            self.expect(";")
        self.depth -= 1
        return sx.Block(tuple(bindings), result) if bindings else result

    def infix(self, level: int) -> sx.Expr:
        if level == len(_INFIX):
            return self.postfix()
        left = self.infix(level + 1)
        while self.token.kind == "symbol" and self.token.text in _INFIX[level]:
            token = self.next()
            operator = sx.Operator(_INFIX[level][token.text])
            left = sx.Call(operator, (left, self.infix(level + 1)), {}, token.line)
        return left

    def postfix(self) -> sx.Expr:
        line = self.token.line
        e = self.atom()
        while True:
            if self.accept("("):
                attributes: dict[str, Any] = {}
                arguments: list[sx.Expr] = []
                while not self.accept(")"):
                    if self.token.kind == "name" and self.tokens[self.position + 1].text == "=":
                        self.attribute(attributes)
                    else:
                        arguments.append(self.expression())
                    if not self.at(")"):
                        self.expect(",")
                e = sx.Call(e, tuple(arguments), attributes, line)
            elif self.accept("."):
                token = self.token
                e = self.item(e, self.need("number", "an element's number").split("."), token)
            else:
                return e

    def item(self, e: sx.Expr, path: Sequence[str], token: Token) -> sx.Expr:
        for index in path:
            if not index.isdecimal():
                raise self.error("expected an element's number", token)
            e = sx.Item(e, int(index))
        return e

    def atom(self) -> sx.Expr:
        token = self.next()
        if token.kind == "local":
            return self.variable(token)
        if token.kind == "global":
            return sx.Global(token.text[1:])
        if token.text == "(":
            items, is_tuple = [], self.at(")")
            while not self.accept(")"):
                items.append(self.expression())
                if not self.at(")"):
                    self.expect(",")
                    is_tuple = True
            return sx.Tuple(tuple(items)) if is_tuple else items[0]
        if token.text == "fn":
            return self.function()
        if token.text == "if":
            self.expect("(")
            condition = self.expression()
            self.expect(")")
            then = self.braced()
            self.expect("else")
            return sx.Branch(condition, then, self.braced(), token.line)
        if token.text == "match":
            return self.match()
        if token.text == "meta":
            return self.constant(token)
        if token.text in ("True", "False"):
            return sx.Literal(np.array(token.text == "True"))
        if token.text == "-" or token.kind == "number":
            value, dtype = self.number(token)
            if dtype.is_int and not dtype.min <= value <= dtype.max:
                raise self.error(f"expected a number that {dtype} has", token)
            with np.errstate(over="ignore"):
                return sx.Literal(np.array(value, dtype.numpy))
        if token.kind == "name":
            return sx.Operator(token.text)
        raise self.error("expected an expression", token)

    def variable(self, token: Token) -> sx.Expr:
        """A local name, or an element of a tuple (`%a.0`).  Names may have points, too."""
        name, path = token.text[1:], []
        while name not in self.names:
            name, point, index = name.rpartition(".")
            if not point:
                raise self.error("this variable is not defined", token)
            path.insert(0, index)
        return self.item(sx.Name(name), path, token)

    def number(self, token: Token) -> tuple[int | float, DType]:
        """A number, and its element type."""
        sign = 1
        while token.text == "-":
            sign, token = -sign, self.next()
        number = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?|inf|nan)([fiu]?)([0-9]*)", token.text)
        if number is None:
            raise self.error("expected a number", token)
        text, letter, bits = number.groups()
        is_whole = text.isdecimal()
        is_long = not letter and (not is_whole or int(text) > i32.max)
        letter = letter or ("i" if is_whole else "f")
        dtype = by_name(letter + (bits or ("64" if is_long else "32")))
        if dtype is None or (letter != "f" and not is_whole):
            raise self.error("expected a number of a type that Relay has", token)
        return sign * (float(text) if letter == "f" else int(text)), dtype

    def constant(self, token: Token) -> sx.Expr:
        self.expect("[")
        kind = self.need("name", "a kind of constant")
        for word in ("]", "["):
            self.expect(word)
        index = self.need("number", "a constant's number")
        self.expect("]")
        if self.constants is None:
            raise self.error(
                "the text has no section #[metadata] with its constants (print it with "
                "mod.astext(show_meta_data=True))", token
            )  # fmt: skip
        if kind != "relay.Constant" or not index.isdecimal() or int(index) >= len(self.constants):
            raise self.error(f"expected one of {len(self.constants)} constants", token)
        return sx.Literal(self.constants[int(index)], f"constant{index}")

    def match(self) -> sx.Expr:
        self.accept("?")
        self.expect("(")
        of = self.expression()
        self.expect(")")
        self.expect("{")

        def clause() -> tuple[sx.Pattern, sx.Expr]:
            pattern = self.pattern()
            self.expect("=>")
            return pattern, self.braced() if self.at("{") else self.expression()

        return sx.Match(of, tuple(self.listed("}", clause)))

    def pattern(self) -> sx.Pattern:
        if self.accept("_"):
            return "_"
        if self.accept("("):
            return tuple(self.listed(")", self.pattern))
        if self.token.kind != "local":
            raise self.error("expected a pattern of tuples and names; others are not supported")
        return self.new_name()

    # Attributes

    def attribute(self, attributes: dict[str, Any]) -> None:
        token = self.token
        name = self.need("name", "an attribute's name")
        self.expect("=")
        if name in attributes:
            raise self.error("this attribute is given twice", token)
        attributes[name] = self.attribute_value()

    def attribute_value(self) -> Any:
        token = self.token
        if token.kind == "string":
            return self.string()
        self.position += 1
        if token.text in ("[", "("):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.error("lists stand too deep in one another", token)
            items = self.listed("]" if token.text == "[" else ")", self.attribute_value)
            self.depth -= 1
            return tuple(items)
        if token.kind == "name" and token.text in ("True", "False", "None"):
            return {"True": True, "False": False}.get(token.text)
        if token.text == "-" or token.kind == "number":
            return self.number(token)[0]
        if token.text == "meta":
            value = self.constant(token)
            return value.array if isinstance(value, sx.Literal) else None
        raise self.error("expected an attribute's value", token)


__all__ = ["METADATA", "VERSION", "ParseError", "element_type", "parse"]
