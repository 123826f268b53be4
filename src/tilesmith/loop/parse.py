"""The parser of loop IR text (the grammar is in `loop.text`).  Indentation delimits blocks, as in
Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

from tilesmith.ir.dtypes import BY_NAME, DType, i64
from tilesmith.ir.expr import Const, Expr, Var, const
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES, ForKind, Scope
from tilesmith.ir.parse import ExprParser, Token, tokenize
from tilesmith.ir.tensor_intrinsics import tensor_intrinsic
from tilesmith.support.errors import ParseError, UsageError

from . import nodes as loop
from .nodes import Buffer, Func, Stmt, seq

_KINDS: dict[str, ForKind] = {kind.word: kind.name for kind in LOOP_KINDS.values()}
Named: TypeAlias = Callable[[Stmt], Stmt]
"""Given what follows in the block, the statement that names something in it."""
_VECTOR_TYPE = re.compile(rf"({'|'.join(BY_NAME)})x(\d+)")


def parse_func(text: str) -> Func:
    """The function for its text.  Raises ParseError with line and column."""
    try:
        return _FuncParser(tokenize(text)).func()
    except RecursionError:
        raise ParseError("the function is nested too deeply to be read") from None


class _FuncParser(ExprParser):
    """Statements; the column of a line's first token is its indentation."""

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
        around: list[
            tuple[list[Stmt], Named]
        ] = []  # what follows a name is inside of its statement
        while self.token.kind != "end" and self.token.column >= column:
            if self.token.column > column:
                raise self.error(f"expected a statement at column {column}")
            rule = _NAMING.get(self.token.text) if self.token.kind == "name" else None
            if rule is None:
                statements.append(self.statement(column))
                continue
            self.position += 1
            around.append((statements, rule(self)))
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
        """Extents may mention scalars that come later, so those are declared first."""
        self.expect("(")
        start = self.position
        found: dict[str, Buffer | Var] = {}
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
                        if name in found:
                            raise self.error("this parameter appears twice", token)
                        self.vars[name] = Var(name, dtype, lanes)
                        found[name] = self.vars[name]
                elif buffers:
                    if name in found:
                        raise self.error("this parameter appears twice", token)
                    found[name] = self.buffers[name] = self.buffer(name, "param")
                else:
                    self.skip_brackets(self.position + 1)
        self.expect(")")
        return self.in_order(start, found)

    def skip_brackets(self, position: int) -> None:
        """Skip the extents that open at `position`, and a scope."""
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

    def string(self) -> str:
        token = self.next()
        if token.kind != "string":
            raise self.error("expected a text in double quotes", token)
        try:
            return json.loads(token.text)
        except ValueError:
            raise self.error("the text in quotes has a bad escape", token) from None

    def value_type(self) -> tuple[DType, int]:
        """`f32` or `f32x16`."""
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
        token = self.token
        rule = _STATEMENTS.get(token.text) if token.kind == "name" else None
        if rule is not None:
            self.position += 1
            return rule(self, column)
        return self.store(token)

    def pass_(self, column: int) -> Stmt:
        self.end_line()
        return loop.Seq(())

    def for_(self, column: int) -> Stmt:
        name = self.name("the name of a loop variable")
        dtype = self.dtype() if self.accept(":") else i64
        self.expect("in")
        token = self.token
        word = self.name("a kind of loop")
        if word not in _KINDS:
            raise self.error(f"expected a kind of loop ({', '.join(_KINDS)})", token)
        self.expect("(")
        start: Expr = const(0, dtype)
        extent = self.expression()
        if self.accept(","):
            self.expect("extent")
            self.expect("=")
            start, extent = extent, self.expression()
        self.expect(")")
        var = Var(name, dtype)
        outer = self.vars.get(name)
        self.vars[name] = var
        body = self.block(column)
        self.restore(name, outer)
        return loop.For(var, start, extent, _KINDS[word], body)

    def if_(self, column: int) -> Stmt:
        likely = self.at("likely")
        self.position += likely
        cond = self.expression()
        then = self.block(column)
        otherwise = None
        if self.at("else") and self.token.column == column:
            self.position += 1
            otherwise = self.block(column)
        return loop.If(cond, then, otherwise, likely)

    def tensor_(self, column: int) -> Stmt:
        token = self.token
        name = self.name("the name of a tensor intrinsic")
        try:
            tensor_intrinsic(name)
        except UsageError as e:
            raise self.error(str(e), token) from None
        return loop.Tensorize(name, self.block(column))

    def barrier_(self, column: int) -> Stmt:
        self.end_line()
        return loop.Barrier()

    def async_(self, column: int) -> Stmt:
        return loop.AsyncGroup(self.block(column))

    def wait_(self, column: int) -> Stmt:
        token = self.token
        pending = self.expression()
        if not isinstance(pending, Const) or pending.type is not i64 or pending.value < 0:
            raise self.error("expected a number of groups", token)
        self.end_line()
        return loop.Wait(int(pending.value))

    def block_(self, column: int) -> Stmt:
        return self.block(column)

    def alloc(self) -> Named:
        name = self.name("the name of a buffer")
        self.expect(":")
        buffer = self.buffer(name, "heap")
        self.end_line()
        outer = self.buffers.get(name)
        self.buffers[name] = buffer

        def named(body: Stmt) -> Stmt:
            if outer is None:
                del self.buffers[name]
            else:
                self.buffers[name] = outer
            return loop.Allocate(buffer, body)

        return named

    def let_(self) -> Named:
        name = self.name("the name of a variable")
        self.expect(":")
        dtype, lanes = self.value_type()
        self.expect("=")
        op, group = "", 1
        if self.accept("wave_reduce"):
            self.expect("(")
            op = self.name("how values are combined")
            self.expect(",")
            value = self.expression()
            self.expect(",")
            group = self.integer()
            self.expect(")")
        else:
            value = self.expression()
        self.end_line()
        var = Var(name, dtype, lanes)
        outer = self.vars.get(name)
        self.vars[name] = var

        def named(body: Stmt) -> Stmt:
            self.restore(name, outer)
            if op:
                return loop.WaveReduce(var, op, value, group, body)
            return loop.LetStmt(var, value, body)

        return named

    def assert_(self, column: int) -> Stmt:
        cond = self.expression()
        self.expect(",")
        message = self.string()
        self.end_line()
        return loop.Assert(cond, message)

    def eval_(self, column: int) -> Stmt:
        value = self.expression()
        self.end_line()
        return loop.Evaluate(value)

    def store(self, token: Token) -> Stmt:
        name = self.name("a statement")
        if name not in self.buffers:
            raise self.error("expected the name of a buffer that is in scope", token)
        indices, mask = self.access()
        self.expect("=")
        value = self.expression()
        self.end_line()
        return loop.Store(self.buffers[name], indices, value, mask)


_NAMING = {"alloc": _FuncParser.alloc, "let": _FuncParser.let_}
_STATEMENTS = {
    "pass": _FuncParser.pass_, "for": _FuncParser.for_, "if": _FuncParser.if_,
    "block": _FuncParser.block_, "tensor": _FuncParser.tensor_,
    "assert": _FuncParser.assert_,
    "eval": _FuncParser.eval_, "barrier": _FuncParser.barrier_,
    "async": _FuncParser.async_, "wait": _FuncParser.wait_,
}  # fmt: skip
