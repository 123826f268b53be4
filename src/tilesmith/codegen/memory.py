"""Loads and stores: addresses and the kinds of vector access.

An index is a sum.  Its terms are added to the buffer's pointer one by one, those of the outermost
loop first and the constant last.  So unrolled accesses share one pointer per loop and differ only
in a constant displacement.
"""

from __future__ import annotations

from functools import partial

from tilesmith.ir.byte_lookups import byte_lookup, lookup_instructions
from tilesmith.ir.expr import Binary, Broadcast, Const, Expr, Load, Ramp, as_expr, const
from tilesmith.ir.lane_offsets import lane_of
from tilesmith.ir.loop_tables import ALLOCATED, SCOPES
from tilesmith.loop.nodes import Buffer, Store
from tilesmith.loop.passes.workspace import buffer_bytes, element_count, is_constant
from tilesmith.support.errors import InternalError

from .byte_lookups import lookup
from .hooks import Hooks
from .indices import constant_access, flat_index, terms_of
from .lane_loads import Reach, cover, known_lanes, place
from .llvm_text import NONTEMPORAL, is_narrow, memory_type, value_type, vector
from .module import Module
from .registers import Registers
from .survey import moved
from .targets import has_slow_gathers
from .values import Mask, Values

_MOST_PARTS = 8
"""Upper bound on the vectors from which the elements of one load are picked.  A load that needs
more vectors is a gather.
"""


class Memory:
    """Writer of loads and stores.

    reach: the elements that the current group of stores certainly reads (see `lane_loads.reach`).
    whole: for each streaming store of the current group, its alignment in bytes.
    streams: whether a streaming store was written.
    """

    def __init__(self, values: Values, registers: Registers, module: Module, hooks: Hooks) -> None:
        self.b = values.b
        self.emit = values.b.emit
        self.env = values.env
        self.ops = values.ops
        self.values = values
        self.value = values.value
        self.registers = registers
        self.module = module
        self.hooks = hooks
        self.reach: Reach = {}
        self.whole: dict[Store, int] = {}
        self.streams = False
        self._scratch = ""

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

    def heap(self, buffer: Buffer) -> str:
        """Pointer to a heap buffer, which lies in the workspace or in a thread's scratch memory."""
        plan = self.module.workspace
        offset = plan.offsets[buffer]
        # The parent of the outermost loop.  A value written here is available in the whole loop.
        top = self.b.home(0)
        if buffer not in plan.per_thread:
            base = "%workspace"
        elif self.env.outside is None:  # a parallel loop of one iteration runs as thread 0
            base = self.env.field("scratch")
        else:
            base = self._scratch
            if not base:
                field = self.env.outside.field
                all_threads = self.env.capture("ptr", field("scratch"))
                size = self.env.capture("i64", field("scratch_bytes"))
                with self.b.writing_in(top):
                    mine = self.emit(f"mul i64 %thread, {size}")
                    base = self.emit(f"getelementptr i8, ptr {all_threads}, i64 {mine}")
                if top.parent is None:
                    self._scratch = base
        with self.b.writing_in(top):
            start = self.value(as_expr(offset))
            return self.emit(f"getelementptr i8, ptr {base}, i64 {start}")

    def place(self, e: Expr) -> str:
        """The pointer to an element, given as the load that would read it."""
        assert isinstance(e, Load) and isinstance(e.buffer, Buffer)
        return self.address(e.buffer, e.indices[0])

    def address(self, buffer: Buffer, index: Expr, offset: int = 0) -> str:
        """Pointer to element `index + offset` (a scalar index)."""
        values = self.values
        terms, constant = terms_of(index)
        constant += offset
        element = memory_type(buffer.dtype)
        by_level: dict[int, list[tuple[Expr, int]]] = {}
        for e, factor in terms:
            # A term that reads memory has a value only inside the scope that computes it, so it is
            # added there.  Other terms are added at the level of their innermost variable.
            is_fixed = values.needs_guard(e)[0]
            level = values.home_of(e).depth if is_fixed else self.env.level(e)
            by_level.setdefault(level, []).append((e, factor))
        pointer = self.env.pointer(buffer)
        for level in sorted(by_level):
            group = by_level[level]
            here = level == self.b.scope.depth
            is_fixed = here and any(values.needs_guard(e)[0] for e, _ in group)
            pointer = self._step(element, pointer, group, None if is_fixed else level)
        if constant:
            pointer = self._step(element, pointer, [(const(constant), 1)], self.b.scope.depth)
        return pointer

    def _step(
        self, element: str, pointer: str, terms: list[tuple[Expr, int]], level: int | None
    ) -> str:
        key = (pointer, tuple(terms))
        if level is None:
            return self.emit(f"getelementptr {element}, ptr {pointer}, i64 {self._sum(terms)}")
        scope = self.b.scope
        while scope is not None:
            known = scope.values.get(key)
            if known is not None:
                return known
            scope = scope.parent
        home = self.b.home(level)
        with self.b.writing_in(home):
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
        buffer, index = e.buffer, flat_index(e.indices)
        assert isinstance(buffer, Buffer)
        lanes = e.lanes
        if lanes == 1:
            return self._scalar_load(buffer, index, e.mask)
        if buffer in self.registers.slots and not self.registers.slots[buffer].as_stored:
            active = self._active(e.mask, lanes, mask)
            value = self.registers.load(buffer, index, lanes)
            if active is None:
                return value
            return self._or_zero(active.text, value_type(buffer.dtype, lanes), value)
        return self.ops.from_memory(buffer.dtype, lanes, self._stored(e, mask))

    def stored(self, e: Expr, mask: Mask | None) -> str:
        """The value of `e` in its memory type.  If `e` is a load of 16-bit floats, they are not
        widened first.
        """
        if isinstance(e, Load) and e.lanes > 1 and is_narrow(e.dtype):
            return self._stored(e, mask)
        return self.ops.to_memory(e.dtype, e.lanes, self.value(e, mask))

    def _stored(self, e: Load, mask: Mask | None) -> str:
        """The elements of a vector load, in their memory type."""
        buffer, index, lanes = e.buffer, flat_index(e.indices), e.lanes
        assert isinstance(buffer, Buffer)
        active = self._active(e.mask, lanes, mask)
        if buffer not in self.registers.slots:
            return self._vector_load(buffer, index, lanes, active)
        stored = self.registers.load(buffer, index, lanes)
        if active is None:
            return stored
        return self._or_zero(active.text, memory_type(buffer.dtype, lanes), stored)

    def _or_zero(self, active: str, type_: str, value: str) -> str:
        lanes = type_[1:].split(" ", 1)[0]
        choice = f"{type_} {value}, {type_} zeroinitializer"
        return self.emit(f"select <{lanes} x i1> {active}, {choice}")

    def _active(self, own: Expr | None, lanes: int, mask: Mask | None) -> Mask | None:
        """The conjunction of an access's own mask and the mask around it; None if all lanes are
        active.
        """
        if own is None:
            return mask
        text = self.value(own, mask if own.lanes > 1 else None)
        if own.lanes == 1:
            text = self.b.splat("i1", text, lanes)
        return self.values.both(mask, Mask(text, lanes, known_lanes(own)))

    def _scalar_load(self, buffer: Buffer, index: Expr, mask: Expr | None) -> str:
        held = self.hooks.element(self.b, buffer, index)
        if held is not None:
            return held
        if mask is not None:
            type_, zero = value_type(buffer.dtype), self.ops.zero(buffer.dtype, 1)
            load = partial(self._scalar_load, buffer, index, None)
            return self.b.diamond(self.value(mask), type_, load, lambda: zero)
        if buffer in self.registers.slots:
            element = self.registers.load(buffer, index, 1)
            as_stored = self.registers.slots[buffer].as_stored
            return self.ops.from_memory(buffer.dtype, 1, element) if as_stored else element
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        stored = self.emit(f"load {element}, ptr {self.address(buffer, index)}, align {size}")
        return self.ops.from_memory(buffer.dtype, 1, stored)

    def _vector_load(self, buffer: Buffer, index: Expr, lanes: int, mask: Mask | None) -> str:
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        type_ = vector(element, lanes)
        active = mask.text if mask else ""
        ramp = self.as_ramp(index)
        if ramp is None or ramp[1] not in (-1, 0, 1):
            picked = self._picked(buffer, index, lanes, mask)
            if picked is not None:
                return picked
        if ramp is None:
            looked_up = self._looked_up(buffer, index, lanes, mask)
            if looked_up is not None:
                return looked_up
        if ramp is None and not active and has_slow_gathers(self.module.target):
            one_by_one = self._collected(buffer, index, lanes)
            if one_by_one is not None:
                return one_by_one
        if ramp is None:
            return self._gather(buffer, self.value(index, mask), lanes, active)
        base, stride = ramp
        if stride == 1:
            return self._contiguous(type_, self.address(buffer, base), size, lanes, active)
        if stride == -1:
            backwards = tuple(range(lanes - 1, -1, -1))
            if active:
                active = self.b.shuffle(vector("i1", lanes), active, "poison", backwards)
            start = self.address(buffer, base, 1 - lanes)
            loaded = self._contiguous(type_, start, size, lanes, active)
            return self.b.shuffle(type_, loaded, "poison", backwards)
        if stride == 0 and not active:
            one = self.emit(f"load {element}, ptr {self.address(buffer, base)}, align {size}")
            return self.b.splat(element, one, lanes)
        first = self.address(buffer, base)
        steps = self.value(Ramp(const(0), const(stride), lanes))
        where = self.emit(f"getelementptr {element}, ptr {first}, <{lanes} x i64> {steps}")
        return self._gather_at(element, where, size, lanes, active)

    def _contiguous(self, type_: str, pointer: str, size: int, lanes: int, active: str) -> str:
        if not active:
            align = self.hooks.vector_align(size, lanes)
            return self.emit(f"load {type_}, ptr {pointer}, align {align}")
        mask = f"<{lanes} x i1> {active}"
        return self.emit(
            f"call {type_} @llvm.masked.load(ptr align {size} {pointer}, {mask}, {type_} "
            "zeroinitializer)"
        )

    def _picked(self, buffer: Buffer, index: Expr, lanes: int, mask: Mask | None) -> str | None:
        """Load elements at known distances: load vectors that cover the elements, and shuffle
        the vectors.  None if the distances are not known or too many vectors are needed.
        """
        where = place(buffer, index)
        if where is None or (mask is not None and mask.known is None):
            return None
        on = (mask and mask.known) or (True,) * lanes
        read = [o for o, active in zip(where[1], on, strict=True) if active]
        if not read:
            return "zeroinitializer"
        low, high = self.reach.get(where[0], (read[0], read[0]))
        width, starts = cover(read, min(low, *read), max(high, *read), lanes)
        if len(starts) > max(min(_MOST_PARTS, lanes // 2), min(3, lanes - 1)):
            return None
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        part_type, type_ = f"<{width} x {element}>", vector(element, lanes)
        result, taken = "", [False] * lanes
        for first in range(0, len(starts), 2):
            pair = starts[first : first + 2]
            parts = [
                self.emit(f"load {part_type}, ptr {self.address(*where[0], s)}, align {size}")
                for s in pair
            ]
            picks = [
                next((k * width + o - s for k, s in enumerate(pair) if 0 <= o - s < width), -1)
                if active
                else -1
                for o, active in zip(where[1], on, strict=True)
            ]
            merged = self.b.shuffle(part_type, parts[0], [*parts, "poison"][1], tuple(picks))
            if result:
                blend = tuple(
                    lane if done else lanes + lane if pick >= 0 else -1
                    for lane, (done, pick) in enumerate(zip(taken, picks, strict=True))
                )
                merged = self.b.shuffle(type_, result, merged, blend)
            result = merged
            taken = [done or pick >= 0 for done, pick in zip(taken, picks, strict=True)]
        return result if all(taken) or mask is None else self._or_zero(mask.text, type_, result)

    def _looked_up(self, buffer: Buffer, index: Expr, lanes: int, mask: Mask | None) -> str | None:
        """Load elements of a short list of bytes from registers.  None for other buffers, and where
        separate loads are as fast.
        """
        if buffer.dtype.bytes > 1 or not is_constant(buffer):
            return None
        how, entries = byte_lookup(self.module.target), element_count(buffer)
        if lookup_instructions(self.module.target, entries, lanes) is None:
            return None
        assert how is not None
        place, wide = self.value(index, mask), value_type(index.dtype, lanes)
        place = self.emit(f"trunc {wide} {place} to {vector('i8', lanes)}")
        entry = lookup(self.b, how, self.env.pointer(buffer), entries, lanes, place)
        return entry if mask is None else self._or_zero(mask.text, vector("i8", lanes), entry)

    def _collected(self, buffer: Buffer, index: Expr, lanes: int) -> str | None:
        """Load elements one by one, since gathers are slower on some processors.  None unless
        `index` is a sum of contiguous loads, ramps and broadcasts.
        """
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        type_, result = vector(element, lanes), "poison"
        for lane in range(lanes):
            position = lane_of(index, lane)
            if position is None:
                return None
            one = self.emit(f"load {element}, ptr {self.address(buffer, position)}, align {size}")
            result = self.emit(f"insertelement {type_} {result}, {element} {one}, i64 {lane}")
        return result

    def _gather(self, buffer: Buffer, index: str, lanes: int, active: str) -> str:
        element = memory_type(buffer.dtype)
        first = self.env.pointer(buffer)
        where = self.emit(f"getelementptr {element}, ptr {first}, <{lanes} x i64> {index}")
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
        buffer, index = s.buffer, flat_index(s.indices)
        lanes = max(index.lanes, s.value.lanes)
        if lanes > 1 and 1 in (s.value.lanes, index.lanes):
            what = f"{lanes} lanes at one index; reduce them first"
            if s.value.lanes == 1:
                what = f"a scalar value for {lanes} lanes; broadcast it"
            raise InternalError(f"store to {buffer.name}: {what}")
        if lanes == 1:
            if s.mask is not None:
                self.b.guarded(self.value(s.mask), lambda: self._scalar_store(s))
            else:
                self._scalar_store(s)
            return
        mask = self._active(s.mask, lanes, None)
        active = mask.text if mask else ""
        stored = self._to_store(s, mask)
        if buffer in self.registers.slots:
            self.registers.store(buffer, index, lanes, stored, active)
            return
        if mask is not None and _is_padding(buffer, index, mask):
            active = ""
        self._vector_store(buffer, index, lanes, stored, active, self.whole.get(s))

    def _to_store(self, s: Store, mask: Mask | None) -> str:
        """The value of a store, in the buffer's memory type.  An element that is only copied is not
        converted.
        """
        slots = self.registers.slots.get(s.buffer)
        if slots is not None and not slots.as_stored:
            return self.value(s.value, mask)
        source = moved(s)
        if source is not None and value_type(s.buffer.dtype) != memory_type(s.buffer.dtype):
            assert isinstance(s.value, Load)
            kept = self.registers.slots.get(source)
            if s.value.lanes > 1 and (kept is None or kept.as_stored):
                return self._stored(s.value, mask)
        return self.ops.to_memory(s.buffer.dtype, s.value.lanes, self.value(s.value, mask))

    def _scalar_store(self, s: Store) -> None:
        buffer, index = s.buffer, flat_index(s.indices)
        stored = self._to_store(s, None)
        if buffer in self.registers.slots:
            self.registers.store(buffer, index, 1, stored, "")
            return
        type_, where = memory_type(buffer.dtype), self.address(buffer, index)
        self.b.do(f"store {type_} {stored}, ptr {where}, align {buffer.dtype.bytes}")

    def _vector_store(
        self,
        buffer: Buffer,
        index: Expr,
        lanes: int,
        stored: str,
        active: str,
        streaming: int | None,
    ) -> None:
        """Store a vector.

        streaming: alignment in bytes of a streaming store; None for an ordinary store.
        """
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        type_ = vector(element, lanes)
        ramp = self.as_ramp(index)
        if ramp is not None and ramp[1] in (1, -1):
            start = 0
            if ramp[1] == -1:
                backwards = tuple(range(lanes - 1, -1, -1))
                stored = self.b.shuffle(type_, stored, "poison", backwards)
                active = active and self.b.shuffle(vector("i1", lanes), active, "poison", backwards)
                start = 1 - lanes
            pointer = self.address(buffer, ramp[0], start)
            if active:
                operands = f"ptr align {size} {pointer}, <{lanes} x i1> {active}"
                self.b.do(f"call void @llvm.masked.store({type_} {stored}, {operands})")
            elif streaming is not None:
                aligned = f"align {streaming}, {NONTEMPORAL}"
                self.b.do(f"store {type_} {stored}, ptr {pointer}, {aligned}")
                self.streams = True
            else:
                align = self.hooks.vector_align(size, lanes)
                self.b.do(f"store {type_} {stored}, ptr {pointer}, align {align}")
            return
        if ramp is not None:
            first = self.address(buffer, ramp[0])
            steps = self.value(Ramp(const(0), const(ramp[1]), lanes))
        else:
            first, steps = self.env.pointer(buffer), self.value(index)
        where = self.emit(f"getelementptr {element}, ptr {first}, <{lanes} x i64> {steps}")
        mask = active or "splat (i1 true)"
        self.b.do(
            f"call void @llvm.masked.scatter({type_} {stored}, <{lanes} x ptr> align {size} "
            f"{where}, <{lanes} x i1> {mask})"
        )


def _is_padding(buffer: Buffer, index: Expr, mask: Mask) -> bool:
    """Whether the inactive lanes of a masked store lie in the padding after an allocation.  If
    so, the store needs no mask.

    A core forwards a stored vector to a following load.  It does not forward a masked store: the
    load then waits until the store has reached the cache.
    """
    access = constant_access(index, mask.lanes)
    padded = buffer.scope in ALLOCATED and SCOPES[buffer.scope].is_addressed
    if not padded or mask.known is None or access is None or not is_constant(buffer):
        return False
    first, lanes = access
    count = element_count(buffer)
    inside = (first + lanes) * buffer.dtype.bytes <= buffer_bytes(buffer)
    return inside and all(on or first + i >= count for i, on in enumerate(mask.known))
