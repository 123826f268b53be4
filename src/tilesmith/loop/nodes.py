"""Loop IR: the statements that a kernel is made of.

Immutable and compared by identity (`structural_equal` in `loop.compare` ignores names).  A `Func`
has parameters (buffers, then scalar `Var`s) and a body.  Meaning is that of `loop.interpret`.

Stages (what `loop.verify` admits)
- "nest": as te lowering leaves it: buffers of any rank, all loop kinds, scalar expressions only.
- "flat": every buffer has rank 1 and every access one index.
- "final": flat, no unrolled or vectorised loops left; vectors are `Ramp`/`Broadcast`/vector loads
  and stores.

Notes
- A `For` counts `var` from `start` to `start + extent - 1`.  Kinds: "serial", "parallel"
  (iterations independent; split among threads), "vectorized" (constant extent, all lanes at once),
  "unrolled" (constant extent, copied).
- Buffer scopes: "param" (owned by the caller), "heap" (workspace), "stack" (small, per thread),
  "register" (after unrolling and vectorising all its indices are constants; it must end up in
  machine registers).
- An `Allocate` gives uninitialised memory that lives during its body.
- `If.likely` marks a guard made for a loop tail: peeling may split loops to make it provably true.
- `Store` with a `mask` writes only lanes whose mask is true.
- `Evaluate` keeps an effect; today only the call of `prefetch` has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Load, Var

ForKind = Literal["serial", "parallel", "vectorized", "unrolled"]
Scope = Literal["param", "heap", "stack", "register"]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A dense row-major array; two never overlap.  `shape`: expressions (`i64`) or numbers."""

    name: str
    dtype: DType
    shape: tuple[Expr | int, ...]
    scope: Scope = "param"

    def __getitem__(self, indices: Expr | tuple[Expr, ...]) -> Load:
        return Load(self, indices if isinstance(indices, tuple) else (indices,))


@dataclass(frozen=True, slots=True, eq=False)
class Stmt:
    """Base of all statements."""


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    var: Var
    start: Expr
    extent: Expr
    kind: ForKind
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    cond: Expr
    then: Stmt
    otherwise: Stmt | None = None
    likely: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt(Stmt):
    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Assert(Stmt):
    """The kernel stops with `message` when `cond` is false."""

    cond: Expr
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A kernel.  Buffers in `outputs` are written, the other buffer parameters only read."""

    name: str
    params: tuple[Buffer | Var, ...]
    outputs: tuple[Buffer, ...]
    body: Stmt
    attrs: tuple[tuple[str, str], ...] = field(default=())

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer parameters in order."""
        return tuple(p for p in self.params if isinstance(p, Buffer))


StmtLike: TypeAlias = "Stmt | tuple[Stmt, ...]"


def seq(*stmts: Stmt) -> Stmt:
    """The statements in order; nested `Seq`s are flattened and a single one stands alone."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts) if isinstance(s, Seq) else flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
