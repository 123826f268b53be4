"""The interpreter: the meaning of loop IR.

A function is translated to one Python function, which is then run.  Each access is checked against
the shape of its buffer.  In loops of all kinds, iterations run one after the other.  Between
barriers and exchanges of values, the threads of a block run one after the other.  Asynchronous
copies happen when a thread waits for them (`interpret_launch`).  `prefetch` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.ir.expr import (
    Binary,
    BufferLike,
    Call,
    Const,
    Expr,
    Load,
    Var,
    const,
    post_order,
    rebuilt,
)
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic, tensor_intrinsic
from tilesmith.support.errors import InternalError, UsageError

from . import interpret_values as values
from . import nodes
from .interpret_expr import Emitter
from .interpret_launch import Exchange, Launch
from .nodes import Buffer, For, Func, Stmt, Store
from .text import head
from .visit import walk

_MAX_LOOPS = 15  # Python nests at most 20 blocks in one function


def interpret(func: Func, args: Sequence[np.ndarray | int]) -> int:
    """Run `func` on arguments in the order of its parameters; arrays are changed in place.  Returns
    the code of the `Return` that ended it, or 0.

    An array must be C-contiguous, with the buffer's shape and element type.  Raises UsageError for
    unsuitable arguments, InternalError for an access outside a buffer, ModelError for a false
    `Assert`, ScheduleError for a data race between threads.
    """
    return compile_func(func)(args)


def compile_func(func: Func) -> Callable[[Sequence[np.ndarray | int]], int]:
    """`func` as a Python function of its arguments, which may be called several times."""
    translation = _Translation(func)
    code = compile("\n".join(translation.lines), f"<loop IR {func.name}>", "exec")
    exec(code, translation.env)
    run = translation.env["run"]

    def call(args: Sequence[np.ndarray | int]) -> int:
        with np.errstate(all="ignore"):
            try:
                run(*_arguments(func, args))
            except values.Returned as end:
                return end.code
        return 0

    return call


def _arguments(func: Func, args: Sequence[np.ndarray | int]) -> list[Any]:
    if len(args) != len(func.params):
        names = ", ".join(p.name for p in func.params)
        raise UsageError(
            f"'{func.name}' takes {len(func.params)} arguments ({names}), got {len(args)}"
        )
    bound: list[Any] = []
    for p, a in zip(func.params, args):
        if isinstance(p, Var):
            if isinstance(a, np.ndarray) and a.ndim:
                raise UsageError(f"argument '{p.name}' of '{func.name}' is a number, got an array")
            bound.append(values.scalar(a, p.dtype))
            continue
        if not isinstance(a, np.ndarray):
            raise UsageError(
                f"argument '{p.name}' of '{func.name}' is an array, got {type(a).__name__}"
            )
        if a.dtype != p.dtype.numpy or not a.flags.c_contiguous:
            raise UsageError(
                f"argument '{p.name}' of '{func.name}' must be a C-contiguous array of {p.dtype}, "
                f"got {a.dtype} with strides {a.strides}"
            )
        bound.append(a)
    return bound


def behaviour(intrinsic: TensorIntrinsic) -> Func:
    """The computation of a tensor intrinsic, as a `Func` of its operands and its result.

    At the start the result has its old value if the intrinsic accumulates, else zeros.
    """
    buffers = {o: Buffer(o.name, o.dtype, o.shape) for o in (*intrinsic.operands, intrinsic.result)}
    done: dict[Expr, Expr] = {}
    for node in post_order(intrinsic.term):
        new = rebuilt(node, done)
        if isinstance(new, Load) and isinstance(new.buffer, Operand):
            new = Load(buffers[new.buffer], new.indices)
        done[node] = new
    result = buffers[intrinsic.result]
    indices = tuple(intrinsic.axes[: len(intrinsic.result.shape)])
    term = done[intrinsic.term]
    adds = intrinsic.accumulates or any(intrinsic.is_reduced)
    body: Stmt = Store(result, indices, Load(result, indices) + term if adds else term)
    for axis, extent in reversed([*zip(intrinsic.axes, intrinsic.extents, strict=True)]):
        body = For(axis, const(0), const(extent), "serial", body)
    return Func(intrinsic.name, tuple(buffers.values()), (result,), body)


def _tensor_function(name: str) -> Callable[..., np.ndarray]:
    """The behaviour of a tensor intrinsic, as a Python function of vectors."""
    intrinsic = tensor_intrinsic(name)
    run = compile_func(behaviour(intrinsic))

    def call(*args: Any) -> np.ndarray:
        tiles = [
            np.array(a, o.dtype.numpy).reshape(o.shape)
            for a, o in zip(args[len(args) - len(intrinsic.operands) :], intrinsic.operands)
        ]
        result = np.zeros(intrinsic.result.shape, intrinsic.result.dtype.numpy)
        if intrinsic.accumulates:
            result.reshape(-1)[:] = args[0]
        run([*tiles, result])
        return result.reshape(-1)

    return call


class _Translation:
    """Writes the Python source.  `env` has the values of names in the source."""

    def __init__(self, func: Func) -> None:
        self.lines: list[str] = []
        self.env: dict[str, Any] = {
            "np": np, "V": values, "Launch": Launch, "Exchange": Exchange
        }  # fmt: skip
        self.launch = ""  # name of the launch around the current statement
        self.in_block = False  # whether the statement runs in a thread
        self.depth = 0
        self.loops = 0
        self.count = 0
        self.emit = Emitter(self.line, self.env, self.fresh, _tensor_function)
        names = [f"a{i}" for i in range(len(func.params))]
        self.line(f"def run({', '.join(names)}):")
        self.depth += 1
        for p, name in zip(func.params, names):
            if isinstance(p, Var):
                self.emit.bind(p, name, is_index=True)
        for p, name in zip(func.params, names):
            if isinstance(p, Buffer):
                dims = self.shape(p)
                self.env[f"p_{name}"] = p.name
                shape = _tuple(dims)
                self.line(f"if {name}.shape != {shape}: wrong_shape(p_{name}, {name}, {shape})")
                data = self.fresh("b")
                self.line(f"{data} = {name}.reshape(-1)")
                self.emit.bind_buffer(p, data, dims)
        self.env["wrong_shape"] = _wrong_shape
        self.stmt(func.body)
        self.line("return")

    def line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def shape(self, b: Buffer) -> list[str]:
        """The names, in Python source, of a buffer's extents, which are evaluated once."""
        dims: list[str] = []
        for n in b.shape:
            if isinstance(n, int) or type(n) is Const:
                dims.append(str(n if isinstance(n, int) else n.value))
            else:
                name = self.fresh("n")
                self.line(f"{name} = {self.expr(n)}")
                dims.append(name)
        return dims

    def expr(self, *exprs: Expr) -> str:
        """The source of the first expression.  Uses of shared parts are counted over all
        `exprs`.
        """
        self.emit.begin(exprs)
        return self.emit(exprs[0])

    def stmt(self, s: Stmt) -> None:
        """Write lines for `s`.  Sequences, allocations and lets are entered without recursion."""
        waiting = [s]
        while waiting:
            t = waiting.pop()
            if isinstance(t, nodes.Seq):
                waiting += reversed(t.stmts)
            elif isinstance(t, nodes.Allocate):
                self.allocate(t)
                waiting.append(t.body)
            elif isinstance(t, nodes.LetStmt):
                self.let(t)
                waiting.append(t.body)
            elif isinstance(t, nodes.Reinterpret):
                self.reinterpret(t)
                waiting.append(t.body)
            else:
                _STATEMENTS[type(t)](self, t)

    def body(self, s: Stmt) -> None:
        self.depth += 1
        start = len(self.lines)
        self.stmt(s)
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1

    def for_(self, s: nodes.For) -> None:
        level = LOOP_KINDS[s.kind].level
        if level and not self.launch:
            self.launched(s)
        elif level == "thread" and not self.in_block:
            self.block(s)
        elif level == "thread":
            self.threads(s)
        else:
            self.loop(s)

    def launched(self, s: nodes.For) -> None:
        """Write a launch: the blocks of `s`, or the threads of `s` as one block."""
        self.launch = self.fresh("launch")
        self.line(f"{self.launch} = Launch()")
        outside = dict(self.emit.buffers)
        for buffer, (data, dims) in outside.items():
            watched = self.fresh("b")
            self.line(f"{watched} = {self.launch}.watch({data}, {buffer.name!r})")
            self.emit.bind_buffer(buffer, watched, dims)
        self.for_(s)
        self.emit.buffers = outside
        self.launch = ""

    def block(self, body: Stmt) -> None:
        """Write a block whose threads run `body`."""
        name = self.fresh("block")
        self.line(f"def {name}(x, y, z):")
        loops, self.loops, self.in_block = self.loops, 0, True
        outside: dict[BufferLike, tuple[str, list[str]]] = dict(self.emit.buffers)
        self.depth += 1
        self.line("if False: yield")
        self.depth -= 1
        self.body(body)
        self.emit.buffers = outside
        self.loops, self.in_block = loops, False
        self.line(f"{self.launch}.block({name}, {_block_sizes(body)})")

    def threads(self, s: nodes.For) -> None:
        """Write the iteration of `s` that the current thread runs."""
        start, extent = self.expr(s.start), self.expr(s.extent)
        index, var = s.kind[-1], self.fresh("v")
        self.line(f"if {index} < {extent}:")
        self.depth += 1
        self.line(f"{var} = {start} + {index}")
        self.depth -= 1
        self.emit.bind(s.var, var, is_index=True)
        self.body(s.body)

    def loop(self, s: nodes.For) -> None:
        self.emit.begin((s.start, s.extent))
        start = self.emit(s.start)
        extent = self.emit(s.extent)
        var = self.fresh("v")
        stop = f"{start} + {extent}" if start != "0" else extent
        deep = self.loops >= _MAX_LOOPS
        if deep:
            self.line(f"def {var}f():")
            self.depth += 1
            if self.in_block:
                self.line("if False: yield")
        outer, self.loops = self.loops, 1 if deep else self.loops + 1
        self.line(f"for {var} in range({start}, {stop}):")
        self.emit.bind(s.var, var, is_index=True)
        if LOOP_KINDS[s.kind].level == "block" and not _holds_blocks(s.body):
            self.depth += 1
            self.block(s.body)
            self.depth -= 1
        else:
            self.body(s.body)
        self.loops = outer
        if deep:
            self.depth -= 1
            self.line(f"yield from {var}f()" if self.in_block else f"{var}f()")

    def barrier(self, s: nodes.Barrier) -> None:
        self.line(f"yield {self.fresh('')}")

    def async_group(self, s: nodes.AsyncGroup) -> None:
        self.line(f"{self.launch}.begin()")
        self.stmt(s.body)
        self.line(f"{self.launch}.commit()")

    def wait(self, s: nodes.Wait) -> None:
        self.line(f"{self.launch}.wait({s.pending})")

    def wave_reduce(self, s: nodes.WaveReduce) -> None:
        function, name = self.fresh("combine"), self.fresh("v")
        value = self.expr(s.value)
        self.line(f"{name} = {value}")
        a, b = Var("a", s.value.dtype), Var("b", s.value.dtype)
        self.emit.bind(a, "a", is_index=False)
        self.emit.bind(b, "b", is_index=False)
        self.line(f"def {function}(a, b): return {self.expr(Binary(s.op, a, b))}")
        exchange = f"Exchange({self.fresh('')}, {s.lanes}, {name}, {function})"
        self.line(f"{name} = yield {exchange}")
        self.emit.bind(s.var, name, is_index=False)
        self.stmt(s.body)

    def if_(self, s: nodes.If) -> None:
        self.line(f"if {self.expr(s.cond)}:")
        self.body(s.then)
        if s.otherwise is not None:
            self.line("else:")
            self.body(s.otherwise)

    def store(self, s: nodes.Store) -> None:
        self.emit.begin((*s.indices, s.value, *(() if s.mask is None else (s.mask,))))
        self.emit.store(s)

    def allocate(self, s: nodes.Allocate) -> None:
        dims = self.shape(s.buffer)
        data, kind = self.fresh("b"), self.fresh("k")
        self.env[kind] = s.buffer.dtype
        owner = SCOPES[s.buffer.scope].owner
        if owner == "block":
            make = f"{self.launch}.shared({data!r}, "
        elif owner == "warp":
            make = f"{self.launch}.shared(({data!r}, y, z), "
        else:
            make = "V.allocate("
        self.line(f"{data} = {make}{kind}, {_tuple(dims)}, {s.buffer.name!r})")
        self.emit.bind_buffer(s.buffer, data, dims)

    def location(self, place: Expr) -> str:
        """The source of the array that begins at the element `place`."""
        assert isinstance(place, Load)  # the verifier has checked it
        data, dims = self.emit.buffers[place.buffer]
        return f"V.from_place({data}, {self.expr(place.indices[0])}, {dims[0]})"

    def reinterpret(self, s: nodes.Reinterpret) -> None:
        dims = self.shape(s.buffer)
        data, kind = self.fresh("b"), self.fresh("k")
        self.env[kind] = s.buffer.dtype
        self.line(f"{data} = V.reinterpreted({self.location(s.place)}, {kind}, {_tuple(dims)})")
        self.emit.bind_buffer(s.buffer, data, dims)

    def copy_bytes(self, s: nodes.CopyBytes) -> None:
        to, source = self.location(s.to), self.location(s.source)
        self.line(f"V.copy_bytes({to}, {source}, {self.expr(s.count)})")

    def let(self, s: nodes.LetStmt) -> None:
        value = self.expr(s.value)
        is_index = self.emit.is_index(s.value)
        name = self.fresh("v")
        self.line(f"{name} = {value}")
        self.emit.bind(s.var, name, is_index)

    def evaluate(self, s: nodes.Evaluate) -> None:
        if not (isinstance(s.value, Call) and s.value.name == "prefetch"):
            raise InternalError(f"only a call of 'prefetch' has an effect, found '{head(s)}'")

    def assert_(self, s: nodes.Assert) -> None:
        self.line(f"if not {self.expr(s.cond)}: V.failed({s.message!r})")

    def return_(self, s: nodes.Return) -> None:
        self.line(f"raise V.Returned({self.expr(s.code)})")  # a loop may be a function of its own

    def while_(self, s: nodes.While) -> None:
        self.line("while True:")
        self.depth += 1
        self.line(f"if not {self.expr(s.cond)}: break")
        self.depth -= 1
        self.body(s.body)

    def foreign(self, s: Stmt) -> None:
        raise InternalError(f"'{head(s)}' leaves the loops: a program is interpreted by its steps")


def _holds_blocks(body: Stmt) -> bool:
    return any(isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level == "block" for s in walk(body))


def _block_sizes(body: Stmt) -> tuple[int, int, int]:
    """Number of threads along x, y and z: the largest extent of the loops bound to each."""
    sizes = dict.fromkeys("xyz", 1)
    for s in walk(body):
        if isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level == "thread":
            assert isinstance(s.extent, Const)  # the verifier has checked it
            sizes[s.kind[-1]] = max(sizes[s.kind[-1]], int(s.extent.value))
    return sizes["x"], sizes["y"], sizes["z"]


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _wrong_shape(name: str, array: np.ndarray, expected: tuple[int, ...]) -> None:
    raise UsageError(f"argument '{name}' has shape {array.shape}, expected {expected}")


_STATEMENTS: dict[type, Callable[[_Translation, Any], None]] = {
    nodes.For: _Translation.for_, nodes.If: _Translation.if_, nodes.Store: _Translation.store,
    nodes.Evaluate: _Translation.evaluate,
    nodes.Assert: _Translation.assert_, nodes.Return: _Translation.return_,
    nodes.CopyBytes: _Translation.copy_bytes,
    nodes.Barrier: _Translation.barrier,
    nodes.AsyncGroup: _Translation.async_group, nodes.Wait: _Translation.wait,
    nodes.WaveReduce: _Translation.wave_reduce,
    nodes.While: _Translation.while_, nodes.CallFunction: _Translation.foreign,
    nodes.CallHost: _Translation.foreign, nodes.Grow: _Translation.foreign,
    nodes.Has: _Translation.foreign, nodes.Locate: _Translation.foreign,
    nodes.Point: _Translation.foreign,
    nodes.Tensorize: lambda t, s: t.stmt(s.body),
}  # fmt: skip
