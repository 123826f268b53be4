"""The operands of variables and the pointers of buffers in one LLVM function.

The body of a parallel loop is a function of its own.  The values that it uses from the enclosing
function are captured: they become its first parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Const, Expr, Var
from tilesmith.loop.nodes import Buffer
from tilesmith.support.errors import InternalError

from .builder import Builder
from .context import BY_NAME, address
from .llvm_text import value_type
from .module import Module


@dataclass(frozen=True, slots=True)
class Capture:
    """A value captured from the enclosing function.

    type: the value's LLVM type, followed by attributes if it has any.
    outside: the value's name in the enclosing function.
    inside: the value's name in this function.
    """

    type: str
    outside: str
    inside: str


class Environment:
    """The operands of variables and the pointers of buffers.

    outside: the environment of the enclosing function; None in a kernel.
    depths: for each variable, the depth of the scope that binds it.
    nonnegative: variables that are certainly not negative.
    """

    def __init__(self, b: Builder, module: Module, outside: Environment | None = None) -> None:
        self.b = b
        self.module = module
        self.outside = outside
        self.captures: list[Capture] = []
        self.vars: dict[Var, str] = {}
        self.pointers: dict[Buffer, str] = {}
        self.depths: dict[Var | ir.BufferLike, int] = {}
        self.nonnegative: set[Var] = set()
        self._signs: dict[Expr, bool] = {}
        self._context = "" if outside else "%context"
        self._fields: dict[str, str] = {}

    def bind(self, v: Var, value: str) -> None:
        """Bind `v` to `value` in the current scope."""
        self.vars[v] = value
        self.depths[v] = self.b.scope.depth

    def variable(self, v: Var) -> str:
        """The operand of a variable."""
        if v not in self.vars:
            if self.outside is None:
                raise InternalError(
                    f"variable {v.name} is used outside the statement that binds it"
                )
            self.vars[v] = self.capture(value_type(v.type, v.size), self.outside.variable(v))
            self.depths[v] = 0
            if v in self.outside.nonnegative:
                self.nonnegative.add(v)
        return self.vars[v]

    def pointer(self, buffer: Buffer) -> str:
        """The pointer to the first element of a buffer."""
        if buffer not in self.pointers:
            if self.outside is None:
                raise InternalError(f"buffer {buffer.name} is used outside its allocation")
            pointer = self.outside.pointer(buffer)
            self.pointers[buffer] = self.capture(self.module.pointer_type(buffer), pointer)
        return self.pointers[buffer]

    def capture(self, type_: str, outside: str) -> str:
        """Capture a value of the enclosing function and return its name in this function."""
        name = f"%c{len(self.captures)}"
        self.captures.append(Capture(type_, outside, name))
        return name

    def context(self) -> str:
        """The pointer to the context."""
        if not self._context:
            self._context = self.capture("ptr", "%context")
        return self._context

    def field(self, name: str) -> str:
        """The value of a field of the context.  It may be used in a kernel's function, but not in
        the function of a parallel loop.  The field is loaded in the prologue, since its first use
        may be in a branch.
        """
        if name not in self._fields:
            type_ = "ptr" if BY_NAME[name].type == "ptr" else BY_NAME[name].type.replace("u", "i")
            where, value = self.b.name("p"), self.b.name(name)
            self.b.allocas.append(f"  {where} = {address(name)}")
            self.b.allocas.append(f"  {value} = load {type_}, ptr {where}, align 8")
            self._fields[name] = value
        return self._fields[name]

    def level(self, e: Expr) -> int:
        """Depth of the innermost scope that binds a variable of `e`."""
        depths = self.depths
        return max([depths.get(s, 0) for s in ir.symbols(e)], default=0)

    def is_nonnegative(self, e: Expr) -> bool:
        """True if the integer `e` is certainly not negative.  The test is cheap; False means
        unknown.
        """
        if isinstance(e, Var) and e not in self.vars and self.outside is not None:
            return self.outside.is_nonnegative(e)
        sign = self._signs.get(e)
        if sign is None:
            sign = self._signs[e] = self._sign(e)
        return sign

    def _sign(self, e: Expr) -> bool:
        if isinstance(e, Const):
            return e.value >= 0
        if isinstance(e, Var):
            return e in self.nonnegative
        if isinstance(e, ir.Binary):
            if e.op in ("add", "mul", "floordiv", "truncdiv", "min", "truncmod"):
                return self.is_nonnegative(e.a) and self.is_nonnegative(e.b)
            if e.op == "floormod":
                return self.is_nonnegative(e.b)
            return e.op == "max" and (self.is_nonnegative(e.a) or self.is_nonnegative(e.b))
        if isinstance(e, ir.Ramp):
            return self.is_nonnegative(e.base) and self.is_nonnegative(e.stride)
        return isinstance(e, ir.Broadcast) and self.is_nonnegative(e.value)
