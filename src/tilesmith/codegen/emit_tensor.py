"""Calls of tensor intrinsics."""

from __future__ import annotations

from tilesmith.ir.expr import Expr, Load, TensorCall
from tilesmith.ir.lane_offsets import rows_of
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic, tensor_intrinsic
from tilesmith.loop.nodes import Buffer, For, Store
from tilesmith.support.errors import InternalError, ScheduleError

from .emit_expr import Mask
from .emit_memory import MemoryEmitter
from .keep_alive import Breaks
from .llvm_text import memory_type
from .module import Module
from .tensor_code import TensorCode, Value


class TensorEmitter(MemoryEmitter):
    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.tiles: dict[object, Value] = {}  # loaded by the stores around, until memory changes
        self.breaks: Breaks = {}

    def tensor_call(self, e: TensorCall, mask: Mask | None) -> str:
        intrinsic = tensor_intrinsic(e.name)
        if self.strict and intrinsic.tolerance:
            raise ScheduleError(
                f"{e.name} has a relative error of {intrinsic.tolerance:g}, which strict accuracy "
                "does not allow"
            )
        missing = intrinsic.features - self.target.features
        if missing:
            raise ScheduleError(
                f"{e.name} needs {', '.join(sorted(missing))}; the target {self.target.name} lacks "
                "it: use an intrinsic that the target has"
            )
        count = len(e.args) - len(intrinsic.operands)
        args = [self._vector(a, mask) for a in e.args[:count]]
        args += [
            self._vector(a, mask) if intrinsic.load is None else self._tile(intrinsic, o, a)
            for o, a in zip(intrinsic.operands, e.args[count:], strict=True)
        ]
        found = intrinsic.emit(TensorCode(self), *args)
        wanted = memory_type(e.type, e.size // intrinsic.threads)
        if not isinstance(found, Value) or found.type != wanted:
            raise ScheduleError(
                f"{e.name}: expected that emit returns a value of type {wanted}, found {found!r}"
            )
        return self.from_memory(e.type, e.size // intrinsic.threads, found.text)

    def thread_number(self) -> Value:
        """The number of this thread among those that run a call together."""
        raise ScheduleError(
            f"the target {self.target.name} has no threads that run an intrinsic together"
        )

    def spare_memory(self, size: int) -> str:
        """The name of `size` bytes on the stack."""
        name = self.name("spare")
        self.allocas.append(f"  {name} = alloca [{size} x i8], align 64")
        return name

    def _vector(self, e: Expr, mask: Mask | None) -> Value:
        return Value(memory_type(e.dtype, e.lanes), self.stored(e, mask))

    def _tile(self, intrinsic: TensorIntrinsic, operand: Operand, e: Expr) -> Value:
        """An operand that the intrinsic loads itself; calls that read the same one share it."""
        rows = rows_of(e.indices[0]) if isinstance(e, Load) else None
        if rows is None or not isinstance(e, Load) or not isinstance(e.buffer, Buffer):
            raise InternalError(f"{intrinsic.name}: operand {operand} is no tile in memory: {e}")
        assert intrinsic.load is not None
        key = intrinsic.load, operand.shape, e
        if key not in self.tiles:
            pointer = Value("ptr", self.address(e.buffer, rows.first))
            distance = rows.distance if rows.count > 1 else e.lanes // operand.shape[0]
            distance *= e.dtype.bytes
            self.tiles[key] = intrinsic.load(TensorCode(self), operand, pointer, distance)
        return self.tiles[key]

    def store(self, s: Store) -> None:
        super().store(s)
        if s.buffer not in self.slots:
            self.tiles.clear()

    def keep_alive(self, s: For, var: str, start: str) -> None:
        """What loops of some intrinsics must run now and then, at the end of iterations."""
        if s not in self.breaks:
            return
        count, intrinsic = self.breaks[s]
        assert intrinsic.keep_alive is not None
        join = self.label("join")
        if count > 1:
            done = self.emit(f"sub i64 {var}, {start}")
            turn = self.emit(f"and i64 {done}, {count - 1}")
            due = self.label("awake")
            self.branch(self.emit(f"icmp eq i64 {turn}, {count - 1}"), due, join)
            self.start_block(due)
        intrinsic.keep_alive.emit(TensorCode(self))
        if count > 1:
            self.jump(join)
            self.start_block(join)
