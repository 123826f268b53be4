"""The text of one LLVM function: blocks, names, and scopes, which move values out of loops.

A `ValueScope` is a region of structured control flow (function, loop body, branch, let).  Each loop
has its own list of lines, which is appended to the parent's list when the loop ends.  Until then
the parent's block is open, so a value that does not depend on the loop can be written *before* the
loop.  So loop-invariant code is never inside a loop, and inner scopes reuse the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .llvm_text import shuffle_mask


class Code:
    """Lines of text, and the label of the last block in them."""

    __slots__ = ("label", "lines")

    def __init__(self, label: str) -> None:
        self.lines: list[str] = []
        self.label = label


class ValueScope:
    """The values written in one region of a function.

    values: operands written in this scope, for reuse in it and in inner scopes.
    fleeting: the same for operands that are valid only until memory changes.
    surely: whether the scope is a loop that runs at least once.
    """

    __slots__ = ("code", "depth", "fleeting", "is_loop", "parent", "surely", "values")

    def __init__(
        self, parent: ValueScope | None, code: Code, is_loop: bool, surely: bool = False
    ) -> None:
        self.parent = parent
        self.code = code
        self.is_loop = is_loop
        self.surely = surely
        self.depth = parent.depth + 1 if parent else 0
        self.values: dict[Any, str] = {}
        self.fleeting: dict[Any, str] = {}


class Builder:
    """The text of one function under construction; names start with %, labels do not."""

    def __init__(self) -> None:
        self.scope = ValueScope(None, Code("entry"), is_loop=False)
        self.allocas: list[str] = []
        self._names = 0

    def name(self, stem: str = "v") -> str:
        self._names += 1
        return f"%{stem}{self._names}"

    def label(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def emit(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        self._names += 1
        name = f"%v{self._names}"
        self.scope.code.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction that has no result."""
        self.scope.code.lines.append(f"  {text}")

    def start_block(self, label: str) -> None:
        code = self.scope.code
        code.lines.append(f"{label}:")
        code.label = label

    def branch(self, cond: str, if_true: str, if_false: str) -> None:
        self.do(f"br i1 {cond}, label %{if_true}, label %{if_false}")

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    @contextmanager
    def nested(self, code: Code | None = None, surely: bool = False) -> Iterator[ValueScope]:
        """Open a scope inside the current one.

        code: the lines of a loop body.  None: the scope is a branch or a let.
        surely: whether the loop runs at least once.
        """
        outer = self.scope
        self.scope = ValueScope(outer, code or outer.code, code is not None, surely)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def writing_in(self, scope: ValueScope) -> Iterator[None]:
        """Write at the end of an enclosing scope, which is still open."""
        outer = self.scope
        self.scope = scope
        try:
            yield
        finally:
            self.scope = outer

    def home(self, level: int, surely: bool = False) -> ValueScope:
        """The outermost scope in which a value may be written.

        The value depends on variables of scopes no deeper than `level`.  It moves out of loops.  It
        moves out of a branch only together with a loop around the branch, since before the branch
        it might be computed needlessly.

        surely: True for a value that may be computed only where it is needed.  It moves out of
            neither a branch nor a loop that may not run.
        """
        best = scope = self.scope
        while scope.depth > level and (scope.surely or not surely):
            assert scope.parent is not None
            if scope.is_loop:
                best = scope.parent
            scope = scope.parent
        return best

    def top(self) -> ValueScope:
        """The scope of the whole function."""
        scope = self.scope
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def splat(self, element: str, value: str, lanes: int) -> str:
        """A vector with a scalar in every lane.  The scalar must not be a literal."""
        one = self.emit(f"insertelement <{lanes} x {element}> poison, {element} {value}, i64 0")
        return self.emit(
            f"shufflevector <{lanes} x {element}> {one}, <{lanes} x {element}> poison, <{lanes} "
            "x i32> zeroinitializer"
        )

    def shuffle(self, type_: str, a: str, b: str, lanes: tuple[int, ...]) -> str:
        return self.emit(f"shufflevector {type_} {a}, {type_} {b}, {shuffle_mask(lanes)}")

    def alloca(self, stem: str, type_: str, align: int = 64) -> str:
        """Allocate memory on the stack, at the beginning of the function, and return its name."""
        name = self.name(stem)
        self.allocas.append(f"  {name} = alloca {type_}, align {align}")
        return name

    def guarded(self, cond: str, then: Callable[[], None]) -> None:
        """Write the code of `then` in a branch that runs if the scalar `cond` holds."""
        yes, join = self.label("then"), self.label("join")
        self.branch(cond, yes, join)
        self.start_block(yes)
        with self.nested():
            then()
            self.jump(join)
        self.start_block(join)

    def diamond(
        self, cond: str, type_: str, if_true: Callable[[], str], if_false: Callable[[], str]
    ) -> str:
        """A value computed by two branches and joined by a phi."""
        yes, no, join = self.label("then"), self.label("else"), self.label("join")
        self.branch(cond, yes, no)
        self.start_block(yes)
        with self.nested():
            a = if_true()
            from_yes = self.scope.code.label
            self.jump(join)
        self.start_block(no)
        with self.nested():
            b = if_false()
            from_no = self.scope.code.label
            self.jump(join)
        self.start_block(join)
        return self.emit(f"phi {type_} [ {a}, %{from_yes} ], [ {b}, %{from_no} ]")

    def function(self, head: str) -> str:
        """The text of the whole function definition."""
        lines = [f"define {head} #0 {{", "entry:", *self.allocas, *self.scope.code.lines, "}"]
        return "\n".join(lines)
