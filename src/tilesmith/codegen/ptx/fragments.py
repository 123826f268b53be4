"""Fragments: tiles in the registers of a warp's threads, and the instructions on them that all of
these threads run together.

In loop IR, the first thread of a warp does all work on a fragment.  The generated code divides this
work among all threads of the warp.  A fragment consists of tiles of 16 x 8 elements, one after the
other.  Thread t of a warp holds four elements of each tile, as `mma` instructions require:

    row t // 4 and row t // 4 + 8, columns t % 4 * 2 and t % 4 * 2 + 1

So element n of thread t is element n // 2 * 64 + 2 * t + n % 2 of the tile.  Other code may read
this element only in thread t.
"""

from __future__ import annotations

from tilesmith.codegen.builder import Builder
from tilesmith.codegen.indices import flat_index
from tilesmith.codegen.llvm_text import memory_type
from tilesmith.codegen.statements import Statements
from tilesmith.codegen.tensor_code import Value
from tilesmith.ir.affine import affine_form
from tilesmith.ir.expr import Const, Expr, Load, Ramp, Var, const
from tilesmith.ir.lane_offsets import rows_of
from tilesmith.ir.loop_tables import SCOPES, THREADS
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic, called
from tilesmith.loop.launches import Launch
from tilesmith.loop.nodes import Buffer, For, Stmt, Store
from tilesmith.loop.passes.thread_registers import TILE, fill_of
from tilesmith.loop.passes.workspace import element_count
from tilesmith.loop.visit import walk
from tilesmith.perf.warps import WARP, WORD
from tilesmith.support.errors import ScheduleError

_PART = TILE // WARP
_HALF = TILE // 2


class Fragments:
    """Writer of the statements on fragments in one launch.  A slot on the stack holds a thread's
    elements of one tile.

    Methods that return a bool write the statement only if it works on tiles.  They return whether
    they wrote it.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._slots: dict[Buffer, list[str]] = {}
        self._numbers: set[Var] = set()  # loop variables that are thread numbers in a warp

    def of_warp(self, f: Statements, s: For) -> bool:
        """Write the loop `s` if it is work on fragments, which loop IR gives to the first thread of
        a warp.  In the generated code, all threads of the warp run the loop.
        """
        is_first = s.kind == THREADS[0] and isinstance(s.extent, Const) and s.extent.value == 1
        if not is_first or not any(isinstance(x, Store) and _is_fragment(x) for x in walk(s)):
            return False
        if self._launch.threads[0] != WARP:
            raise ScheduleError(
                f"a block of {' x '.join(map(str, self._launch.threads))} threads holds fragments: "
                f"expected {WARP} threads along {THREADS[0]}, one warp"
            )
        with f.b.nested():
            f.env.bind(s.var, "0")
            self._check(s.body)
            f.statement(s.body)
        return True

    def binds_number(self, v: Var, s: For) -> None:
        """Record that `v`, the variable of a loop over threads, is the thread's number in its
        warp.
        """
        starts = isinstance(s.start, Const) and s.start.value == 0
        if s.kind == THREADS[0] and starts:
            self._numbers.add(v)

    def _check(self, body: Stmt) -> None:
        """Raises ScheduleError unless all stores in `body` can be divided among the threads of a
        warp.
        """
        for s in walk(body):
            if not isinstance(s, Store):
                continue
            is_known = isinstance(s.value, Const) or called(s.value) is not None
            if not (is_known and _is_fragment(s)):
                raise ScheduleError(
                    f"{s.buffer.name} = {s.value} is computed for a fragment: expected an "
                    "intrinsic that a warp runs, whole tiles of it (no tails), or a constant"
                )

    def fills(self, f: Statements, s: For) -> bool:
        """Write `s` if it sets the elements of a tile to one constant."""
        store = fill_of(s)
        if store is None:
            return False
        loops = {x.var: x.extent for x in walk(s) if isinstance(x, For)}
        terms, first = affine_form(flat_index(store.indices))
        strides = sorted(
            (n, loops[v]) for v, n in terms.items() if isinstance(v, Var) and v in loops
        )
        expected = 1
        for stride, extent in strides:
            assert isinstance(extent, Const)
            expected *= int(extent.value) if stride == expected else 0
        if expected != TILE or len(terms) != len(strides):
            return False
        pointer = self._tile_of(store.buffer, const(first), TILE)
        whole = f.b.splat(memory_type(store.buffer.dtype), f.value(store.value), _PART)
        type_ = memory_type(store.buffer.dtype, _PART)
        f.b.do(f"store {type_} {whole}, ptr {pointer}, align 16")
        return True

    def allocate(self, b: Builder, buffer: Buffer) -> None:
        """Allocate the slots of a fragment."""
        size = element_count(buffer)
        if size % TILE or buffer.dtype.bytes != WORD:
            raise ScheduleError(
                f"{buffer.name} is a fragment of {size} elements of {buffer.dtype}: expected tiles "
                "of 16 x 8 elements of 4 bytes, one after the other (see transform_layout)"
            )
        type_ = memory_type(buffer.dtype, _PART)
        self._slots[buffer] = [b.alloca("part", type_, align=16) for _ in range(size // TILE)]

    def _tile_of(self, buffer: Buffer, index: Expr, lanes: int) -> str:
        """The slot of a whole tile."""
        first = index.base if isinstance(index, Ramp) else index
        if lanes != TILE or not isinstance(first, Const) or int(first.value) % TILE:
            raise ScheduleError(
                f"{buffer.name} is a fragment, and {lanes} elements from {first} on are used: "
                "expected a tile of 16 x 8 elements, by constant numbers once loops are unrolled; "
                "let tiles be neighbours in its memory with transform_layout"
            )
        return self._slots[buffer][int(first.value) // TILE]

    def store(self, f: Statements, s: Store) -> bool:
        """Write `s` if it stores a whole tile."""
        if not _is_fragment(s):
            return False
        pointer = self._tile_of(s.buffer, flat_index(s.indices), s.value.lanes)
        type_ = memory_type(s.buffer.dtype, _PART)
        f.b.do(f"store {type_} {f.value(s.value)}, ptr {pointer}, align 16")
        return True

    def part(self, b: Builder, e: Expr) -> Value | None:
        """This thread's elements of a tile; None if `e` is not in a fragment (see `Hooks.part`)."""
        if not isinstance(e, Load) or e.buffer not in self._slots:
            return None
        assert isinstance(e.buffer, Buffer)
        pointer = self._tile_of(e.buffer, flat_index(e.indices), e.lanes)
        type_ = memory_type(e.dtype, _PART)
        return Value(type_, b.emit(f"load {type_}, ptr {pointer}, align 16"))

    def element(self, b: Builder, buffer: Buffer, index: Expr) -> str | None:
        """An element that this thread holds; None if `buffer` is not a fragment (see
        `Hooks.element`).
        """
        if buffer not in self._slots:
            return None
        terms, first = affine_form(index)
        (number,) = terms if len(terms) == 1 else (None,)
        if number not in self._numbers or list(terms.values()) != [2] or first % _HALF > 1:
            raise ScheduleError(
                f"{buffer.name} is a fragment, and {buffer.name}[{index}] is read: expected that "
                f"thread t reads row t // 4 or t // 4 + 8, and column t % 4 * 2 or t % 4 * 2 + 1, "
                f"of a tile, with t bound to {THREADS[0]}"
            )
        tile, rest = divmod(first, TILE)
        type_ = memory_type(buffer.dtype, _PART)
        held = b.emit(f"load {type_}, ptr {self._slots[buffer][tile]}, align 16")
        slot = rest // _HALF * 2 + rest % _HALF
        return b.emit(f"extractelement {type_} {held}, i32 {slot}")


def check_operand(intrinsic: TensorIntrinsic, operand: Operand, e: Load) -> None:
    """Raise ScheduleError unless threads can load the operand in 32-bit words (see
    `Hooks.check_operand`).
    """
    rows = rows_of(e.indices[0])
    if intrinsic.threads > 1 and rows is not None:
        terms, first = affine_form(rows.first)
        word = WORD // e.dtype.bytes
        shared = isinstance(e.buffer, Buffer) and SCOPES[e.buffer.scope].owner == "block"
        if not shared or any(n % word for n in (*terms.values(), first, rows.distance)):
            raise ScheduleError(
                f"{intrinsic.name}: operand {operand} is {e.buffer.name} from {rows.first} on, "
                f"rows {rows.distance} apart: expected shared memory, and rows that begin at "
                f"multiples of {word} elements"
            )


def _is_fragment(s: Store) -> bool:
    return SCOPES[s.buffer.scope].owner == "warp"
