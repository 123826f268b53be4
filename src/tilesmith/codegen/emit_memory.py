"""Loads and stores: addresses and the shapes of vector access.

An index is a sum; its terms are added to the buffer's pointer from the outermost loop inwards and
the constant last, so that unrolled accesses share one pointer per loop and differ only in a
displacement.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.ir.expr import Binary, Broadcast, Const, Expr, Load, Ramp, const
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, Store
from tilesmith.support.errors import InternalError

from .emit_expr import Mask
from .emit_registers import RegisterEmitter
from .lane_offsets import lane_offsets
from .llvm_text import memory_type, value_type, vector

_MAX_SHUFFLED_STRIDE = 4
"""Loads with a stride up to this are whole vectors and shuffles; beyond it, gathers."""


class MemoryEmitter(RegisterEmitter):
    def __init__(self, target: Target, written: frozenset[Buffer]) -> None:
        super().__init__(target)
        self.written = written  # buffers that the kernel stores to
        self.pointers: dict[Buffer, str] = {}

    def pointer(self, buffer: Buffer) -> str:
        try:
            return self.pointers[buffer]
        except KeyError:
            raise InternalError(f"buffer {buffer.name} is used outside its allocation") from None

    def is_written(self, load: Load) -> bool:
        return load.buffer in self.written

    # linear forms

    def as_ramp(self, e: Expr) -> tuple[Expr, int] | None:
        """`(base, stride)` of a vector index that is base + stride * lane with constant stride."""
        if isinstance(e, Ramp):
            return (e.base, int(e.stride.value)) if isinstance(e.stride, Const) else None
        if isinstance(e, Broadcast):
            return e.value, 0
        if isinstance(e, Binary) and e.op in ("add", "sub"):
            a, b = self.as_ramp(e.a), self.as_ramp(e.b)
            if a and b:
                return Binary(e.op, a[0], b[0]), a[1] + b[1] if e.op == "add" else a[1] - b[1]
        if isinstance(e, Binary) and e.op == "mul":
            a, b = self.as_ramp(e.a), self.as_ramp(e.b)
            for x, y in ((a, b), (b, a)):
                if x and y and y[1] == 0 and isinstance(y[0], Const):
                    return x[0] * y[0], x[1] * int(y[0].value)
        return None

    def address(self, buffer: Buffer, index: Expr, offset: int = 0) -> str:
        """Pointer to element `index + offset` (a scalar index)."""
        terms, constant = _terms(index)
        constant += offset
        element = memory_type(buffer.dtype)
        by_level: dict[int, list[tuple[Expr, int]]] = {}
        for e, factor in terms:
            # what comes from memory can't be moved: it counts as innermost
            level = self.scope.depth if self.info(e)[1] else self.level(e)
            by_level.setdefault(level, []).append((e, factor))
        pointer = self.pointer(buffer)
        for level in sorted(by_level):
            group = by_level[level]
            fixed = any(self.info(e)[1] for e, _ in group)
            pointer = self._step(element, pointer, group, None if fixed else level)
        if constant:
            pointer = self._step(element, pointer, [(const(constant), 1)], self.scope.depth)
        return pointer

    def _step(
        self, element: str, pointer: str, terms: list[tuple[Expr, int]], level: int | None
    ) -> str:
        key = (pointer, tuple(terms))
        if level is None:
            return self.emit(f"getelementptr {element}, ptr {pointer}, i64 {self._sum(terms)}")
        scope = self.scope
        while scope is not None:
            found = scope.values.get(key)
            if found is not None:
                return found
            scope = scope.parent
        home = self.home(level)
        with self.writing_in(home):
            result = self.emit(f"getelementptr {element}, ptr {pointer}, i64 {self._sum(terms)}")
        home.values[key] = result
        return result

    def _sum(self, terms: list[tuple[Expr, int]]) -> str:
        total = ""
        for e, factor in terms:
            value = self.value(e if factor == 1 else e * factor)
            total = self.emit(f"add i64 {total}, {value}") if total else value
        return total

    # loads

    def load(self, e: Load, mask: Mask | None) -> str:
        buffer, index = e.buffer, _index(e.indices)
        assert isinstance(buffer, Buffer)
        lanes = e.lanes
        if lanes == 1:
            return self._scalar_load(buffer, index, e.mask)
        active = self._active(e.mask, lanes, mask)
        if buffer in self.slots:
            value = self._slot_load(buffer, index, lanes)
            if not active:
                return value
            type_ = value_type(buffer.dtype, lanes)
            return self.emit(
                f"select {vector('i1', lanes)} {active}, {type_} {value}, {type_} zeroinitializer"
            )
        return self.from_memory(
            buffer.dtype, lanes, self._vector_load(buffer, index, lanes, active)
        )

    def _active(self, own: Expr | None, lanes: int, mask: Mask | None) -> str:
        """Text of the mask that an access has of its own, and of the context's; empty when all
        lanes are active.
        """
        inner = ""
        if own is not None:
            inner = (
                self.value(own, mask) if own.lanes > 1 else self.splat("i1", self.value(own), lanes)
            )
        if mask is None:
            return inner
        return self.emit(f"and {vector('i1', lanes)} {mask.text}, {inner}") if inner else mask.text

    def _scalar_load(self, buffer: Buffer, index: Expr, mask: Expr | None) -> str:
        if mask is not None:
            cond, type_ = self.value(mask), value_type(buffer.dtype)
            return self.diamond(
                cond,
                type_,
                lambda: self._scalar_load(buffer, index, None),
                lambda: self.zero(buffer.dtype, 1),
            )
        if buffer in self.slots:
            return self._slot_load(buffer, index, 1)
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        stored = self.emit(f"load {element}, ptr {self.address(buffer, index)}, align {size}")
        return self.from_memory(buffer.dtype, 1, stored)

    def _vector_load(self, buffer: Buffer, index: Expr, lanes: int, active: str) -> str:
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        type_ = vector(element, lanes)
        ramp = self.as_ramp(index)
        if ramp is None:
            near = None if active else lane_offsets(index)
            if near is not None and max(near[1]) - min(near[1]) < 2 * lanes:
                return self._permuted(buffer, *near)
            return self._gather(buffer, self.value(index), lanes, active)
        base, stride = ramp
        if stride == 1:
            return self._contiguous(type_, self.address(buffer, base), size, lanes, active)
        if stride == -1:
            backwards = tuple(range(lanes - 1, -1, -1))
            if active:
                active = self.shuffle(vector("i1", lanes), active, "poison", backwards)
            loaded = self._contiguous(
                type_, self.address(buffer, base, 1 - lanes), size, lanes, active
            )
            return self.shuffle(type_, loaded, "poison", backwards)
        if stride == 0 and not active:
            one = self.emit(f"load {element}, ptr {self.address(buffer, base)}, align {size}")
            return self.splat(element, one, lanes)
        if 2 <= stride <= _MAX_SHUFFLED_STRIDE and not active and stride < lanes:
            return self._strided(buffer, base, stride, lanes)
        first = self.address(buffer, base)
        steps = self.value(Ramp(const(0), const(stride), lanes))
        where = self.emit(f"getelementptr {element}, ptr {first}, <{lanes} x i64> {steps}")
        return self._gather_at(element, where, size, lanes, active)

    def _contiguous(self, type_: str, pointer: str, size: int, lanes: int, active: str) -> str:
        if not active:
            return self.emit(f"load {type_}, ptr {pointer}, align {size}")
        mask = f"<{lanes} x i1> {active}"
        return self.emit(
            f"call {type_} @llvm.masked.load(ptr align {size} {pointer}, {mask}, {type_} "
            "zeroinitializer)"
        )

    def _strided(self, buffer: Buffer, base: Expr, stride: int, lanes: int) -> str:
        """Every stride-th element: `stride` vectors, the last ending at the last element needed."""
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        type_ = vector(element, lanes)
        span = (lanes - 1) * stride + 1
        starts = [min(k * lanes, span - lanes) for k in range(stride)]
        result = ""
        for k, start in enumerate(starts):
            part = self.emit(f"load {type_}, ptr {self.address(buffer, base, start)}, align {size}")
            # lanes whose element lies in this part, and in none before it
            picks = []
            for lane in range(lanes):
                at = lane * stride
                here = k * lanes <= at < (k + 1) * lanes
                picks.append(
                    at - start + lanes
                    if here and result
                    else at - start
                    if here
                    else lane
                    if result
                    else 0
                )
            result = self.shuffle(type_, result or part, part if result else "poison", tuple(picks))
        return result

    def _permuted(self, buffer: Buffer, base: Expr, offsets: tuple[int, ...]) -> str:
        """Elements close to each other, in any order: two vectors that cover them, shuffled."""
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        low, span = min(offsets), max(offsets) - min(offsets) + 1
        width = 1 << (span.bit_length() - 1)
        type_ = vector(element, width)
        parts = [
            self.emit(f"load {type_}, ptr {self.address(buffer, base, low + start)}, align {size}")
            for start in dict.fromkeys((0, span - width))
        ]
        picks = tuple(
            at if at < width else at - (span - width) + width for at in (o - low for o in offsets)
        )
        return self.shuffle(type_, parts[0], parts[1] if len(parts) > 1 else "poison", picks)

    def _gather(self, buffer: Buffer, index: str, lanes: int, active: str) -> str:
        element = memory_type(buffer.dtype)
        where = self.emit(
            f"getelementptr {element}, ptr {self.pointer(buffer)}, <{lanes} x i64> {index}"
        )
        return self._gather_at(element, where, buffer.dtype.bytes, lanes, active)

    def _gather_at(self, element: str, where: str, size: int, lanes: int, active: str) -> str:
        type_, mask = vector(element, lanes), active or "splat (i1 true)"
        pointers = f"<{lanes} x ptr> align {size} {where}"
        return self.emit(
            f"call {type_} @llvm.masked.gather({pointers}, <{lanes} x i1> {mask}, {type_} "
            "zeroinitializer)"
        )

    # stores

    def store(self, s: Store) -> None:
        buffer, index = s.buffer, _index(s.indices)
        lanes = max(index.lanes, s.value.lanes)
        if lanes > 1 and s.value.lanes == 1:
            raise InternalError(
                f"store to {buffer.name}: a scalar value for {lanes} lanes; broadcast it"
            )
        if lanes > 1 and index.lanes == 1:
            raise InternalError(
                f"store to {buffer.name}: {lanes} lanes at one index; reduce them first"
            )
        if lanes == 1:
            if s.mask is not None:
                self.guarded(self.value(s.mask), lambda: self._scalar_store(buffer, index, s.value))
            else:
                self._scalar_store(buffer, index, s.value)
            return
        active = self._active(s.mask, lanes, None)
        value = self.value(s.value, Mask(active, lanes) if active else None)
        if buffer in self.slots:
            self._slot_store(buffer, index, lanes, value, active)
            return
        stored = self.to_memory(buffer.dtype, lanes, value)
        self._vector_store(buffer, index, lanes, stored, active)

    def guarded(self, cond: str, then: Callable[[], None]) -> None:
        """Run `then` where the scalar `cond` holds."""
        yes, join = self.label("then"), self.label("join")
        self.branch(cond, yes, join)
        self.start_block(yes)
        with self.nested():
            then()
            self.jump(join)
        self.start_block(join)

    def _scalar_store(self, buffer: Buffer, index: Expr, value: Expr) -> None:
        text = self.value(value)
        if buffer in self.slots:
            self._slot_store(buffer, index, 1, text, "")
            return
        stored = self.to_memory(buffer.dtype, 1, text)
        self.do(
            f"store {memory_type(buffer.dtype)} {stored}, ptr {self.address(buffer, index)}, "
            f"align {buffer.dtype.bytes}"
        )

    def _vector_store(
        self, buffer: Buffer, index: Expr, lanes: int, stored: str, active: str
    ) -> None:
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        type_ = vector(element, lanes)
        ramp = self.as_ramp(index)
        if ramp is not None and ramp[1] in (1, -1):
            start = 0
            if ramp[1] == -1:
                backwards = tuple(range(lanes - 1, -1, -1))
                stored = self.shuffle(type_, stored, "poison", backwards)
                active = active and self.shuffle(vector("i1", lanes), active, "poison", backwards)
                start = 1 - lanes
            pointer = self.address(buffer, ramp[0], start)
            if active:
                self.do(
                    f"call void @llvm.masked.store({type_} {stored}, ptr align {size} "
                    f"{pointer}, <{lanes} x i1> {active})"
                )
            else:
                self.do(f"store {type_} {stored}, ptr {pointer}, align {size}")
            return
        if ramp is not None:
            first, steps = (
                self.address(buffer, ramp[0]),
                self.value(Ramp(const(0), const(ramp[1]), lanes)),
            )
        else:
            first, steps = self.pointer(buffer), self.value(index)
        where = self.emit(f"getelementptr {element}, ptr {first}, <{lanes} x i64> {steps}")
        mask = active or "splat (i1 true)"
        self.do(
            f"call void @llvm.masked.scatter({type_} {stored}, <{lanes} x ptr> align {size} "
            f"{where}, <{lanes} x i1> {mask})"
        )


def _index(indices: tuple[Expr, ...]) -> Expr:
    """The one index of a flat access; a 0-d buffer has its element at 0."""
    if len(indices) > 1:
        raise InternalError(
            f"code generation needs flat buffers, found an access with {len(indices)} indices"
        )
    for index in indices:
        return index.base if isinstance(index, Ramp) and index.size == 1 else index
    return const(0)


def _terms(index: Expr) -> tuple[list[tuple[Expr, int]], int]:
    """The terms of a sum, each with its constant factor, and the sum of its constants."""
    terms: list[tuple[Expr, int]] = []
    constant = 0
    stack: list[tuple[Expr, int]] = [(index, 1)]
    while stack:
        e, factor = stack.pop()
        if isinstance(e, Const):
            constant += factor * int(e.value)
            continue
        if isinstance(e, Binary):
            if e.op == "add" or e.op == "sub":
                stack.append((e.b, factor if e.op == "add" else -factor))
                stack.append((e.a, factor))
                continue
            if e.op == "mul" and isinstance(e.b, Const):
                stack.append((e.a, factor * int(e.b.value)))
                continue
            if e.op == "mul" and isinstance(e.a, Const):
                stack.append((e.b, factor * int(e.a.value)))
                continue
        terms.append((e, factor))
    return terms, constant
