"""Expressions as Python source, for the interpreter.

An expression with one use becomes part of the source of its user.  An expression with several uses,
or a deeply nested one, is first assigned to a variable.  A `Select` whose branches load becomes an
`if` (scalar), or its loads get masks (vector).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import BufferLike, Const, Expr, Var, count_uses, post_order
from tilesmith.ir.operations import SYMBOLS
from tilesmith.support.errors import InternalError

from . import interpret_values as values
from .nodes import Store
from .text import head

# Upper bound on the characters of a nested expression without variables: Python limits nesting.
_MAX_SOURCE = 400


class Emitter:
    """A call with an expression returns the source of its value.  The call may write lines that
    must run before this source.

    `begin` starts a statement.  Variables for shared parts are valid only within one statement.
    """

    def __init__(
        self,
        line: Callable[[str], None],
        env: dict[str, Any],
        fresh: Callable[[str], str],
        tensor: Callable[[str], Callable[..., np.ndarray]],
    ) -> None:
        self.write, self.env, self.fresh, self.tensor = line, env, fresh, tensor
        self.names: dict[Var, str] = {}
        self.data_vars: set[Var] = set()  # i64 variables that hold data, not indices
        self.buffers: dict[BufferLike, tuple[str, list[str]]] = {}
        self.constants: dict[Any, str] = {}
        self.uses: dict[Expr, int] = {}
        self.done: dict[tuple[Expr, str | None], str] = {}
        self.index: dict[Expr, bool] = {}
        self.active: str | None = None  # source of the mask of active lanes
        self.pending: list[str] | None = None  # lines before a branch's value

    # --- bindings ---

    def bind(self, var: Var, name: str, is_index: bool) -> None:
        self.names[var] = name
        if is_index:
            self.data_vars.discard(var)
        else:
            self.data_vars.add(var)
        self.index.clear()

    def bind_buffer(self, buffer: BufferLike, data: str, dims: list[str]) -> None:
        self.buffers[buffer] = (data, dims)

    def begin(self, exprs: Sequence[Expr]) -> None:
        self.done.clear()
        self.uses.clear()
        count_uses(dict.fromkeys(exprs), self.uses)

    def constant(self, value: Any, prefix: str = "c") -> str:
        """A name for a value that has no source text."""
        key = (type(value), value) if not isinstance(value, float) else (type(value), repr(value))
        try:
            name = self.constants.get(key)
        except TypeError:
            key, name = (type(value), id(value)), None
        if name is None:
            name = self.fresh(prefix)
            self.constants[key] = name
            self.env[name] = value
        return name

    def is_index(self, e: Expr) -> bool:
        """True if `e`, of type i64, consists of loop variables and literals only, and so can't
        overflow.
        """
        known = self.index.get(e)
        if known is None:
            if type(e) is Var:
                known = e.dtype is i64 and e not in self.data_vars
            elif type(e) is Const:
                known = abs(int(e.value)) < 1 << 40 if not e.type.is_float else False
            elif type(e) in (ir.Binary, ir.Unary, ir.Select) and e.dtype is i64:
                parts = e.children[1:] if type(e) is ir.Select else e.children
                known = all(map(self.is_index, parts))
            else:
                known = False
            self.index[e] = known
        return known

    # --- expressions ---

    def __call__(self, e: Expr) -> str:
        key = (e, self.active)
        written = self.done.get(key)
        if written is not None:
            return written
        source = _RULES[type(e)](self, e) if type(e) in _RULES else self.unknown(e)
        simple = type(e) in (Var, Const)
        if not simple and (self.uses.get(e, 0) > 1 or len(source) > _MAX_SOURCE):
            name = self.fresh("t")
            self.line(f"{name} = {source}")
            source = name
        if simple or self.uses.get(e, 0) > 1:
            self.done[key] = source
        return source

    def line(self, text: str) -> None:
        if self.pending is None:
            self.write(text)
        else:
            self.pending.append(text)

    def unknown(self, e: Expr) -> str:
        raise InternalError(f"the interpreter does not know {type(e).__name__}: {e}")

    def var(self, e: Var) -> str:
        if e not in self.names:
            raise InternalError(f"variable '{e.name}' is used outside its scope")
        return self.names[e]

    def const(self, e: Const) -> str:
        if e.type.is_float:
            kind = e.type.numpy.type
            key = ("float", e)
            name = self.constants.get(key)
            if name is None:
                name = self.constants[key] = self.fresh("c")
                self.env[name] = kind(e.value)
            return name
        return f"({e.value})" if not e.type.is_bool and e.value < 0 else str(e.value)

    def unary(self, e: ir.Unary) -> str:
        a = self(e.a)
        if e.op == "not":
            if e.dtype.is_bool:
                return f"(~{a})" if e.lanes > 1 else f"(not {a})"
            if e.lanes > 1 or e.dtype.kind == "int":
                return f"(~{a})"
            return f"({e.dtype.max} - {a})"
        if e.lanes > 1 or e.dtype.is_float:
            return f"(-{a})"
        return self.wrapped(f"-{a}", e)

    def wrapped(self, source: str, e: Expr) -> str:
        if self.is_index(e):
            return f"({source})"
        return (
            f"{self.constant_function(('wrap', e.dtype), lambda: values.wrap(e.dtype))}({source})"
        )

    def constant_function(self, key: Any, make: Callable[[], Any]) -> str:
        name = self.constants.get(key)
        if name is None:
            name = self.constants[key] = self.fresh("f")
            self.env[name] = make()
        return name

    def binary(self, e: ir.Binary) -> str:
        op, dtype = e.op, e.dtype
        a, b = self(e.a), self(e.b)
        if e.lanes > 1:
            return f"{self.constant_function(('vector', op), lambda: values.VECTOR[op])}({a}, {b})"
        if dtype.is_bool:
            if op == "xor":
                return f"(bool({a}) != bool({b}))"
            return f"({a} {'and' if op in ('and', 'min') else 'or'} {b})"
        if dtype.is_float:
            if op in ("add", "sub", "mul", "div"):
                return f"({a} {SYMBOLS[op]} {b})"
            return f"{self.constant_function(('float', op), lambda: values.FLOAT[op])}({a}, {b})"
        if op in ("add", "sub", "mul"):
            return self.wrapped(f"{a} {SYMBOLS[op]} {b}", e)
        if op in ("floordiv", "floormod") and type(e.b) is Const and e.b.value > 0:
            return f"({a} {'//' if op == 'floordiv' else '%'} {b})"
        if op in ("min", "max"):
            return f"{op}({a}, {b})"
        return (
            f"{self.constant_function((op, dtype), lambda: values.integer_op(op, dtype))}({a}, {b})"
        )

    def compare(self, e: ir.Compare) -> str:
        return f"({self(e.a)} {SYMBOLS[e.op]} {self(e.b)})"

    def select(self, e: ir.Select) -> str:
        cond = self(e.cond)
        if e.cond.lanes > 1:
            return self.vector_select(e, cond)
        if not (_loads(e.if_true) or _loads(e.if_false)):
            # Neither branch has effects, so their shared parts may run before the choice.
            return f"({self(e.if_true)} if {cond} else {self(e.if_false)})"
        yes, yes_lines = self.branch(e.if_true)
        no, no_lines = self.branch(e.if_false)
        if not yes_lines and not no_lines:
            return f"({yes} if {cond} else {no})"
        name = self.fresh("t")
        self.line(f"if {cond}:")
        for text in (*yes_lines, f"{name} = {yes}"):
            self.line(" " + text)
        self.line("else:")
        for text in (*no_lines, f"{name} = {no}"):
            self.line(" " + text)
        return name

    def branch(self, e: Expr) -> tuple[str, list[str]]:
        """Source of a branch, and the lines to run before it.  Its variables are valid in the
        branch only.
        """
        outer_lines, outer_done = self.pending, self.done
        self.pending, self.done = [], dict(outer_done)
        source, lines = self(e), self.pending
        self.pending, self.done = outer_lines, outer_done
        return source, lines

    def vector_select(self, e: ir.Select, cond: str) -> str:
        outer = self.active
        if not (_loads(e.if_true) or _loads(e.if_false)):
            return f"np.where({cond}, {self(e.if_true)}, {self(e.if_false)})"
        results = []
        for part, test in ((e.if_true, cond), (e.if_false, f"~{cond}")):
            name = self.fresh("m")
            self.line(f"{name} = {test}" if outer is None else f"{name} = {outer} & {test}")
            self.active = name
            results.append(self(part))
        self.active = outer
        return f"np.where({cond}, {results[0]}, {results[1]})"

    def cast(self, e: ir.Cast) -> str:
        a = self(e.a)
        source, convert = e.a.dtype, values.cast if e.lanes == 1 else values.vector_cast
        function = self.constant_function(
            (convert, source, e.type), lambda: convert(source, e.type)
        )
        return f"{function}({a})"

    def call(self, e: ir.Call) -> str:
        args = ", ".join(map(self, e.args))
        if not e.args:
            return self.unknown(e)
        source, to, lanes = e.args[0].dtype, e.type, e.lanes
        function = self.constant_function(
            ("call", e.name, source, to, lanes > 1),
            lambda: values.intrinsic(e.name, source, to, lanes),
        )
        return f"{function}({args})"

    def tensor_call(self, e: ir.TensorCall) -> str:
        args = ", ".join(map(self, e.args))
        function = self.constant_function(("tensor", e.name), lambda: self.tensor(e.name))
        return f"{function}({args})" + ("" if e.lanes > 1 else "[0]")

    def ramp(self, e: ir.Ramp) -> str:
        return f"V.ramp({self(e.base)}, {self(e.stride)}, {e.size}, {self.constant(e.dtype, 'k')})"

    def broadcast(self, e: ir.Broadcast) -> str:
        return f"np.full({e.size}, {self(e.value)}, {self.constant(e.dtype, 'k')}.numpy)"

    def let(self, e: ir.Let) -> str:
        value = self(e.value)
        is_index = self.is_index(e.value)
        name = self.fresh("v")
        self.line(f"{name} = {value}")
        self.bind(e.var, name, is_index)
        # The source known for the variable belongs to another let with the same variable.
        self.done = {k: v for k, v in self.done.items() if k[0] is not e.var}
        outer = dict(self.done)
        body = self(e.body)
        self.done = outer
        return body

    def vector_reduce(self, e: ir.VectorReduce) -> str:
        return f"V.reduce({e.op!r}, {self(e.a)}, {e.size}, {self.constant(e.dtype, 'k')})"

    # --- memory ---

    def checked(self, indices: Sequence[Expr], dims: list[str]) -> tuple[str, str]:
        """Source of the bounds test, and source of the flat position, which is valid after the
        test.
        """
        tests, names = [], []
        position = ""
        for index, n in zip(indices, dims):
            name = self.fresh("i")
            tests.append(f"0 <= ({name} := {self(index)}) < {n}")
            names.append(name)
            position = name if not position else f"({position}) * {n} + {name}"
        # The test binds the names from left to right.  It stops at the first index out of bounds.
        return " and ".join(tests) or "True", position or "0"

    def buffer(self, buffer: BufferLike) -> tuple[str, list[str]]:
        if buffer not in self.buffers:
            raise InternalError(f"buffer '{buffer.name}' is used outside its scope")
        return self.buffers[buffer]

    def load(self, e: ir.Load) -> str:
        data, dims = self.buffer(e.buffer)
        access = self.constant_function(("text", e), lambda: _Text(e))
        mask = None if e.mask is None else self(e.mask)
        if e.lanes > 1:
            masks = [m for m in (mask, self.active) if m is not None]
            indices = "".join(f"{self(i)}, " for i in e.indices)
            return (
                f"V.vector_load({data}, ({indices}), ({''.join(f'{n}, ' for n in dims)}), "
                f"{' & '.join(masks) or None}, {e.lanes}, {access})"
            )
        test, position = self.checked(e.indices, dims)
        read = f"{data}[{position}]" if e.dtype.is_float else f"{data}.item({position})"
        source = f"({read} if {test} else {access}.outside(({''.join(f'{n}, ' for n in dims)})))"
        conditions = [
            m for m in (mask, None if self.active is None else f"{self.active}.any()") if m
        ]
        if not conditions:
            return source
        zero = self.const(Const(0.0, e.dtype)) if e.dtype.is_float else "0"
        return f"({source} if {' and '.join(conditions)} else {zero})"

    def store(self, s: Store) -> None:
        data, dims = self.buffer(s.buffer)
        access = self.constant_function(("store", id(s)), lambda: _Text(s))
        value = self(s.value)
        mask = None if s.mask is None else self(s.mask)
        lanes = max((i.lanes for i in s.indices), default=1)
        if lanes > 1:
            indices = "".join(f"{self(i)}, " for i in s.indices)
            shape = "".join(f"{n}, " for n in dims)
            self.line(
                f"V.vector_store({data}, ({indices}), ({shape}), {value}, {mask}, {lanes}, "
                f"{access})"
            )
            return
        before = " " if mask is not None else ""
        temporary = self.fresh("t")
        test, position = self.checked(s.indices, dims)
        self.line(f"{temporary} = {value}")
        if mask is not None:
            self.line(f"if {mask}:")
        self.line(f"{before}if {test}: {data}[{position}] = {temporary}")
        self.line(f"{before}else: {access}.outside(({''.join(f'{n}, ' for n in dims)}))")


class _Text:
    """An access for messages; its text is made only when a message needs it."""

    def __init__(self, what: ir.Load | Store) -> None:
        self.what = what

    def __str__(self) -> str:
        return f"'{head(self.what)}'" if isinstance(self.what, Store) else f"'{self.what}'"

    def outside(self, shape: tuple[int, ...]) -> None:
        raise InternalError(f"access outside the buffer: {self}, the shape is {list(shape)}")


def _loads(e: Expr) -> bool:
    return any(type(n) is ir.Load for n in post_order(e))


_RULES: dict[type, Callable[[Emitter, Any], str]] = {
    Var: Emitter.var, Const: Emitter.const, ir.Unary: Emitter.unary, ir.Binary: Emitter.binary,
    ir.Compare: Emitter.compare, ir.Select: Emitter.select, ir.Cast: Emitter.cast,
    ir.Load: Emitter.load, ir.Call: Emitter.call, ir.Ramp: Emitter.ramp,
    ir.Broadcast: Emitter.broadcast, ir.Let: Emitter.let, ir.VectorReduce: Emitter.vector_reduce,
    ir.TensorCall: Emitter.tensor_call,
}  # fmt: skip
