"""The parser of loop IR text (grammar: `loop.text`).  Indentation delimits blocks, as in Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tilesmith.ir.dtypes import BY_NAME, DType, i32, i64
from tilesmith.ir.expr import Const, Expr, Var, const
from tilesmith.ir.grammar import Slot, lines_of, tokens
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES, ForKind, Scope
from tilesmith.ir.parse import ExprParser, tokenize
from tilesmith.ir.tensor_intrinsics import tensor_intrinsic
from tilesmith.support.errors import ParseError, UsageError

from . import nodes as loop
from .nodes import Buffer, Func, Stmt, seq

_KINDS: dict[str, ForKind] = {kind.word: kind.name for kind in LOOP_KINDS.values()}
Named: TypeAlias = Callable[[Stmt], Stmt]
"""A function that gets the rest of a block and makes the statement that declares a name for it."""
_VECTOR_TYPE = re.compile(rf"({'|'.join(BY_NAME)})x(\d+)")


def parse_func(text: str) -> Func:
    """The function that `text` describes.  Raises ParseError with line and column."""
    try:
        return _FuncParser(tokenize(text)).func()
    except RecursionError:
        raise ParseError("the function is nested too deeply to be read") from None


class _FuncParser(ExprParser):
    """Reads statements.  The column of a line's first token is the line's indentation."""

    buffers: dict[str, Buffer]  # type: ignore[assignment]  # every buffer of a function is a loop.Buffer

    # --- lines ---

    def skip_blank_lines(self) -> None:
        while self.token.kind == "newline":
            self.position += 1

    def end_line(self) -> None:
        if self.token.kind == "end":
            return
        if self.token.kind != "newline":
            raise self.error("expected the end of the line")
        self.skip_blank_lines()

    def block(self, outside: int) -> Stmt:
        """The statements of a block that is indented more than column `outside`."""
        self.expect(":")
        self.end_line()
        return self.lines(outside)

    def lines(self, outside: int) -> Stmt:
        column = self.token.column
        if self.token.kind == "end" or column <= outside:
            raise self.error("expected an indented block")
        statements: list[Stmt] = []
        around: list[tuple[list[Stmt], Named]] = []  # open declarations
        while self.token.kind != "end" and self.token.column >= column:
            if self.token.column > column:
                raise self.error(f"expected a statement at column {column}")
            named = self.naming()
            if named is None:
                statements.append(self.statement(column))
                continue
            around.append((statements, named))
            statements = []
        if self.token.kind != "end" and outside < self.token.column < column:
            raise self.error(f"expected a statement at column {column} or the end of the block")
        for before, named in reversed(around):
            statements = [*before, named(seq(*statements))]
        return seq(*statements)

    # --- the header ---

    def func(self) -> Func:
        self.skip_blank_lines()
        start = self.token
        self.expect("def")
        name = self.name("the name of the function")
        params = self.params()
        self.expect("->")
        outputs: list[Buffer] = []
        if not self.accept("pass"):
            while True:
                token = self.token
                output = self.name("an output")
                if output not in self.buffers:
                    raise self.error("expected the name of a buffer parameter", token)
                outputs.append(self.buffers[output])
                if not self.accept(","):
                    break
        self.expect(":")
        self.end_line()
        column = self.token.column
        attrs: list[tuple[str, str]] = []
        while self.at("attr"):
            self.position += 1
            key = self.string()
            self.expect("=")
            attrs.append((key, self.string()))
            self.end_line()
        if self.token.kind != "end" and self.token.column != column:
            raise self.error(f"expected a statement at column {column}")
        body = self.lines(start.column)
        if self.token.kind != "end":
            raise self.error("expected the end of the function")
        return Func(name, params, tuple(outputs), body, tuple(attrs))

    def params(self) -> tuple[Buffer | Var, ...]:
        """The parameters.  Scalars are declared first, since extents may mention scalars that come
        later.
        """
        self.expect("(")
        start = self.position
        params: dict[str, Buffer | Var] = {}
        for buffers in (False, True):
            self.position = start
            while not self.at(")"):
                if self.position != start:
                    self.expect(",")
                token = self.token
                name = self.name("the name of a parameter")
                self.expect(":")
                following = self.tokens[self.position + 1 : self.position + 2]
                is_buffer = bool(following) and following[0].text == "["
                if not is_buffer:
                    dtype, lanes = self.value_type()
                    if not buffers:
                        if name in params:
                            raise self.error("this parameter appears twice", token)
                        self.vars[name] = Var(name, dtype, lanes)
                        params[name] = self.vars[name]
                elif buffers:
                    if name in params:
                        raise self.error("this parameter appears twice", token)
                    params[name] = self.buffers[name] = self.buffer(name, "param")
                else:
                    self.skip_brackets(self.position + 1)
        self.expect(")")
        return self.in_order(start, params)

    def skip_brackets(self, position: int) -> None:
        """Skip the extents whose bracket is at `position`, and a scope after them."""
        self.position = position
        depth = 0
        while True:
            token = self.next()
            if token.kind == "end":
                raise self.error("expected ']'", token)
            depth += (token.text == "[") - (token.text == "]")
            if depth == 0:
                break
        if self.token.text in SCOPES:
            self.position += 1

    def in_order(self, start: int, found: dict[str, Buffer | Var]) -> tuple[Buffer | Var, ...]:
        order: list[str] = []
        for token, following in zip(self.tokens[start : self.position], self.tokens[start + 1 :]):
            if token.text in found and token.text not in order and following.text == ":":
                order.append(token.text)
        return tuple(found[n] for n in order)

    def value_type(self) -> tuple[DType, int]:
        """A type such as `f32` or `f32x16`: the element type and the number of lanes."""
        m = _VECTOR_TYPE.fullmatch(self.token.text)
        if m:
            self.position += 1
            return BY_NAME[m[1]], int(m[2])
        return self.dtype(), 1

    def buffer(self, name: str, scope: Scope) -> Buffer:
        dtype = self.dtype()
        self.expect("[")
        shape: list[Expr | int] = []
        while not self.at("]"):
            if shape:
                self.expect(",")
            extent = self.expression()
            if isinstance(extent, Const) and extent.type is i64:
                shape.append(int(extent.value))
            else:
                shape.append(extent)
        self.expect("]")
        if self.token.text in SCOPES:
            scope = SCOPES[self.next().text].name
        return Buffer(name, dtype, tuple(shape), scope)

    # --- statements ---

    def statement(self, column: int) -> Stmt:
        if self.accept("pass"):
            self.end_line()
            return loop.Seq(())
        if self.accept("block"):
            return self.block(column)
        kind, values = self.head()
        for line in lines_of(kind):
            if line is not lines_of(kind)[0]:
                if not (self.token.column == column and self.at(line.literals[0])):
                    continue
                self.items(line.items, kind, values)
            if line.body is None:
                self.end_line()
            else:
                close = self.declare(kind, values)
                values[line.body] = self.block(column)
                close()
        return kind(**values)

    def naming(self) -> Named | None:
        """The constructor of the next statement, if the statement declares a name for the rest of
        the block; else None.
        """
        if not any(lines_of(k)[0].names_the_rest for k in _kinds_at(self)):
            return None
        kind, values = self.head()
        self.end_line()
        close = self.declare(kind, values)

        def named(body: Stmt) -> Stmt:
            close()
            return kind(**values, **{str(lines_of(kind)[0].body): body})

        return named

    def head(self) -> tuple[type[Stmt], dict[str, Any]]:
        """The kind of the next statement, and the values of the fields in its first line.

        Kinds whose lines begin alike are read together until literal text decides between them.
        """
        kinds = _kinds_at(self)
        values: dict[str, Any] = {}
        lines = {k: _split(lines_of(k)[0].items) for k in kinds}
        i = 0
        while True:
            items = {k: lines[k][i] for k in kinds if i < len(lines[k])}
            if not items:
                return kinds[0], values
            said = [k for k, item in items.items() if isinstance(item, str) and self.at(item)]
            kinds = (
                said or [k for k, item in items.items() if not isinstance(item, str)] or [*items]
            )
            self.items((items[kinds[0]],), kinds[0], values)
            i += 1

    def items(self, items: Iterable[str | Slot], kind: type[Stmt], values: dict[str, Any]) -> None:
        """Reads items of a line: literal text, and fields, whose values go to `values`."""
        for item in _split(items):
            if isinstance(item, str):
                # `block` reads the colon of a block.
                if item != ":" or kind not in _BLOCKS:
                    self.expect(item)
            else:
                _FORMS[item.form](self, item.field, values)

    # --- forms of fields ---

    def read_var(self, field: str, values: dict[str, Any]) -> None:
        name = self.name("the name of a variable")
        self.expect(":")
        values[field] = Var(name, *self.value_type())

    def read_counter(self, field: str, values: dict[str, Any]) -> None:
        name = self.name("the name of a loop variable")
        values[field] = Var(name, self.dtype() if self.accept(":") else i64)

    def read_buffer(self, field: str, values: dict[str, Any]) -> None:
        name = self.name("the name of a buffer")
        self.expect(":")
        values[field] = self.buffer(name, "heap")

    def read_name(self, field: str, values: dict[str, Any]) -> None:
        token = self.token
        name = self.name("a statement")
        if name not in self.buffers:
            raise self.error("expected the name of a buffer that is in scope", token)
        values[field] = self.buffers[name]

    def read_access(self, field: str, values: dict[str, Any]) -> None:
        values[field], values["mask"] = self.access()

    def read_guard(self, field: str, values: dict[str, Any]) -> None:
        values["likely"] = self.accept("likely")
        values[field] = self.expression()

    def read_first(self, field: str, values: dict[str, Any]) -> None:
        before = self.position
        values[field] = self.expression()
        if self.accept(","):
            self.expect("extent")
            self.expect("=")
        else:  # a single expression is the extent
            self.position = before
            values[field] = const(0, values["var"].dtype)

    def read_loop(self, field: str, values: dict[str, Any]) -> None:
        token = self.token
        word = self.name("a kind of loop")
        if word not in _KINDS:
            raise self.error(f"expected a kind of loop ({', '.join(_KINDS)})", token)
        values[field] = _KINDS[word]

    def read_operation(self, field: str, values: dict[str, Any]) -> None:
        values[field] = self.name(f"a word ({field})")

    def read_number(self, field: str, values: dict[str, Any]) -> None:
        token = self.token
        values[field] = self.integer()
        if values[field] < 0:
            raise self.error("expected a number from 0", token)

    def read_code(self, field: str, values: dict[str, Any]) -> None:
        is_literal = self.token.kind == "number"
        values[field] = const(self.integer(), i32) if is_literal else self.expression()

    def read_list(self, field: str, values: dict[str, Any]) -> None:
        values[field] = self.arguments()

    def read_string(self, field: str, values: dict[str, Any]) -> None:
        values[field] = self.string()

    def read_instruction(self, field: str, values: dict[str, Any]) -> None:
        token = self.token
        values[field] = self.name("the name of a tensor intrinsic")
        try:
            tensor_intrinsic(values[field])
        except UsageError as e:
            raise self.error(str(e), token) from None


_FORMS = {
    "expression": _FuncParser.read_expression, "var": _FuncParser.read_var,
    "counter": _FuncParser.read_counter, "buffer": _FuncParser.read_buffer,
    "name": _FuncParser.read_name, "access": _FuncParser.read_access,
    "guard": _FuncParser.read_guard, "first": _FuncParser.read_first,
    "loop": _FuncParser.read_loop, "word": _FuncParser.read_operation,
    "number": _FuncParser.read_number, "string": _FuncParser.read_string,
    "code": _FuncParser.read_code, "list": _FuncParser.read_list,
    "instruction": _FuncParser.read_instruction,
}  # fmt: skip
"""Form of a field in the statement's syntax -> its reader."""

_BY_WORD: dict[str, list[type[Stmt]]] = {}
"""First word -> the kinds of statements that begin with it.  The kinds under "" begin with a field.
"""
for _kind in vars(loop).values():
    if isinstance(_kind, type) and issubclass(_kind, Stmt) and _kind not in (Stmt, loop.Seq):
        _BY_WORD.setdefault(next(iter(lines_of(_kind)[0].literals), ""), []).append(_kind)

_BLOCKS = {k for kinds in _BY_WORD.values() for k in kinds if lines_of(k)[0].is_block}


def _kinds_at(parser: ExprParser) -> list[type[Stmt]]:
    """The kinds of statements that may begin at the next token."""
    token = parser.token
    return _BY_WORD.get(token.text if token.kind == "name" else "", _BY_WORD[""])


def _split(items: Iterable[str | Slot]) -> list[str | Slot]:
    """`items` with literal text divided into tokens."""
    return [t for i in items for t in (tokens(i) if isinstance(i, str) else (i,))]
