"""Calls of tensor intrinsics."""

from __future__ import annotations

from tilesmith.ir.expr import Expr, Load, TensorCall
from tilesmith.ir.lane_offsets import rows_of
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic, tensor_intrinsic
from tilesmith.loop.nodes import Buffer, For
from tilesmith.support.errors import InternalError, ScheduleError

from .hooks import Hooks
from .llvm_text import memory_type
from .memory import Memory
from .module import Module
from .tensor_code import TensorCode, Value
from .values import Mask


class TensorCalls:
    """Writer of calls of tensor intrinsics.

    tiles: tiles that were already loaded, for reuse until memory changes.
    """

    def __init__(self, memory: Memory, module: Module, hooks: Hooks) -> None:
        self.b = memory.b
        self.memory = memory
        self.module = module
        self.hooks = hooks
        self.tiles: dict[object, Value] = {}

    def code(self) -> TensorCode:
        """The writer that an intrinsic gets for one call."""
        return TensorCode(self.b, self._thread)

    def call(self, e: TensorCall, mask: Mask | None) -> str:
        """Write a call; return the operand of its result."""
        target = self.module.target
        intrinsic = tensor_intrinsic(e.name)
        if self.module.strict and intrinsic.tolerance:
            raise ScheduleError(
                f"{e.name} has a relative error of {intrinsic.tolerance:g}, which strict accuracy "
                "does not allow"
            )
        missing = intrinsic.features - target.features
        if missing:
            raise ScheduleError(
                f"{e.name} needs {', '.join(sorted(missing))}; the target {target.name} lacks "
                "it: use an intrinsic that the target has"
            )
        count = len(e.args) - len(intrinsic.operands)
        args = [self._vector(a, mask) for a in e.args[:count]]
        args += [
            self._vector(a, mask) if intrinsic.load is None else self._tile(intrinsic, o, a)
            for o, a in zip(intrinsic.operands, e.args[count:], strict=True)
        ]
        result = intrinsic.emit(self.code(), *args)
        wanted = memory_type(e.type, e.size // intrinsic.threads)
        if not isinstance(result, Value) or result.type != wanted:
            raise ScheduleError(
                f"{e.name}: expected that emit returns a value of type {wanted}, found {result!r}"
            )
        return self.memory.ops.from_memory(e.type, e.size // intrinsic.threads, result.text)

    def _thread(self) -> Value:
        if self.hooks.thread_number is None:
            raise ScheduleError(
                f"the target {self.module.target.name} has no threads that run an intrinsic "
                "together"
            )
        return Value("i64", self.hooks.thread_number(self.b))

    def _vector(self, e: Expr, mask: Mask | None) -> Value:
        held = self.hooks.part(self.b, e)
        return held or Value(memory_type(e.dtype, e.lanes), self.memory.stored(e, mask))

    def _tile(self, intrinsic: TensorIntrinsic, operand: Operand, e: Expr) -> Value:
        """An operand that the intrinsic loads itself.  Calls that read the same tile share the
        load.
        """
        rows = rows_of(e.indices[0]) if isinstance(e, Load) else None
        if rows is None or not isinstance(e, Load) or not isinstance(e.buffer, Buffer):
            raise InternalError(f"{intrinsic.name}: operand {operand} is no tile in memory: {e}")
        self.hooks.check_operand(intrinsic, operand, e)
        assert intrinsic.load is not None
        key = intrinsic.load, operand.shape, e
        if key not in self.tiles:
            pointer = Value("ptr", self.memory.address(e.buffer, rows.first))
            distance = rows.distance if rows.count > 1 else e.lanes // operand.shape[0]
            distance *= e.dtype.bytes
            self.tiles[key] = intrinsic.load(self.code(), operand, pointer, distance)
        return self.tiles[key]

    def keep_alive(self, s: For, var: str, start: str) -> None:
        """Write the keep-alive code at the end of a loop's body, if the loop needs it (see
        `keep_alive`).
        """
        if s not in self.module.breaks:
            return
        count, intrinsic = self.module.breaks[s]
        assert intrinsic.keep_alive is not None
        join = self.b.label("join")
        if count > 1:
            done = self.b.emit(f"sub i64 {var}, {start}")
            turn = self.b.emit(f"and i64 {done}, {count - 1}")
            due = self.b.label("awake")
            self.b.branch(self.b.emit(f"icmp eq i64 {turn}, {count - 1}"), due, join)
            self.b.start_block(due)
        intrinsic.keep_alive.emit(self.code())
        if count > 1:
            self.b.jump(join)
            self.b.start_block(join)
