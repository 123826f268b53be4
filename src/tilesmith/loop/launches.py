"""Division of a kernel into launches of blocks of threads, in the order in which these run.

Each outermost loop over blocks or threads is a launch.  Code outside of such loops is run by one
thread, in a launch of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.ir.device import Device
from tilesmith.ir.expr import Const, Expr, Load, Var, const, free_vars, maximum, post_order
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES, Level
from tilesmith.ir.simplify import simplify
from tilesmith.support.errors import ScheduleError

from . import nodes
from .nodes import Buffer, Func, Stmt, seq
from .visit import children, exprs, own_exprs, walk

INDICES = "xyz"


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Blocks of threads.

    body: the code of each thread, with the loops over blocks and threads.
    blocks: number of blocks along x, y and z; expressions of the kernel's scalar parameters.
    threads: number of threads of a block along x, y and z.
    shared: the buffers in shared memory.
    """

    body: Stmt
    blocks: tuple[Expr, Expr, Expr]
    threads: tuple[int, int, int]
    shared: tuple[Buffer, ...]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return sum(_bytes(b) for b in self.shared)

    @property
    def own(self) -> tuple[Buffer, ...]:
        """The buffers in registers: buffers of each thread, and buffers that a warp's threads
        share.
        """
        made = (s.buffer for s in walk(self.body) if isinstance(s, nodes.Allocate))
        return tuple(dict.fromkeys(b for b in made if not SCOPES[b.scope].is_addressed))

    @property
    def registers(self) -> int:
        """Number of 32-bit registers that a thread needs for its buffers."""
        return sum(self.words(b) for b in self.own)

    def words(self, buffer: Buffer) -> int:
        """Number of 32-bit registers that a thread needs for one buffer."""
        sharing = self.threads[0] if SCOPES[buffer.scope].owner == "warp" else 1
        return -(-_bytes(buffer) // (4 * sharing))

    @property
    def waits(self) -> bool:
        """Whether threads of a block wait for each other."""
        return any(isinstance(s, (nodes.Barrier, nodes.WaveReduce)) for s in walk(self.body))


def launches(func: Func) -> tuple[Launch, ...]:
    """The launches of `func`, a kernel of any stage.

    Raises ScheduleError if a launch is inside a loop, depends on memory that another launch writes,
    or does something between its loops over blocks.
    """
    return tuple(_launch(body, func) for body in _parts(func.body, func))


def check_limits(func: Func, found: Sequence[Launch], device: Device) -> None:
    """Raises ScheduleError if a block of a launch exceeds a limit of `device`."""
    for launch in found:
        about = f"'{func.name}': a block of {' x '.join(map(str, launch.threads))} threads"
        threads = launch.threads[0] * launch.threads[1] * launch.threads[2]
        if threads > device.block_threads:
            raise ScheduleError(
                f"{about}: expected at most {device.block_threads} threads, found {threads}; "
                "split the loops that are bound to threads by smaller factors"
            )
        for index, n, most in zip(INDICES, launch.threads, device.block, strict=True):
            if n > most:
                raise ScheduleError(
                    f"{about}: expected at most {most} threads along threadIdx.{index}, found {n}"
                )
        if launch.shared_bytes > device.shared_bytes:
            parts = ", ".join(f"{b.name} {_bytes(b)}" for b in launch.shared)
            raise ScheduleError(
                f"{about}: expected at most {device.shared_bytes} bytes of shared memory, found "
                f"{launch.shared_bytes} ({parts}); use smaller tiles"
            )
        for s in walk(launch.body):
            if isinstance(s, nodes.WaveReduce) and s.lanes > device.shuffle_lanes:
                raise ScheduleError(
                    f"{about}: expected at most {device.shuffle_lanes} lanes that exchange values "
                    f"(Device.shuffle_lanes; 1: the device has no shuffles), found {s.lanes}; "
                    "bind with fewer lanes"
                )
        words = launch.registers
        if words > device.registers:
            parts = ", ".join(f"{b.name} {launch.words(b)}" for b in launch.own)
            raise ScheduleError(
                f"{about}: expected at most {device.registers} registers of a thread, found "
                f"{words} ({parts}); use smaller tiles, or scope 'stack'"
            )


def check_assertions(launch: Launch) -> None:
    """Raises ScheduleError if a thread may stop in a launch whose threads wait for each other."""
    asserted = next((s for s in walk(launch.body) if isinstance(s, nodes.Assert)), None)
    if asserted is not None and launch.waits:
        raise ScheduleError(
            "a thread can't stop where the others wait for it: expected "
            f"'{asserted.message}' to be found outside of blocks with shared memory"
        )


def changes_what_it_reads(launch: Launch) -> bool:
    """Whether a launch both reads and writes some buffer that all blocks share."""
    written = {s.buffer for s in walk(launch.body) if isinstance(s, nodes.Store)}
    read = {n.buffer for e in exprs(launch.body) for n in post_order(e) if isinstance(n, Load)}
    return any(not SCOPES[b.scope].owner for b in written & read if isinstance(b, Buffer))


def _bytes(buffer: Buffer) -> int:
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        assert isinstance(extent, (int, Const))  # the verifier has checked it
        size *= extent if isinstance(extent, int) else int(extent.value)
    return size


def is_launched(s: Stmt) -> bool:
    """Whether `s` contains a launch."""
    return any(isinstance(x, nodes.For) and LOOP_KINDS[x.kind].level for x in walk(s))


def _parts(s: Stmt, func: Func) -> list[Stmt]:
    """The bodies of the launches in `s`, each inside copies of the branches and lets around it."""
    if not is_launched(s) or (isinstance(s, nodes.For) and LOOP_KINDS[s.kind].level):
        return [] if isinstance(s, nodes.Seq) and not s.stmts else [s]
    if isinstance(s, nodes.Seq):
        return _sequence(s, func)
    if isinstance(s, nodes.Allocate):
        return _with_memory(s.buffer, _parts(s.body, func), func)
    if isinstance(s, nodes.LetStmt):
        _check_constant(s.value, func)
        return [replace(s, body=part) for part in _parts(s.body, func)]
    if isinstance(s, nodes.If):
        _check_constant(s.cond, func)
        bodies: list[Stmt] = [nodes.If(s.cond, part) for part in _parts(s.then, func)]
        rest = [] if s.otherwise is None else _parts(s.otherwise, func)
        return bodies + [nodes.If(~s.cond, part) for part in rest]
    assert isinstance(s, nodes.For)
    raise ScheduleError(
        f"'{func.name}': the loop {s.var.name} is around loops that are bound to blocks or "
        "threads; expected these outermost: reorder, or bind it too"
    )


def _with_memory(buffer: Buffer, parts: list[Stmt], func: Func) -> list[Stmt]:
    """Place the allocation of `buffer`, which was around the launch bodies `parts`.  If `buffer` is
    memory of a thread, the allocation moves into the only launch that uses `buffer`.  Other memory
    belongs to the kernel.

    Raises ScheduleError if several launches use one thread's memory.
    """
    if SCOPES[buffer.scope].owner != "thread":
        return parts
    using = [_uses(part, buffer) for part in parts]
    if sum(using) > 1:
        raise ScheduleError(
            f"'{func.name}': {buffer.name} is memory of a thread ({buffer.scope}), and "
            f"{sum(using)} launches use it; expected scope 'heap', or compute_at inside of one"
        )
    return [nodes.Allocate(buffer, p) if used else p for p, used in zip(parts, using, strict=True)]


def _uses(s: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(x, nodes.Store) and x.buffer is buffer for x in walk(s)) or any(
        isinstance(n, Load) and n.buffer is buffer for e in exprs(s) for n in post_order(e)
    )


def _sequence(s: nodes.Seq, func: Func) -> list[Stmt]:
    """The bodies of the launches in `s`.  Code between two launches, which one thread runs, is one
    body.
    """
    bodies: list[Stmt] = []
    alone: list[Stmt] = []
    for part in s.stmts:
        if is_launched(part):
            if alone:
                bodies.append(seq(*alone))
            alone = []
            bodies += _parts(part, func)
        else:
            alone.append(part)
    return bodies + ([seq(*alone)] if alone else [])


def _check_constant(e: Expr, func: Func) -> None:
    """Raises ScheduleError if a launch may change the value of `e`, on which later launches
    depend.
    """
    written = {s.buffer for s in walk(func.body) if isinstance(s, nodes.Store)}
    for node in post_order(e):
        if isinstance(node, Load) and node.buffer in written:
            raise ScheduleError(
                f"'{func.name}': a launch depends on the memory of {node.buffer.name}, which "
                "another one writes; bind a loop around the condition"
            )


def _launch(body: Stmt, func: Func) -> Launch:
    parameters = {p for p in func.params if isinstance(p, Var)}
    blocks: dict[str, Expr] = dict.fromkeys(INDICES, const(1))
    threads = dict.fromkeys(INDICES, 1)
    shared: dict[Buffer, None] = {}
    for s in walk(body):
        if isinstance(s, nodes.Allocate) and SCOPES[s.buffer.scope].owner == "block":
            shared[s.buffer] = None
        level: Level = LOOP_KINDS[s.kind].level if isinstance(s, nodes.For) else ""
        if not level:
            continue
        assert isinstance(s, nodes.For)
        index = s.kind[-1]
        if level == "thread":
            assert isinstance(s.extent, Const)  # the verifier has checked it
            threads[index] = max(threads[index], int(s.extent.value))
            continue
        if not free_vars(s.extent) <= parameters:
            raise ScheduleError(
                f"'{func.name}': expected a number of blocks along {s.kind} that the kernel's "
                f"arguments determine, found {s.extent}"
            )
        _check_between(s.body, func)
        blocks[index] = simplify(maximum(blocks[index], s.extent))
    x, y, z = (blocks[i] for i in INDICES)
    return Launch(body, (x, y, z), (threads["x"], threads["y"], threads["z"]), tuple(shared))


def _check_between(s: Stmt, func: Func) -> None:
    """Raises ScheduleError if `s` has effects outside of its loops over blocks and threads."""
    if not any(isinstance(x, nodes.For) and LOOP_KINDS[x.kind].level == "block" for x in walk(s)):
        return
    while not isinstance(s, nodes.For):
        parts = children(s)
        if len(parts) != 1 or any(isinstance(n, Load) for e in own_exprs(s) for n in post_order(e)):
            raise ScheduleError(
                f"'{func.name}': something is computed between two loops over blocks; expected "
                "compute_at inside the innermost one"
            )
        s = parts[0]
