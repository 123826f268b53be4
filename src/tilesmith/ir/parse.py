"""The parser of expression text (the grammar is in `ir.text`); `loop.parse` extends it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilesmith.support.errors import ParseError, UsageError

from . import expr as ir
from .dtypes import BY_NAME, DType, bool_, f32, i64
from .expr import BufferLike, Expr, Var, const
from .functions import result_type
from .grammar import Role, Slot, fields_of, fields_with, tokens
from .operations import COMPARE, COMPARISONS, INFIX, LOGICAL, PREFIX_CALLS
from .tensor_intrinsics import tensor_intrinsic
from .text import VOCABULARY
from .tokens import Token, TokenReader, tokens_of

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
_COMPARE_OPS = {symbol: op for op, symbol in COMPARISONS.items()}


def tokenize(text: str, first_line: int = 1) -> list[Token]:
    """The tokens of expressions and loops as text.  Raises ParseError where no token matches."""
    return tokens_of(_TOKEN, text, first_line)


class ExprParser(TokenReader):
    """Recursive descent with precedence climbing over a list of tokens.

    `vars` and `buffers` map names to objects; a subclass may change them while parsing.
    """

    def __init__(
        self,
        tokens: list[Token],
        vars: Mapping[str, Var] | None = None,
        buffers: Mapping[str, BufferLike] | None = None,
    ) -> None:
        super().__init__(tokens)
        self.vars: dict[str, Var] = dict(vars or {})
        self.buffers: dict[str, BufferLike] = dict(buffers or {})
        self.shared: dict[str, Expr] = {}

    # --- tokens ---

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
                if least > COMPARE:
                    return left
                self.position += 1
                right = self.expression(COMPARE + 1)
                if token.text.startswith(">"):
                    left, right = right, left
                op = _COMPARE_OPS[token.text.replace(">", "<")]
                left = self.build(token, lambda a, b, op=op: ir.Compare(op, a, b), left, right)
            else:
                return left

    def build(self, token: Token, make: Callable[..., Expr], *operands: Expr) -> Expr:
        """`make(*operands)`; an error about types becomes a ParseError at `token`."""
        try:
            return make(*operands)
        except (TypeError, ValueError) as e:
            raise ParseError(f"line {token.line}, column {token.column}: {e}") from None

    def operand(self, least: int) -> Expr:
        token = self.token
        if self.accept("not"):
            operand = self.expression(COMPARE)
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
            return self.prefix_call(token) if word in PREFIX_CALLS else self.call(token)
        if word not in self.vars:
            raise self.error("expected the name of a variable that is in scope", token)
        return self.vars[word]

    def access(self) -> tuple[tuple[Expr, ...], Expr | None]:
        """Indices and an optional mask: `[i, j, mask=m]`."""
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

    def prefix_call(self, token: Token) -> Expr:
        self.expect("(")
        a = self.expression()
        self.expect(",")
        b = self.expression()
        self.expect(")")
        return self.build(token, lambda: ir.Binary(token.text, a, b))

    def call(self, token: Token) -> Expr:
        """The node whose declared text begins with a word and a parenthesis."""
        kind, rest, values = self.kind_of(token)
        binders = fields_with(kind, Role.BINDER)
        many = {f.name for f in fields_of(kind) if f.is_many}
        for item in rest:
            if isinstance(item, str):
                self.expect(item)
            elif item.field in kind.bodies and binders:
                close = self.declare(kind, values)
                _FORMS[item.form](self, item.field, values)
                close()
            elif item.field in many:
                values[item.field] = self.arguments()
            else:
                _FORMS[item.form](self, item.field, values)
        refused = _CHECKS[kind](**values) if kind in _CHECKS else None
        if refused is not None:
            raise self.error(refused, token)
        return self.build(token, lambda: kind(**values))

    def kind_of(self, token: Token) -> tuple[type[Expr], list[str | Slot], dict[str, Any]]:
        """The kind of node whose text begins with a word, the items after the word, and the fields
        that the word contains.
        """
        values: dict[str, Any] = {}
        word = token.text
        for begin in _BEGINNINGS:
            if begin.slot is None:
                if word == begin.prefix:
                    return begin.kind, begin.rest, values
            elif word.startswith(begin.prefix):
                rest, form = word.removeprefix(begin.prefix), begin.slot.form
                if form in _ANY_WORD or rest in VOCABULARY[form]:
                    _WORDS[form](self, begin.slot.field, values, rest, token)
                    return begin.kind, begin.rest, values
        raise self.error("expected an expression", token)

    def arguments(self) -> tuple[Expr, ...]:
        """Expressions up to a closing parenthesis."""
        args: list[Expr] = []
        while not self.at(")"):
            if args:
                self.expect(",")
            args.append(self.expression())
        return tuple(args)

    def declare(self, kind: type, values: dict[str, Any]) -> Callable[[], None]:
        """Puts a node's declarations into scope.  Returns a function that ends the scope."""
        outer: list[tuple[dict[str, Any], str, Any]] = []
        for f in fields_with(kind, Role.BINDER):
            item = values[f.name]
            scope: dict[str, Any] = self.vars if isinstance(item, Var) else self.buffers
            outer.append((scope, item.name, scope.get(item.name)))
            scope[item.name] = item

        def close() -> None:
            for scope, name, item in reversed(outer):
                if item is None:
                    del scope[name]
                else:
                    scope[name] = item

        return close

    # --- forms of fields ---

    def read_expression(self, field: str, values: dict[str, Any]) -> None:
        values[field] = self.expression()

    def read_bound(self, field: str, values: dict[str, Any]) -> None:
        name = self.name("the name of a variable")
        self.expect(",")
        values["value"] = value = self.expression()
        values[field] = Var(name, value.dtype, value.lanes)

    def read_lanes(self, field: str, values: dict[str, Any]) -> None:
        token = self.token
        values[field] = self.integer()
        if values[field] < 1:
            raise self.error("expected a number of lanes from 1", token)

    def read_suffix(self, field: str, values: dict[str, Any]) -> None:
        args = values["args"]
        first = args[0].dtype if args else None
        values[field] = self.type_suffix() or result_type(values["name"], first)
        if values[field] is None:
            raise self.error("a call without arguments needs a type: 'f():i64'")

    def read_word(self, field: str, values: dict[str, Any], word: str, token: Token) -> None:
        values[field] = word

    def read_type(self, field: str, values: dict[str, Any], word: str, token: Token) -> None:
        values[field] = BY_NAME[word]

    def read_intrinsic(self, field: str, values: dict[str, Any], word: str, token: Token) -> None:
        try:
            result = tensor_intrinsic(word).result
        except UsageError as e:
            raise self.error(str(e), token) from None
        values |= {field: word, "type": result.dtype, "size": result.size}


_FORMS: dict[str, Callable[[ExprParser, str, dict[str, Any]], None]] = {
    "expression": ExprParser.read_expression, "bound": ExprParser.read_bound,
    "lanes": ExprParser.read_lanes, "suffix": ExprParser.read_suffix,
}  # fmt: skip
"""Readers of fields, by the form in the syntax of the node."""

_WORDS: dict[str, Callable[[ExprParser, str, dict[str, Any], str, Token], None]] = {
    "function": ExprParser.read_word, "intrinsic": ExprParser.read_intrinsic,
    "reduction": ExprParser.read_word, "type": ExprParser.read_type,
}  # fmt: skip
"""Readers of a field that is a part of the first word of a node's text."""

_ANY_WORD = ("function", "intrinsic")
"""Forms whose words are not all in `VOCABULARY`.  The verifier checks these words."""

_CHECKS: dict[type[Expr], Callable[..., str | None]] = {
    ir.Ramp: lambda base, stride, size: (
        None
        if base.dtype is stride.dtype
        else f"expected a base and a stride of one type, got {base.dtype} and {stride.dtype}"
    ),
    ir.VectorReduce: lambda op, a, size: (
        f"expected a number of lanes that divides {a.lanes}, got {size}" if a.lanes % size else None
    ),
}
"""Functions that return the reason why a node can't be made of the values read; None if it can."""


class _Beginning(NamedTuple):
    """The word with which a kind of node begins, and the items after it.

    prefix: the word, or its first part.
    slot: the field that forms the rest of the word; None if no field does.
    """

    prefix: str
    slot: Slot | None
    kind: type[Expr]
    rest: list[str | Slot]

    @property
    def takes_any(self) -> bool:
        return self.slot is not None and self.slot.form in _ANY_WORD


def _beginnings() -> list[_Beginning]:
    beginnings: list[_Beginning] = []
    for kind in vars(ir).values():
        items = getattr(kind, "items", ()) if isinstance(kind, type) else ()
        pieces = [t for i in items for t in (tokens(i) if isinstance(i, str) else (i,))]
        if "(" in pieces and issubclass(kind, Expr):
            paren = pieces.index("(")
            prefix = "".join(p for p in pieces[:paren] if isinstance(p, str))
            slot = next((p for p in pieces[:paren] if isinstance(p, Slot)), None)
            beginnings.append(_Beginning(prefix, slot, kind, pieces[paren:]))
    # Whole words and long prefixes come first.  Forms that take any word come last.
    return sorted(beginnings, key=lambda b: (b.takes_any, -len(b.prefix)))


_BEGINNINGS = _beginnings()


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
