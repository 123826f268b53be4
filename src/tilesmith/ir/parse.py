"""The parser of expression text (the grammar is in `ir.text`), and the tokens that it shares with
`loop.parse`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tilesmith.support.errors import ParseError, UsageError

from . import expr as ir
from .dtypes import BY_NAME, DType, bool_, f32, i64
from .expr import BufferLike, Expr, Var, const
from .tensor_intrinsics import tensor_intrinsic
from .text import COMPARISONS, INFIX, LOGICAL, PREFIX_CALLS, TENSOR_PREFIX, call_type

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\#[^\n]*)
      |(?P<newline>\n)
      |(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_.]*)
      |(?P<shared>\$\d+)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<symbol>:=|->|<<|>>|//|==|!=|<=|>=|[-+*/%&|^~<>=()\[\],:])
    """,
    re.VERBOSE,
)

_LEVELS: dict[str, tuple[str, int]] = {
    **{symbol: (op, level) for op, (symbol, level) in INFIX.items()},
    **{symbol: (op, level) for op, (symbol, level) in LOGICAL.items()},
}
_COMPARE_LEVEL = 4
_COMPARE_OPS = {symbol: op for op, symbol in COMPARISONS.items()}


class Token(NamedTuple):
    """A piece of the text; `kind` is a group of `_TOKEN` or "end"."""

    kind: str
    text: str
    line: int
    column: int


def tokenize(text: str, first_line: int = 1) -> list[Token]:
    """The tokens of `text` without blanks and comments, ended by one of kind "end".  Raises
    ParseError.
    """
    tokens: list[Token] = []
    line, start, position = first_line, 0, 0
    while position < len(text):
        m = _TOKEN.match(text, position)
        if m is None:
            column = position - start + 1
            raise ParseError(
                f"line {line}, column {column}: unexpected character {text[position]!r}"
            )
        kind = str(m.lastgroup)
        if kind != "space":
            tokens.append(Token(kind, m.group(), line, position - start + 1))
        position = m.end()
        if kind == "newline":
            line, start = line + 1, position
    tokens.append(Token("end", "", line, position - start + 1))
    return tokens


class ExprParser:
    """Recursive descent with precedence climbing over a list of tokens.

    `vars` and `buffers` give the meaning of names; a subclass may change them while parsing.
    """

    def __init__(
        self,
        tokens: list[Token],
        vars: Mapping[str, Var] | None = None,
        buffers: Mapping[str, BufferLike] | None = None,
    ) -> None:
        self.tokens = tokens
        self.position = 0
        self.vars: dict[str, Var] = dict(vars or {})
        self.buffers: dict[str, BufferLike] = dict(buffers or {})
        self.shared: dict[str, Expr] = {}

    # --- tokens ---

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def next(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def at(self, text: str) -> bool:
        """True if the next token is this symbol or word."""
        token = self.token
        return token.text == text and token.kind in ("symbol", "name", "newline")

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected '{text}'")

    def error(self, what: str, token: Token | None = None) -> ParseError:
        token = token or self.token
        found = (
            "the end"
            if token.kind == "end"
            else "the end of the line"
            if token.text == "\n"
            else f"'{token.text}'"
        )
        return ParseError(f"line {token.line}, column {token.column}: {what}, found {found}")

    def name(self, what: str) -> str:
        if self.token.kind != "name":
            raise self.error(f"expected {what}")
        return self.next().text

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.next()
        if token.kind != "number" or not token.text.isdigit():
            raise self.error("expected a whole number", token)
        return -int(token.text) if negative else int(token.text)

    def dtype(self) -> DType:
        token = self.token
        if token.kind != "name" or token.text not in BY_NAME:
            raise self.error(f"expected an element type ({', '.join(BY_NAME)})")
        self.position += 1
        return BY_NAME[token.text]

    def type_suffix(self) -> DType | None:
        """The type after a literal or call: `:i32`.  A colon before anything else opens a block."""
        following = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        if self.at(":") and following.text in BY_NAME:
            self.position += 2
            return BY_NAME[following.text]
        return None

    # --- expressions ---

    def expression(self, least: int = 0) -> Expr:
        left = self.operand(least)
        while True:
            token = self.token
            if token.kind not in ("symbol", "name"):
                return left
            if token.text in _LEVELS:
                op, level = _LEVELS[token.text]
                if level < least:
                    return left
                self.position += 1
                right = self.expression(level + 1)
                left = self.build(token, lambda a, b, op=op: ir.Binary(op, a, b), left, right)
            elif token.text in _COMPARE_OPS or token.text in (">", ">="):
                if least > _COMPARE_LEVEL:
                    return left
                self.position += 1
                right = self.expression(_COMPARE_LEVEL + 1)
                if token.text.startswith(">"):
                    left, right = right, left
                op = _COMPARE_OPS[token.text.replace(">", "<")]
                left = self.build(token, lambda a, b, op=op: ir.Compare(op, a, b), left, right)
            else:
                return left

    def build(self, token: Token, make: Callable[..., Expr], *operands: Expr) -> Expr:
        """`make(*operands)`, with its complaint about types turned into a ParseError at `token`."""
        try:
            return make(*operands)
        except (TypeError, ValueError) as e:
            raise ParseError(f"line {token.line}, column {token.column}: {e}") from None

    def operand(self, least: int) -> Expr:
        token = self.token
        if self.accept("not"):
            operand = self.expression(_COMPARE_LEVEL)
            if operand.dtype is not bool_:
                raise self.error(
                    f"'not' needs a bool, the operand is {operand.dtype}; '~' is for integers",
                    token,
                )
            return ir.Unary("not", operand)
        if self.accept("-"):
            following = self.token
            if following.kind == "number" or following.text in ("inf", "nan"):
                return self.number(negative=True)
            return ir.Unary("neg", self.operand(12))
        if self.accept("~"):
            return ir.Unary("not", self.operand(12))
        return self.primary()

    def number(self, negative: bool = False) -> ir.Const:
        token = self.next()
        is_float = token.text in ("inf", "nan") or not token.text.isdigit()
        dtype = self.type_suffix() or (f32 if is_float else i64)
        if is_float and not dtype.is_float:
            raise self.error(f"a literal of type {dtype} is a whole number", token)
        if dtype.is_float:
            value = float(token.text)
            return const(-value if negative else value, dtype)
        whole = -int(token.text) if negative else int(token.text)
        if not dtype.min <= whole <= dtype.max:
            raise self.error(f"the literal is out of the range of {dtype}", token)
        return const(whole, dtype)

    def primary(self) -> Expr:
        token = self.token
        if token.kind == "number":
            return self.number()
        if token.kind == "shared":
            self.position += 1
            if token.text not in self.shared:
                raise self.error("expected a part named before with ':='", token)
            return self.shared[token.text]
        if self.accept("("):
            if self.token.kind == "shared" and self.tokens[self.position + 1].text == ":=":
                name = self.next().text
                self.position += 1
                inner = self.expression()
                self.shared[name] = inner
            else:
                inner = self.expression()
            self.expect(")")
            return inner
        if token.kind != "name":
            raise self.error("expected an expression")
        self.position += 1
        return self.named(token)

    def named(self, token: Token) -> Expr:
        word = token.text
        if word in ("true", "false"):
            return const(word == "true")
        if word in ("nan", "inf"):
            dtype = self.type_suffix() or f32
            return const(math.nan if word == "nan" else math.inf, dtype)
        if self.at("["):
            if word not in self.buffers:
                raise self.error("expected the name of a buffer that is in scope", token)
            indices, mask = self.access()
            return ir.Load(self.buffers[word], indices, mask)
        if self.at("("):
            return self.call(token)
        if word not in self.vars:
            raise self.error("expected the name of a variable that is in scope", token)
        return self.vars[word]

    def access(self) -> tuple[tuple[Expr, ...], Expr | None]:
        """`[i, j, mask=m]`."""
        self.expect("[")
        indices: list[Expr] = []
        mask: Expr | None = None
        while not self.at("]"):
            if indices or mask is not None:
                self.expect(",")
            if self.at("mask") and self.tokens[self.position + 1].text == "=":
                self.position += 2
                mask = self.expression()
                break
            indices.append(self.expression())
        self.expect("]")
        return tuple(indices), mask

    def call(self, token: Token) -> Expr:
        self.expect("(")
        word = token.text
        if word == "let":
            return self.let()
        if word in ("ramp", "broadcast") or word.startswith("reduce_"):
            return self.vector(token)
        args: list[Expr] = []
        while not self.at(")"):
            if args:
                self.expect(",")
            args.append(self.expression())
        self.expect(")")
        if word in BY_NAME:
            self.count(token, args, 1)
            return ir.Cast(args[0], BY_NAME[word])
        if word in PREFIX_CALLS:
            self.count(token, args, 2)
            return self.build(token, lambda a, b: ir.Binary(word, a, b), *args)
        if word == "select":
            self.count(token, args, 3)
            return self.build(token, ir.Select, *args)
        if word.startswith(TENSOR_PREFIX):
            return self.tensor_call(word.removeprefix(TENSOR_PREFIX), args, token)
        dtype = self.type_suffix() or call_type(word, tuple(args))
        if dtype is None:
            raise self.error("a call without arguments needs a type: 'f():i64'", token)
        return ir.Call(word, tuple(args), dtype)

    def tensor_call(self, name: str, args: list[Expr], token: Token) -> Expr:
        try:
            result = tensor_intrinsic(name).result
        except UsageError as e:
            raise self.error(str(e), token) from None
        return ir.TensorCall(name, tuple(args), result.dtype, result.size)

    def count(self, token: Token, args: list[Expr], n: int) -> None:
        if len(args) != n:
            raise self.error(f"expected {n} argument{'s' * (n > 1)}, got {len(args)}", token)

    def vector(self, token: Token) -> Expr:
        word = token.text
        a = self.expression()
        self.expect(",")
        stride = None
        if word == "ramp":
            stride = self.expression()
            self.expect(",")
        size = self.integer()
        self.expect(")")
        if size < 1:
            raise self.error(f"a vector of {size} lanes does not exist", token)
        if word == "broadcast":
            return ir.Broadcast(a, size)
        if stride is not None:
            if stride.dtype is not a.dtype:
                raise self.error(
                    f"base and stride of a ramp have types {a.dtype} and {stride.dtype}", token
                )
            return ir.Ramp(a, stride, size)
        op = word.removeprefix("reduce_")
        if op not in ("add", "mul", "min", "max", "and", "or") or a.lanes % size:
            raise self.error(f"can't reduce {a.lanes} lanes to {size} with '{op}'", token)
        return ir.VectorReduce(op, a, size)

    def let(self) -> Expr:
        """`let(x, value, body)`; x is in scope in the body only."""
        name = self.name("the name of a variable")
        self.expect(",")
        value = self.expression()
        self.expect(",")
        var = Var(name, value.dtype, value.lanes)
        outer = self.vars.get(name)
        self.vars[name] = var
        body = self.expression()
        self.restore(name, outer)
        self.expect(")")
        return ir.Let(var, value, body)

    def restore(self, name: str, outer: Var | None) -> None:
        """End the scope of a name."""
        if outer is None:
            del self.vars[name]
        else:
            self.vars[name] = outer


def parse_expr(
    text: str,
    vars: Mapping[str, Var] | None = None,
    buffers: Mapping[str, BufferLike] | None = None,
) -> Expr:
    """The expression for its text.

    vars, buffers: the meaning of names.

    Raises ParseError with line and column.
    """
    parser = ExprParser(tokenize(text), vars, buffers)
    try:
        result = parser.expression()
    except RecursionError:
        raise ParseError("the expression is nested too deeply to be read") from None
    if parser.token.kind != "end":
        raise parser.error("expected the end of the expression")
    return result
