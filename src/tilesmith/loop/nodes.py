"""Loop IR: the statements of a kernel.

Nodes are immutable and compare by identity; `loop.compare.structural_equal` compares them without
names.  A `Func` has parameters (buffers, then scalar `Var`s) and a body.  `loop.interpret` defines
the meaning.

Stages, whose forms `loop.verify` checks:
- "nest": the result of te lowering: buffers of any rank, all loop kinds, scalar expressions only.
- "flat": every buffer has rank 1 and every access one index.
- "final": flat, without unrolled or vectorised loops; vectors are `Ramp`, `Broadcast`, and vector
  loads and stores.

Each statement declares its text and the roles of its fields (`ir.grammar`).  `loop.text` explains
the forms of the text.

`ir.loop_tables` has a row for each loop kind (`For.kind`) and for each buffer scope
(`Buffer.scope`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Load, Var
from tilesmith.ir.grammar import Binder, Body, Label, Operand, Reference, register
from tilesmith.ir.loop_tables import ForKind, Scope

from .text import print_func


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A dense row-major array; two buffers never overlap.

    name: label for people.
    dtype: element type.
    shape: extents, each a number or an `i64` expression.
    scope: where its memory is.
    """

    name: str
    dtype: DType
    shape: tuple[Expr | int, ...]
    scope: Scope = "param"

    def __getitem__(self, indices: Expr | tuple[Expr, ...]) -> Load:
        return Load(self, indices if isinstance(indices, tuple) else (indices,))


@dataclass(frozen=True, slots=True, eq=False)
class Stmt:
    """Base of all statements.

    syntax: the lines of its text; `ir.grammar` explains them.
    """

    syntax: ClassVar[str]

    def __init_subclass__(cls) -> None:
        register(cls.syntax)


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """A loop whose variable counts from `start` to `start + extent - 1`.

    var: the loop's variable.
    start: first value.
    extent: number of iterations.
    kind: how the iterations run.
    body: one iteration.
    """

    syntax = "for {var:counter} in {kind:loop}({start:first}{extent}):\n{body}"
    var: Binder[Var]
    start: Operand[Expr]
    extent: Operand[Expr]
    kind: Label[ForKind]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    """A branch.

    cond: the condition.
    then: runs if the condition is true.
    otherwise: runs if the condition is false; None for nothing.
    likely: marks a guard made for a loop tail.  Peeling may split loops to make the guard provably
        true.
    """

    syntax = "if {cond:guard}:\n{then}\nelse:\n{otherwise}"
    cond: Operand[Expr]
    then: Body[Stmt]
    otherwise: Body[Stmt | None] = None
    likely: Label[bool] = False


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    """A store of one element, or of one per lane.

    buffer: the buffer written.
    indices: one per dimension.
    value: what is stored.
    mask: only lanes whose mask is true are written; None for all.
    """

    syntax = "{buffer:name}{indices:access} = {value}"
    buffer: Reference[Buffer]
    indices: Operand[tuple[Expr, ...]]
    value: Operand[Expr]
    mask: Operand[Expr | None] = None


@dataclass(frozen=True, slots=True, eq=False)
class Tensorize(Stmt):
    """Loops that compute the same as one call of a tensor intrinsic.  A pass replaces them by the
    call before stage "final".

    intrinsic: name of the intrinsic.
    body: the loops.
    """

    syntax = "tensor {intrinsic:instruction}:\n{body}"
    intrinsic: Label[str]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    """Uninitialised memory that exists while the body runs.

    buffer: the buffer allocated.
    body: the statements that may use it.
    """

    syntax = "alloc {buffer:buffer}\n{body}"
    buffer: Binder[Buffer]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt(Stmt):
    """A name for a value.

    var: the name.
    value: evaluated once.
    body: the statements that may use it.
    """

    syntax = "let {var:var} = {value}\n{body}"
    var: Binder[Var]
    value: Operand[Expr]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class WaveReduce(Stmt):
    """A name for the combined values of neighbouring threads, which exchange their values by
    shuffles.

    The threads of a block are numbered along x, then y, then z.  A group consists of `lanes`
    threads, the first of which has a number that is a multiple of `lanes`.  All threads of a group
    come here together and get the same result.  As long as there are several values, the second
    half of them is combined with the first half, pair by pair.  The exchange orders no accesses to
    memory.

    var: the name.
    op: the operation that combines two values: "add", "mul", "min" or "max".
    value: the thread's own value; evaluated once.
    lanes: threads of a group, a power of two that divides the threads of a block along x.
    body: the statements that may use the name.
    """

    syntax = "let {var:var} = wave_reduce({op:word}, {value}, {lanes:number})\n{body}"
    var: Binder[Var]
    op: Label[str]
    value: Operand[Expr]
    lanes: Label[int]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Seq(Stmt):
    """Statements in order.

    stmts: the statements.
    """

    syntax = "pass"
    stmts: Body[tuple[Stmt, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    """An expression evaluated for its effect.  Only `prefetch` has an effect.

    value: the expression.
    """

    syntax = "eval {value}"
    value: Operand[Expr]


@dataclass(frozen=True, slots=True, eq=False)
class Assert(Stmt):
    """A condition that must hold; otherwise the kernel stops.

    cond: the condition.
    message: the error's text.
    """

    syntax = "assert {cond}, {message:string}"
    cond: Operand[Expr]
    message: Label[str]


@dataclass(frozen=True, slots=True, eq=False)
class Reinterpret(Stmt):
    """A second name for bytes of a buffer, as elements of another type.

    It occurs outside of launches.  A store to one of the two buffers changes the other.

    buffer: the name, a buffer of scope heap.  All its bytes must be inside the memory of `place`,
        and aligned.
    place: the element, of a buffer of bytes, where the buffer begins; it is not loaded.
    body: the statements that may use the name.
    """

    syntax = "reinterpret {buffer:buffer} = {place}\n{body}"
    buffer: Binder[Buffer]
    place: Operand[Expr]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class CopyBytes(Stmt):
    """A copy of bytes between two buffers.  If both places are the same, it does nothing.

    to, source: the elements, of buffers of bytes, where the copy begins; they are not loaded.  The
        copied ranges must not overlap.
    count: number of bytes.
    """

    syntax = "memcpy {to}, {source}, {count}"
    to: Operand[Expr]
    source: Operand[Expr]
    count: Operand[Expr]


@dataclass(frozen=True, slots=True, eq=False)
class Return(Stmt):
    """Ends the function at once.  All loops around it are serial.

    code: the result of the function, a literal or a variable (`i32`).  At the end of the body the
        result is 0.
    """

    syntax = "return {code:code}"
    code: Operand[Expr]


@dataclass(frozen=True, slots=True, eq=False)
class CallFunction(Stmt):
    """A call of other code, and a name for the code that it returns.

    It occurs outside of launches.  The function may change all memory that its arguments pass to
    it.

    var: the name, an `i32`.
    function: the symbol of the called code.
    arguments: numbers and places.  If an argument is a load and nothing else, it is a place, and
        its address is passed.
    label: text for people.
    body: the statements that may use the name.
    """

    syntax = "let {var:var} = call {function:word}({arguments:list}), {label:string}\n{body}"
    var: Binder[Var]
    function: Label[str]
    arguments: Operand[tuple[Expr, ...]]
    label: Label[str]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class CallHost(Stmt):
    """A call of a function of the host, and a name for the code that it returns (see
    `CallFunction`).

    var: the name, an `i32`.
    number: number of the function.
    context: the place where the context of the run begins.  It holds the addresses of functions of
        the host and of their data.
    arguments: places and numbers.  A number is passed as a pointer with this value.
    label: text for people.
    body: the statements that may use the name.
    """

    syntax = (
        "let {var:var} = host {number:number} of {context}({arguments:list}), {label:string}\n"
        "{body}"
    )
    var: Binder[Var]
    number: Label[int]
    context: Operand[Expr]
    arguments: Operand[tuple[Expr, ...]]
    label: Label[str]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Grow(Stmt):
    """Request of memory for a slot from the context, and a name for whether it is granted.

    var: the name, a `bool`.
    table: the place where the table begins; the address of the memory is written to it.
    number: number of the address in the table.
    context: the place where the context begins (see `CallHost`).
    slot: number of the slot, a piece of memory that can grow.
    bytes: number of bytes that are needed.
    keep: number of bytes at the beginning whose contents stay.
    body: the statements that may use the name.
    """

    syntax = (
        "let {var:var} = grow {table}, {number:number} by {context}({slot}, {bytes}, {keep})\n"
        "{body}"
    )
    var: Binder[Var]
    table: Operand[Expr]
    number: Label[int]
    context: Operand[Expr]
    slot: Operand[Expr]
    bytes: Operand[Expr]
    keep: Operand[Expr]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Has(Stmt):
    """A test whether a table holds an address.  The result gets a name.

    var: the name, a `bool`.
    table: the place where the table begins.
    number: number of the address in the table.
    body: the statements that may use the name.
    """

    syntax = "let {var:var} = has {table}, {number:number}\n{body}"
    var: Binder[Var]
    table: Operand[Expr]
    number: Label[int]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Locate(Stmt):
    """A name for the memory whose address is in a table at this moment.

    buffer: the name, a buffer of bytes of scope heap.  Its extent is given as 0, since the extent
        is not known.
    table: the place where the table begins.  An entry has the size of an address of the processor.
    number: number of the address in the table.
    body: the statements that may use the name.
    """

    syntax = "locate {buffer:buffer} = {table}, {number:number}\n{body}"
    buffer: Binder[Buffer]
    table: Operand[Expr]
    number: Label[int]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Point(Stmt):
    """Writes the address of a place to a table.

    table: the place where the table begins.
    number: number of the address in the table.
    place: the element whose address it is.
    """

    syntax = "point {table}, {number:number} to {place}"
    table: Operand[Expr]
    number: Label[int]
    place: Operand[Expr]


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    """Statements that run as long as a condition holds.  All loops around a `While` are `While`s
    too.

    cond: the condition, evaluated before each run of the body.
    body: the statements.
    """

    syntax = "while {cond}:\n{body}"
    cond: Operand[Expr]
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(Stmt):
    """A point where the threads of a block wait for each other.

    A thread's writes to shared memory before the barrier are visible to all threads of the block
    after the barrier.
    """

    syntax = "barrier"


@dataclass(frozen=True, slots=True, eq=False)
class AsyncGroup(Stmt):
    """A group of asynchronous copies of a thread: stores to shared memory that may happen later.

    A thread's groups complete in order.  After a `Wait` for a group, the thread may use the
    elements that the group stores; other threads may use them after a later `Barrier`.  Until then
    nothing may use or change these elements.  A `Wait` also counts groups without stores.  The
    stored values are those at the time of the group.

    body: the statements that store.  It contains no barrier and no other group.
    """

    syntax = "async:\n{body}"
    body: Body[Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Wait(Stmt):
    """Makes a thread wait for its groups of asynchronous copies.

    pending: number of the thread's latest groups that may still be unfinished.
    """

    syntax = "wait {pending:number}"
    pending: Label[int]


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A kernel.

    name: its symbol.
    params: buffers, then scalars.
    outputs: the buffer parameters that are written; the other ones are only read.
    body: the statements.
    attrs: notes as pairs (key, text), such as the schedule's steps.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    outputs: tuple[Buffer, ...]
    body: Stmt
    attrs: tuple[tuple[str, str], ...] = field(default=())

    def __str__(self) -> str:
        return print_func(self)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer parameters in order."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    def with_body(self, body: Stmt) -> Func:
        """The kernel with `body` as its statements; the same object if it has this body already."""
        return self if body is self.body else replace(self, body=body)


def seq(*stmts: Stmt) -> Stmt:
    """The statements in order as one statement.  Nested `Seq`s are flattened; a single statement is
    returned as it is.
    """
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts) if isinstance(s, Seq) else flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
