"""Loop IR to portable C99.

`write` turns a `Func` in its final stage, with serial loops only (see `loop.passes.scalarize`),
into one C function

    int32_t symbol(buffers..., int64_t scalars..., void *workspace,
                   struct tilesmith_context *context)

It returns 0, or the code of the failure that it recorded in the context.
`runtime/csrc/tilesmith.h`, which the text includes, defines this calling convention.  Loops,
conditions, allocations and names are those of the loop IR.  Buffers of scope stack or register
become local arrays; buffers of scope heap lie in `workspace`.  `translation_unit` joins functions
and the helpers that they call in one file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilesmith.codegen.assertions import INDEX, compared
from tilesmith.codegen.context import VALUES
from tilesmith.codegen.kernel import Kernel, check_unbound
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Call, Const, Expr, Load, Var, as_expr, const
from tilesmith.ir.loop_tables import LOOP_KINDS
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim
from tilesmith.loop import nodes
from tilesmith.loop.facts import in_loop
from tilesmith.loop.nodes import Buffer, Func, Stmt
from tilesmith.loop.passes.workspace import element_count, plan_workspace
from tilesmith.loop.text import flattened, names_the_rest
from tilesmith.strategy.group import STEP
from tilesmith.support.errors import InternalError

from .builder import Builder, Names
from .dialect import PORTABLE, Dialect
from .expressions import UNARY, Expressions
from .prelude import HEADERS, MEMORY_TYPES, VALUE_TYPES, definitions, is_narrow


@dataclass(frozen=True, slots=True)
class CFunction:
    """A kernel as the text of one C function.

    symbol: the function's name in C.
    text: the function's definition in C.
    helpers: names of the helper functions (see `prelude`) that the kernel calls.
    workspace_bytes: bytes of memory at the workspace argument.
    messages: texts of the assertions, in order.
    called: declarations of the other functions that the kernel calls.
    """

    symbol: str
    text: str
    helpers: frozenset[str]
    workspace_bytes: Dim
    messages: tuple[str, ...]
    called: tuple[str, ...]


class Statements:
    """Statements of a kernel as C text.

    b: the lines written so far.
    values: the writer of expressions.
    """

    def __init__(self, func: Func, shared: Collection[int], dialect: Dialect = PORTABLE) -> None:
        self.dialect = dialect
        self.b = Builder(Names(dialect.reserved))
        self.names = self.b.names
        self.values = Expressions(self.b, dialect)
        self.text = self.values.text
        self.workspace = plan_workspace(func)
        self.overlapping = self.workspace.overlapping() | {func.buffers[i] for i in shared}
        if self.workspace.per_thread:
            raise InternalError(f"{dialect.name} is written from serial loops, found parallel ones")
        self._next: list[Stmt] = []  # statements to be written after the current one
        self._plain: dict[type[Stmt], Callable[[Any], None]] = {
            nodes.For: self._for, nodes.If: self._if, nodes.Store: self._store,
            nodes.Allocate: self._allocate, nodes.LetStmt: self._let_statement,
            nodes.Seq: self._seq, nodes.Evaluate: self._evaluate, nodes.Assert: self._assert,
            nodes.Return: lambda s: self.b.line(f"return {self.text(s.code)};"),
            nodes.Reinterpret: self._reinterpret, nodes.CopyBytes: self._copy_bytes,
            nodes.CallFunction: self._call_function, nodes.CallHost: self._call_host,
            nodes.Grow: self._grow, nodes.Has: self._has, nodes.Locate: self._locate,
            nodes.Point: self._point, nodes.While: self._while,
        }  # fmt: skip
        own = {kind: partial(write, self) for kind, write in dialect.statements.items()}
        self._rules = self._plain | own

    def statement(self, s: Stmt) -> None:
        """Write `s`."""
        outside, self._next = self._next, [s]
        while self._next:
            then = self._next.pop()
            self._rules[type(then)](then)
        self._next = outside

    def then(self, s: Stmt) -> None:
        """Write `s` after the current statement.  This avoids recursion, so nesting is not
        limited.
        """
        self._next.append(s)

    def plain(self, s: Stmt) -> None:
        """Write `s` in portable C, without the dialect's own writers."""
        self._plain[type(s)](s)

    def parameters(self, func: Func) -> list[str]:
        """The declarations of the parameters, including those that the runtime passes."""
        shown = []
        for p in func.params:
            if isinstance(p, Buffer):
                type_ = ("" if p in func.outputs else "const ") + MEMORY_TYPES[p.dtype.name]
                shown += self.dialect.pointer(self.b, p, type_, self._restrict(p))
            elif p.dtype is i64:
                shown.append(f"int64_t {self.names(p)}")
            else:
                parameter = self.names.fresh(f"{p.name}_given")
                shown.append(f"int64_t {parameter}")
                type_ = VALUE_TYPES[p.dtype.name]
                self.b.line(f"const {type_} {self.names(p)} = ({type_}){parameter};")
        return [*shown, *self.dialect.own_parameters(self.b)]

    def _restrict(self, buffer: Buffer) -> str:
        return "" if buffer in self.overlapping else "restrict "

    def inside(self, s: Stmt) -> None:
        """Write `s`, indented by one more level.  Facts about the variables of `s` end with `s`."""
        with self.values.nested() as lines:
            self.statement(s)
        self.b.lines += lines

    def _seq(self, s: nodes.Seq) -> None:
        parts = flattened(s)
        for n, part in enumerate(parts):
            if n < len(parts) - 1:
                self.block(part)
            else:
                self._next.append(part)

    def block(self, s: Stmt) -> None:
        """Write `s`, in braces if it declares names.  The braces end the scope of these names."""
        last = s.stmts[-1] if isinstance(s, nodes.Seq) and s.stmts else s
        if names_the_rest(last) and not _is_plain(last):
            self._braced(s)
        else:
            self.statement(s)

    def _braced(self, s: Stmt) -> None:
        self.b.line("{")
        self.inside(s)
        self.b.line("}")

    def _for(self, s: nodes.For) -> None:
        check_unbound(s)
        if not LOOP_KINDS[s.kind].is_ordered or LOOP_KINDS[s.kind].is_expanded:
            name = self.dialect.name
            raise InternalError(f"{name} is written from serial loops, found '{s.kind}'")
        type_, outer = VALUE_TYPES[s.var.dtype.name], self.values.context
        self.values.begin((s.start, s.extent))
        start = self.text(s.start)
        end = s.start + s.extent
        last = Const(int(s.start.value) + int(s.extent.value), s.var.dtype) if (
            isinstance(s.start, Const) and isinstance(s.extent, Const)
        ) else end  # fmt: skip
        if isinstance(s.start, Const) and not s.start.value:
            last = s.extent
        bound = self.text(last)
        if not isinstance(last, (Const, Var)):
            bound = self.b.constant(type_, f"{s.var.name}_end", bound)
        if not (self.values.is_index(s.start) and self.values.is_index(s.extent)):
            self.values.wrapping.add(s.var)
        self.values.context = in_loop(outer, s)
        var = self.names(s.var)
        self.b.line(f"for ({type_} {var} = {start}; {var} < {bound}; {var}++) {{")
        self.inside(s.body)
        self.b.line("}")
        self.values.context = outer

    def _if(self, s: nodes.If) -> None:
        self.values.begin((s.cond,))
        self.b.line(f"if ({self.text(s.cond)}) {{")
        self.inside(s.then)
        if s.otherwise is not None:
            self.b.line("} else {")
            self.inside(s.otherwise)
        self.b.line("}")

    def _store(self, s: nodes.Store) -> None:
        self.values.begin((*s.indices, s.value, *(() if s.mask is None else (s.mask,))))
        value, element = self.text(s.value), self.values.element(s.buffer, s.indices)
        if is_narrow(s.buffer.dtype):
            value, _ = self.values.call(f"ts_store_{s.buffer.dtype}", value)
        when = "" if s.mask is None else f"if ({self.text(s.mask)}) "
        self.b.line(f"{when}{element} = {value};")

    def _allocate(self, s: nodes.Allocate) -> None:
        self.declare(s.buffer)
        self._next.append(s.body)

    def declare(self, b: Buffer) -> None:
        """Declare an allocated buffer."""
        name, type_ = self.names(b), MEMORY_TYPES[b.dtype.name]
        if b.scope == "heap":
            offset = self.text(as_expr(self.workspace.offsets[b]))
            memory = self.dialect.memory
            place = f"({memory}{type_} *)(({memory}char *)workspace + {offset})"
            self.b.line(f"{memory}{type_} *{self._restrict(b)}const {name} = {place};")
        else:
            self.b.line(f"{type_} {name}[{max(element_count(b), 1)}];")

    def _reinterpret(self, s: nodes.Reinterpret) -> None:
        self.values.begin((s.place,))
        type_ = MEMORY_TYPES[s.buffer.dtype.name]
        place = self._location(s.place)
        self.b.line(f"{type_} *const {self.names(s.buffer)} = ({type_} *){place};")
        self._next.append(s.body)

    def _copy_bytes(self, s: nodes.CopyBytes) -> None:
        self.values.begin((s.to, s.source, s.count))
        to, source = self._location(s.to), self._location(s.source)
        self.b.line(f"if ({to} != {source})")
        self.b.line(f"    memcpy({to}, {source}, {self.text(s.count)});")

    def _location(self, place: Expr) -> str:
        """The pointer to an element."""
        assert isinstance(place, Load)
        return f"&{self.values.element(place.buffer, place.indices)}"

    def _call_function(self, s: nodes.CallFunction) -> None:
        self.values.begin(s.arguments)
        types = (
            "void *" if isinstance(e, Load) else VALUE_TYPES[e.dtype.name] for e in s.arguments
        )
        self.b.called[s.function] = f"int32_t {s.function}({', '.join(types)});"
        passed = ", ".join(
            self._address(e) if isinstance(e, Load) else self.text(e) for e in s.arguments
        )
        self._result(s, s.var, f"{s.function}({passed})", s.label)

    def _call_host(self, s: nodes.CallHost) -> None:
        self.values.begin(s.arguments)
        passed = [
            self._address(e) if isinstance(e, Load) else f"(void *)(intptr_t){self.text(e, UNARY)}"
            for e in s.arguments
        ]
        array = f"(void *const[]){{{', '.join(passed) or '0'}}}, {len(passed)}"
        run = self._context(s.context)
        self._result(s, s.var, f"{run}->host({run}->host_data, {s.number}, {array})", s.label)

    def _grow(self, s: nodes.Grow) -> None:
        self.values.begin((s.slot, s.bytes, s.keep))
        run, numbers = self._context(s.context), map(self.text, (s.slot, s.bytes, s.keep))
        memory = self.b.constant(
            "void *", "memory", f"{run}->grow({run}->memory, {', '.join(numbers)})"
        )
        self._pointed(s.table, s.number, memory)
        self._result(s, s.var, f"{memory} != NULL")

    def _has(self, s: nodes.Has) -> None:
        self._result(s, s.var, f"{self._located(s.table, s.number)} != NULL")

    def _locate(self, s: nodes.Locate) -> None:
        self.b.line(f"uint8_t *const {self.names(s.buffer)} = {self._located(s.table, s.number)};")
        self._next.append(s.body)

    def _point(self, s: nodes.Point) -> None:
        self.values.begin((s.place,))
        self._pointed(s.table, s.number, self._address(s.place))

    def _while(self, s: nodes.While) -> None:
        self.b.line("for (;;) {")
        with self.values.nested() as lines:
            self.values.begin((s.cond,))
            self.b.line(f"if (!({self.text(s.cond)}))")
            self.b.line("    break;")
            self.statement(s.body)
        self.b.lines += lines
        self.b.line("}")

    def _result(self, s: Any, name: Var, text: str, label: str = "") -> None:
        """Write a call of other code; its result gets a name, unless nothing uses the result."""
        if label:
            self.b.line(comment(label))
        type_ = (
            "" if _is_plain(s) else f"const {VALUE_TYPES[name.dtype.name]} {self.names(name)} = "
        )
        self.b.line(f"{type_}{text};")
        self._next.append(s.body)

    def _context(self, place: Expr) -> str:
        return f"((struct tilesmith_context *){self._address(place)})"

    def _located(self, table: Expr, number: int) -> str:
        """The text that loads an address from a table."""
        self.values.begin((table,))
        text, _ = self.values.call("ts_address", self._address(table), str(number))
        return text

    def _pointed(self, table: Expr, number: int, address: str) -> None:
        """Store an address in a table."""
        text, _ = self.values.call("ts_point", self._address(table), str(number), address)
        self.b.line(f"{text};")

    def _address(self, place: Expr) -> str:
        """The pointer to an element, as an argument of type `void *`."""
        assert isinstance(place, Load)
        (index,) = place.indices
        name = self.names(place.buffer)
        return f"(void *){name}" if index is const(0) else f"(void *)({name} + {self.text(index)})"

    def _let_statement(self, s: nodes.LetStmt) -> None:
        self.values.begin((s.value,))
        self.values.local(s.var, s.value)
        self._next.append(s.body)

    def _evaluate(self, s: nodes.Evaluate) -> None:
        if not (isinstance(s.value, Call) and s.value.name == "prefetch"):
            raise InternalError(f"C has no text for the effect {s.value}")
        # portable C has no prefetch

    def _assert(self, s: nodes.Assert) -> None:
        values = compared(s.cond)[:VALUES]
        self.values.begin((s.cond, *values))
        self.b.line(f"if (!({self.text(s.cond)}){self.dialect.is_first}) {{ {comment(s.message)}")
        notes = {
            "code": "TILESMITH_ASSERTION",
            "assertion": str(self.b.message(s.message)),
            "count": str(len(values)),
        }
        notes |= {f"values[{i}]": f"(int64_t){self.text(v, UNARY)}" for i, v in enumerate(values)}
        for name, value in notes.items():
            self.b.line(f"    context->failure.{name} = {value};")
        if self.dialect.failed:
            self.b.line(f"    {self.dialect.failed}")
        self.b.line("}")


def write(func: Func, symbol: str | None = None, *, shared: Collection[int] = ()) -> CFunction:
    """The C function of `func` (stage "final", scalar and serial).

    `symbol` defaults to the function's name, made an identifier.  `shared`: numbers of the buffer
    parameters that may share memory with one another.  Raises InternalError for forms that an
    earlier pass should have removed.
    """
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", symbol or func.name)
    return finished(Statements(func, shared), func, symbol)


def finished(writer: Statements, func: Func, symbol: str, is_bare: bool = False) -> CFunction:
    """The C function of `func`, whose statements `writer` writes.

    is_bare: whether the function has only the parameters of `func`, without workspace and context.
    """
    *params, workspace, context = writer.parameters(func)
    if not is_bare:
        params.append(f"{workspace}, {context}")
        writer.b.line("(void)workspace, (void)context;")
    writer.statement(func.body)
    # A bad index does not stop the kernel, so the failure is returned at the end.
    status = "context->failure.code" if INDEX in writer.b.messages else "0"
    shown = ",\n    ".join(params)
    lines = [f"int32_t {symbol}(\n    {shown}) {{", *writer.b.lines]
    lines += [f"    return {status};", "}"]
    about = [f"{func.name}({', '.join(shown_parameter(p) for p in func.params)})"]
    about += [f"{key}: {value}" for key, value in func.attrs if key != STEP]
    text = "\n".join([comment("\n * ".join(about)), *lines]) + "\n"
    helpers = frozenset(writer.b.helpers)
    size, messages = writer.workspace.shared_bytes, tuple(writer.b.messages)
    return CFunction(symbol, text, helpers, size, messages, tuple(writer.b.called.values()))


def emit_bare(func: Func, target: Target) -> str:
    """A C file with one function without workspace and context parameters (see `write_bare`)."""
    f = write_bare(func)
    return translation_unit_of([*f.called, "", f.text] if f.called else [f.text], f.helpers)


def write_bare(func: Func) -> CFunction:
    """A C function without workspace and context parameters: `int32_t name(buffers...,
    scalars...)`.

    Raises InternalError if `func` needs a workspace or a context, because it has heap memory or
    assertions.
    """
    writer = Statements(func, ())
    f = finished(writer, func, func.name, is_bare=True)
    if f.messages or writer.workspace.offsets:
        raise InternalError(f"'{func.name}' has no context, and needs one")
    return f


def _is_plain(s: Stmt) -> bool:
    """Whether a statement is a call whose result nothing uses."""
    is_call = isinstance(s, (nodes.CallFunction, nodes.CallHost))
    return is_call and isinstance(s.body, nodes.Seq) and not s.body.stmts


def shown_parameter(p: Buffer | Var) -> str:
    if isinstance(p, Var):
        return f"{p.name}: {p.dtype}"
    dims = ", ".join(str(d.value) if isinstance(d, Const) else str(d) for d in p.shape)
    return f"{p.name}: {p.dtype}[{dims}]"


def comment(text: str) -> str:
    """`text` as a C comment; the text may contain any characters."""
    return f"/* {comment_text(text)} */"


def comment_text(text: str) -> str:
    """`text` with all characters replaced that could break a C comment.

    Line splices, trigraphs and invisible characters could end the comment, or seem to end it.  So
    only printable ASCII and line feeds stay.  Backslashes, `??` and adjacent characters of `*` and
    `/` are broken up or replaced.
    """
    shown = "".join(c if c == "\n" or (" " <= c <= "~" and c != "\\") else "." for c in text)
    return re.sub(r"(?<=[*/])(?=[*/])", " ", shown.replace("?", ".") if "??" in shown else shown)


def comment_line(text: str) -> str:
    """`text` as one line inside a C comment (see `comment_text`)."""
    return comment_text(text).replace("\n", " ")


def translation_unit(functions: Iterable[CFunction], rest: str = "") -> str:
    """One C file with the functions and the helpers that they call, followed by `rest`."""
    functions = tuple(functions)
    helpers: set[str] = set().union(*(f.helpers for f in functions))
    return translation_unit_of([f.text for f in functions] + ([rest] if rest else []), helpers)


def translation_unit_of(texts: Iterable[str], helpers: Iterable[str]) -> str:
    """One C file with these texts, preceded by the helpers that they call."""
    return f"{HEADERS}\n{definitions(helpers)}" + "\n".join(texts)


def emit(
    func: Func, target: Target, *, shared: Collection[int] = (), strict: bool = False
) -> Kernel:
    """A C file that contains only `func` (see `write`).  `target` and `strict` do not change it."""
    f = write(func, shared=shared)
    return Kernel(f.symbol, translation_unit([f]), f.workspace_bytes, 0, f.messages)
