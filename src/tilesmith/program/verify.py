"""The verifier of main programs: a check that no step accesses bytes beyond a memory.

It can't check how kernels access the memory of their arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tilesmith.ir.sizes import LARGEST
from tilesmith.support.errors import VerifyError

from . import nodes
from .main import Main, TensorSpec
from .nodes import Arg, Node, Step
from .text import head
from .visit import measurements_of, own_args, slots_of

SLOTS = 1 << 16
"""Upper bound on the slots of a program."""

VALUES = 1 << 24
"""Upper bound on the numbered values of one kind in a program."""

DEPTH = 64
"""Upper bound on the nesting of branches and loops in a file."""

_RANK = 16
_BYTES = 1 << 46
"""An address space larger than that of any machine."""
_LARGEST_COUNT = (1 << 63) - 1
"""The number of iterations of a loop that ends only by its condition."""


def verify(
    main: Main,
    kernels: Collection[str] | None = None,
    memory: int = _BYTES,
    depth: int | None = None,
) -> None:
    """Raises VerifyError for a main program that is not valid.

    kernels: symbols of the functions that have code; None to accept all symbols.
    memory: upper bound on the bytes of one memory.
    depth: upper bound on the nesting of branches and loops; None for no bound.
    """
    for spec in (*main.inputs, *main.outputs):
        _check_spec(spec, memory)
    for symbol in main.symbols:
        try:
            _ = symbol.sizes
        except ValueError as e:
            raise VerifyError(f"symbol {symbol.name!r}: {e}") from None
    _check_number(main.arena_bytes, memory, "arena_bytes")
    _check_number(main.scratch_bytes, memory, "scratch_bytes")
    _check_number(main.constant_bytes, _BYTES, "constant_bytes")
    _check_number(main.size_values, VALUES, "size_values")
    for o, i in main.in_place:
        _check_number(o, len(main.outputs) - 1, "number of an output")
        _check_number(i, len(main.inputs) - 1, "number of an input")
        output, inside = main.outputs[o], main.inputs[i]
        if output.type != inside.type or output.dtype.is_host:
            raise VerifyError(f"output {output} does not fit the memory of {inside}")
    if main.parts:
        _check_parts(main)
        return
    slots = slots_of(main.steps)
    _Verifier(main, kernels, memory, depth, slots).steps(main.steps, _Scope())
    _check_grown(main.steps, frozenset())
    _check_measured(main)


def _check_spec(spec: TensorSpec, memory: int) -> None:
    if len(spec.shape) > _RANK:
        raise VerifyError(f"{spec.name!r} has more than {_RANK} dimensions")
    for extent in spec.shape:
        if isinstance(extent, int):
            _check_number(extent, _BYTES, f"an extent of {spec.name!r}")
    if spec.is_static and spec.bytes > memory:
        raise VerifyError(f"{spec.name!r} needs {spec.bytes} bytes, the machine has {memory}")


def _check_number(value: int, limit: int, what: str) -> None:
    if not 0 <= value <= limit:
        raise VerifyError(f"{what}: expected a number from 0 to {limit}, found {value}")


def _check_parts(main: Main) -> None:
    """Raises VerifyError unless every part is called once, in order, with values that exist."""
    known, number = {*range(len(main.inputs))}, 0
    for step in main.steps:
        made: Sequence[int] = ()
        fits = step is not main.steps[-1]
        match step:
            case nodes.PartCall():
                read, made = step.inputs, step.outputs
                fits, number = fits and step.part == number, number + 1
            case nodes.Transfer():
                read, made = (step.source,), (step.to,)
            case nodes.Results():
                read = step.values
                fits = step is main.steps[-1] and len(read) == len(main.outputs)
            case _:
                raise VerifyError(f"a program of parts has no such step: {head(step)}")
        if not fits or not known.issuperset(read):
            raise VerifyError(f"the steps of the program do not fit its parts: {head(step)}")
        for value in made:
            _check_number(value, VALUES, "number of a value")
        known.update(made)
    if number != main.parts or not main.steps:
        raise VerifyError(
            f"the steps of the program do not fit its parts: {number} calls of {main.parts} parts"
        )


def _check_measured(main: Main) -> None:
    """Raises VerifyError unless the numbers of measured extents follow the numbers of the inputs'
    extents.
    """
    places = sorted({(m.first, len(m.extents)) for m in measurements_of(main.steps)})
    end = len(main.symbols)
    for first, count in places:
        if first != end:
            raise VerifyError(f"extents are measured from number {first} on, expected {end}")
        end += count


def _check_grown(steps: Iterable[Step], grown: frozenset[int]) -> frozenset[int]:
    """The slots that have memory after `steps`, if the slots `grown` have memory before them.

    Raises VerifyError for a step that uses a slot without memory.  The body of a loop counts as if
    it ran at least once.
    """
    for step in steps:
        late: tuple[Arg | None, ...] = ()  # read after the body of a loop
        if isinstance(step, nodes.Repeat):
            late = (step.again, *(c.following for c in step.carried))
        _check_used(step, (a for a in own_args(step) if a not in late), grown)
        match step:
            case nodes.Grow():
                pair = step.target is not None
                grown = grown.union(range(step.slot, step.slot + 1 + pair))
            case nodes.Branch():
                then, otherwise = (_check_grown(s, grown) for s in (step.then, step.otherwise))
                grown = then & otherwise
            case nodes.Repeat():
                grown = _check_grown(step.body, grown)
                _check_used(step, late, grown)
    return grown


def _check_used(step: Step, args: Iterable[Arg | None], grown: frozenset[int]) -> None:
    for arg in args:
        if arg is not None and arg.slot is not None and arg.slot not in grown:
            raise VerifyError(f"slot {arg.slot} is used before it has memory: {head(step)}")


@dataclass(frozen=True, slots=True)
class _Scope:
    """The pointers that steps of a block may use.

    pointers: numbers of pointers.
    targets: numbers of pointers to one of two alternating slots.
    depth: number of branches and loops around the block.
    """

    pointers: frozenset[int] = frozenset()
    targets: frozenset[int] = frozenset()
    depth: int = 0

    def inside(self, pointers: Iterable[int] = (), targets: Iterable[int] = ()) -> _Scope:
        return _Scope(self.pointers.union(pointers), self.targets.union(targets), self.depth + 1)


@dataclass(frozen=True, slots=True)
class _Verifier:
    """The verifier of steps.

    slots: number of slots in the program.
    """

    main: Main
    kernels: Collection[str] | None
    memory: int
    depth: int | None
    slots: int

    def steps(self, steps: Iterable[Step], scope: _Scope) -> None:
        if self.depth is not None and scope.depth > self.depth:
            raise VerifyError(f"control flow is nested more than {self.depth} deep")
        for step in steps:
            self.step(step, scope)
            # After the loop, steps may read its results through these pointers.
            if isinstance(step, nodes.Repeat):
                moved = {c.pointer for c in step.carried if c.bytes is None}
                scope = _Scope(scope.pointers | moved, scope.targets, scope.depth)

    def step(self, step: Step, scope: _Scope) -> None:
        if not isinstance(step, nodes.Repeat):  # `loop` checks a loop's arguments
            for arg in own_args(step):
                self.arg(arg, scope, step)
        match step:
            case nodes.KernelCall():
                self.function(step.symbol)
                self.reached(step.workspace, 0, step)
            case nodes.HostCall():
                for array in (*step.inputs, *step.outputs):
                    self.array(array, step)
                self.written(step, *(a.place for a in step.outputs))
            case nodes.Copy():
                self.apart(step, step.source, step.to, self.size(step.bytes, step))
                self.written(step, step.to)
            case nodes.Branch():
                self.reached(step.condition, 1, step)
                self.steps(step.then, scope.inside())
                self.steps(step.otherwise, scope.inside())
            case nodes.Repeat():
                self.loop(step, scope)
            case nodes.Measurement():
                self.function(step.sizes)
                self.reached(step.source, 8 * len(step.extents), step)
                _check_number(step.first, VALUES, "number of an extent")
                for e in step.extents:
                    _check_number(e.low, LARGEST, f"{e.name!r}")
                    self.size(e.high, step)
            case nodes.Grow():
                _check_number(step.slot, SLOTS, "number of a slot")
                self.size(step.bytes, step)
                self.size(step.keep, step)
                if step.target is not None and step.target not in scope.targets:
                    raise self.wrong(
                        f"memory grows for pointer {step.target} outside of its loop", step
                    )
            case nodes.Store():
                self.reached(step.to, 8 * len(step.numbers), step)
                self.written(step, step.to)
                self.sizes(step.numbers, step)
            case nodes.Report():
                _check_number(step.to, len(self.main.outputs), "number of an output")
                for output, shape in step.shapes:
                    _check_number(output, len(self.main.outputs) - 1, "number of an output")
                    self.sizes(shape, step)
            case _:
                raise self.wrong("only a program of parts has this step", step)

    def loop(self, step: nodes.Repeat, scope: _Scope) -> None:
        own = [s.pointer for s in step.slices]
        own += [p for c in step.carried for p in (c.pointer, c.target) if p is not None]
        for pointer in own:
            _check_number(pointer, (1 << 31) - 1, "number of a pointer")
        if len({*own}) != len(own) or not scope.pointers.isdisjoint(own):
            raise self.wrong("two loops move the same pointer", step)
        turning = (c.target for c in step.carried if c.slot is not None)
        inside = scope.inside(own, (t for t in turning if t is not None))
        if isinstance(step.count, int):
            _check_number(step.count, _LARGEST_COUNT, "number of iterations")
        elif step.count.kind == "extent":
            self.size(step.count, step)
        else:
            self.outer(step.count, 8, scope, step)
        if (step.first is None) != (step.again is None):
            raise self.wrong("a loop has half of a condition", step)
        self.outer(step.number, 8, scope, step, is_written=True)
        self.outer(step.ran, 8, scope, step, is_written=True)
        self.outer(step.first, 1, scope, step)
        self.outer(step.again, 1, inside, step)
        for s in step.slices:
            size = self.size(s.stride, s)
            self.slot(s.slot, 1, s)
            count = step.count if isinstance(step.count, int) and s.slot is None else 0
            self.outer(s.first, size * count, scope, s)
        for c in step.carried:
            self.carried(c, scope, inside)
        self.steps(step.body, inside)

    def carried(self, c: nodes.Carried, scope: _Scope, inside: _Scope) -> None:
        if (c.target is None) != (c.other is None and c.slot is None):
            raise self.wrong("a carried value has half of two buffers", c)
        if c.other is not None and c.end is None:
            raise self.wrong("a buffer takes turns with no other", c)
        size = 0 if c.bytes is None else self.size(c.bytes, c)
        self.slot(c.slot, 2, c)
        self.outer(c.first, size, scope, c)
        self.outer(c.following, size, inside, c)
        self.outer(c.end, size, scope, c, is_written=True)
        self.outer(c.other, size, scope, c, is_written=True)
        if c.end is not None and c.other is not None:
            self.apart(c, c.end, c.other, size)

    def outer(
        self, arg: Arg | None, size: int, scope: _Scope, node: Node, is_written: bool = False
    ) -> None:
        """Checks an argument of a loop or of one of its declarations.  The argument must be memory
        of at least `size` bytes.

        is_written: whether the loop writes to this memory.
        """
        if arg is not None:
            self.arg(arg, scope, node)
            self.reached(arg, size, node)
            if is_written:
                self.written(node, arg)

    def function(self, symbol: str) -> None:
        if self.kernels is not None and symbol not in self.kernels:
            raise VerifyError(f"the function {symbol!r} has no code")

    def array(self, array: nodes.HostArray, step: Step) -> None:
        self.sizes(array.shape, step)
        size, is_host = array.dtype.bytes, array.dtype.is_host
        for extent in array.shape:
            size *= extent if isinstance(extent, int) and not is_host else 1
        is_static = is_host or not array.extents
        self.reached(array.place, size if is_static else 0, step)

    def arg(self, arg: Arg, scope: _Scope, node: Node) -> None:
        """Checks that the numbers, the pointer and the slot of an argument exist."""
        kind, limit, room = arg.kind, 0, 0
        match kind:
            case "input" | "output":
                specs = self.main.inputs if kind == "input" else self.main.outputs
                limit = len(specs) - 1
                if 0 <= arg.index <= limit and specs[arg.index].is_static:
                    room = specs[arg.index].bytes
            case "constant":
                limit = self.main.constant_bytes
            case "arena":
                limit = self.memory if arg.slot is not None else self.main.arena_bytes
            case "place":
                limit, room = self.main.size_values - 1, self.memory
            case "extent":
                limit = self.main.size_values - 1
            case "scalar":
                limit = 1 << 62
            case "pointer":
                if arg.index not in scope.pointers:
                    raise self.wrong(f"pointer {arg.index} is used outside of its loop", node)
                limit, room = 1 << 31, self.memory
        if not (0 <= arg.index <= limit and 0 <= arg.offset <= room):
            raise self.wrong(
                f"expected a number from 0 to {limit} and an offset from 0 to {room}, found "
                f"{kind} {arg.index} and {arg.offset}",
                node,
            )
        if arg.slot is not None and kind not in ("arena", "place"):
            raise self.wrong(f"a {kind} lies in no slot", node)
        self.slot(arg.slot, 1, node)

    def slot(self, slot: int | None, count: int, node: Node) -> None:
        if slot is not None and not 0 <= slot <= self.slots - count:
            raise self.wrong(f"nothing grows in slot {slot}", node)

    def size(self, size: int | Arg, node: Node) -> int:
        """Checks a size in bytes and returns it; 0 for an "extent", whose value is not known."""
        if isinstance(size, int):
            if not 0 <= size <= self.memory:
                raise self.wrong(f"expected a size from 0 to {self.memory}, found {size}", node)
            return size
        self.arg(size, _Scope(), node)
        if size.kind != "extent":
            raise self.wrong(f"a size is of kind {size.kind!r}", node)
        return 0

    def sizes(self, sizes: Iterable[int | Arg], node: Node) -> None:
        for size in sizes:
            self.size(size, node)

    def reached(self, arg: Arg, size: int, node: Node) -> None:
        """Checks that an argument is memory and, if the memory's size is known, has at least `size`
        bytes.
        """
        if arg.kind in ("scalar", "extent"):
            raise self.wrong(f"expected memory, found {arg.kind} {arg.index}", node)
        end, start = self.memory, arg.offset
        if arg.kind in ("input", "output"):
            spec = (self.main.inputs if arg.kind == "input" else self.main.outputs)[arg.index]
            end = spec.bytes if spec.is_static else self.memory
        elif arg.kind == "constant":
            start, end = arg.index, self.main.constant_bytes
        elif arg.kind == "arena" and arg.slot is None:
            start, end = arg.index, self.main.arena_bytes
        if start + size > end:
            raise self.wrong(f"bytes {start} to {start + size} lie beyond the end at {end}", node)

    def written(self, node: Node, *args: Arg) -> None:
        for arg in args:
            if arg.kind == "constant":
                raise self.wrong("a constant is written", node)

    def apart(self, node: Node, first: Arg, second: Arg, size: int) -> None:
        """Checks that two places of `size` bytes each are equal or do not overlap."""
        self.reached(first, size, node)
        self.reached(second, size, node)
        if first.kind != second.kind or first.slot != second.slot or first == second:
            return
        is_offset = first.kind in ("arena", "constant")
        if not is_offset and first.index != second.index:
            return
        a, b = ((x.index if is_offset else x.offset) for x in (first, second))
        if abs(a - b) < size:
            raise self.wrong(f"the {size} bytes at {a} and at {b} overlap", node)

    def wrong(self, why: str, node: Node) -> VerifyError:
        return VerifyError(f"{why}: {head(node)}")
