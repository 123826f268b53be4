"""The steps of a program as JSON values, in the manifest of a `.tsm` file.

A reader trusts nothing: it checks every place, and that every pointer belongs to a loop around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilesmith.ir.dtypes import by_name
from tilesmith.ir.sizes import LARGEST
from tilesmith.program import nodes as kinds
from tilesmith.program.nodes import Arg, HostArray, PartCall, Results, Step, Transfer
from tilesmith.support.errors import InternalError

Room: TypeAlias = Callable[[str, int], int]
"""The largest byte offset into an input or output, by kind and number."""

SLOTS = 1 << 16
"""Most pieces of memory that a program may grow."""

DEPTH = 64
"""Most branches and loops inside one another."""


def steps_out(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """`steps` as JSON values."""
    return [_step_out(s) for s in steps]


def _step_out(step: Step) -> dict[str, Any]:
    match step:
        case kinds.KernelCall():
            return {
                "symbol": step.symbol, "label": step.label, "args": _places_out(step.args),
                "workspace": _place_out(step.workspace), "messages": list(step.messages),
                "sources": list(step.sources),
            }  # fmt: skip
        case kinds.HostCall():
            return {
                "host": step.function, "settings": step.settings, "operator": step.operator,
                "label": step.label, "fallback": step.is_fallback,
                "inputs": [_array_out(a) for a in step.inputs],
                "outputs": [_array_out(a) for a in step.outputs],
            }  # fmt: skip
        case kinds.Copy():
            return {"copy": _size_out(step.bytes), "places": _places_out((step.source, step.to))}
        case kinds.Branch():
            return {
                "if": _place_out(step.condition),
                "then": steps_out(step.then),
                "else": steps_out(step.otherwise),
            }
        case kinds.Repeat():
            return {
                "loop": _place_out(step.count) if isinstance(step.count, Arg) else step.count,
                "body": steps_out(step.body),
                "slices": [
                    [s.pointer, _place_out(s.first), _size_out(s.stride), s.backward, s.slot]
                    for s in step.slices
                ],
                "carried": [
                    [c.pointer, *_places_out((c.first, c.following, c.end)), _size_out(c.bytes),
                     c.target, _place_out(c.other), c.slot]
                    for c in step.carried
                ],
                "number": _place_out(step.number),
                "first": _place_out(step.first),
                "again": _place_out(step.again),
                "ran": _place_out(step.ran),
            }  # fmt: skip
        case kinds.Measurement():
            return {
                "measure": _place_out(step.source),
                "first": step.first,
                "extents": [[e.name, e.low, _size_out(e.high)] for e in step.extents],
                "sizes": step.sizes,
                "label": step.label,
            }
        case kinds.Grow():
            return {
                "grow": step.slot, "bytes": _size_out(step.bytes), "for_threads": step.for_threads,
                "target": step.target, "keep": _size_out(step.keep),
            }  # fmt: skip
        case kinds.Store():
            return {"store": _place_out(step.to), "numbers": [_size_out(n) for n in step.numbers]}
        case kinds.Report():
            shapes = [[i, [_size_out(d) for d in shape]] for i, shape in step.shapes]
            return {"report": step.to, "shapes": shapes}
        case _:
            raise InternalError(f"a main function has no {type(step).__name__}")


def part_steps_out(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Steps of a program that consists of parts as JSON values."""
    found: list[dict[str, Any]] = []
    for s in steps:
        match s:
            case PartCall():
                found.append({"part": s.part, "inputs": [*s.inputs], "outputs": [*s.outputs]})
            case Transfer():
                found.append({"transfer": s.to_device, "values": [s.source, s.to]})
            case Results():
                found.append({"results": [*s.values]})
    return found


def part_steps_in(found: Any, parts: int) -> tuple[Step, ...]:
    """The steps of a program of so many parts.

    Raises ValueError, KeyError or TypeError for anything that `part_steps_out` does not write.
    """
    steps: list[Step] = []
    for s in found:
        if "part" in s:
            inputs, outputs = (tuple(map(_value, s[k])) for k in ("inputs", "outputs"))
            steps.append(PartCall(number(s["part"], parts - 1), inputs, outputs))
        elif "transfer" in s:
            source, to = map(_value, s["values"])
            steps.append(Transfer(source, to, bool(s["transfer"])))
        else:
            steps.append(Results(tuple(map(_value, s["results"]))))
    return tuple(steps)


def _value(found: Any) -> int:
    return number(found, 1 << 24)


def _array_out(array: HostArray) -> list[Any]:
    return [array.dtype, _place_out(array.place), [_size_out(d) for d in array.shape]]


def _place_out(arg: Arg | None) -> list[Any] | None:
    if arg is None:
        return None
    return [arg.kind, arg.index, arg.offset, *([] if arg.slot is None else [arg.slot])]


def _size_out(size: int | Arg | None) -> Any:
    return _place_out(size) if isinstance(size, Arg) else size


def _places_out(args: Sequence[Arg | None]) -> list[Any]:
    return [_place_out(a) for a in args]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads steps and checks them.

    limits: the largest index of each kind of place.
    room: the largest offset into an input or output.
    symbols: the kernels that there are.
    memory: the most bytes of one value.
    """

    limits: Mapping[str, int]
    room: Room
    symbols: Mapping[str, Any]
    memory: int

    def steps(
        self, found: Any, pointers: frozenset[int] = frozenset(), depth: int = 0
    ) -> tuple[Step, ...]:
        """The steps that JSON values describe.

        Raises ValueError, KeyError or TypeError for anything that `steps_out` does not write.
        """
        if depth > DEPTH:
            raise ValueError(f"control flow is nested more than {DEPTH} deep")
        steps: list[Step] = []
        for s in found:
            steps.append(step := self._step(s, pointers, depth))
            if isinstance(step, kinds.Repeat):  # behind it, these say where results lie
                pointers |= {c.pointer for c in step.carried if c.bytes is None}
        return tuple(steps)

    def _step(self, s: dict[str, Any], known: frozenset[int], depth: int) -> Step:
        if "symbol" in s:
            if s["symbol"] not in self.symbols:
                raise ValueError(f"the kernel {s['symbol']!r} has no code")
            args = tuple(self._place(a, known) for a in s["args"])
            messages, sources = (tuple(map(text, s[k])) for k in ("messages", "sources"))
            work = self._place(s["workspace"], known)
            return kinds.KernelCall(s["symbol"], args, text(s["label"]), work, messages, sources)
        if "host" in s:
            arrays = (tuple(self._array(a, known) for a in s[k]) for k in ("inputs", "outputs"))
            function, settings, operator, label = (
                text(s[k]) for k in ("host", "settings", "operator", "label")
            )
            inputs, outputs = arrays
            return kinds.HostCall(
                function, settings, operator, label, inputs, outputs, bool(s["fallback"])
            )
        if "copy" in s:
            source, to = (self._place(p, known) for p in s["places"])
            return kinds.Copy(source, to, self._size(s["copy"]))
        if "if" in s:
            branches = (self.steps(s[k], known, depth + 1) for k in ("then", "else"))
            return kinds.Branch(self._place(s["if"], known), *branches)
        if "measure" in s:
            return self._measurement(s, known)
        if "grow" in s:
            slot = number(s["grow"], SLOTS)
            target = s["target"]
            if target is not None and target not in known:
                raise ValueError(f"memory grows for pointer {target!r} outside of its loop")
            sizes = self._size(s["bytes"]), self._size(s["keep"])
            return kinds.Grow(slot, sizes[0], bool(s["for_threads"]), target, sizes[1])
        if "store" in s:
            return kinds.Store(self._place(s["store"], known), tuple(map(self._size, s["numbers"])))
        if "report" in s:
            outputs = self.limits["output"]
            shapes = (
                (number(i, outputs), tuple(map(self._size, shape))) for i, shape in s["shapes"]
            )
            return kinds.Report(number(s["report"], outputs + 1), tuple(shapes))
        return self._loop(s, known, depth)

    def _measurement(self, s: dict[str, Any], known: frozenset[int]) -> kinds.Measurement:
        if s["sizes"] not in self.symbols:
            raise ValueError(f"the function {s['sizes']!r} has no code")
        extents = tuple(
            kinds.Extent(text(name), number(low, LARGEST), self._size(high))
            for name, low, high in s["extents"]
        )
        first = number(s["first"], 1 << 24)
        source = self._place(s["measure"], known)
        return kinds.Measurement(source, first, extents, s["sizes"], text(s["label"]))

    def _loop(self, s: dict[str, Any], known: frozenset[int], depth: int) -> kinds.Repeat:
        own = [p for p, *_ in s["slices"]]
        own += [p for c in s["carried"] for p in (c[0], c[5]) if p is not None]
        inside = known.union(number(p, 1 << 31) for p in own)
        if len(inside) != len(known) + len(own):
            raise ValueError("two loops move the same pointer")
        slices = tuple(
            kinds.Slice(
                p, self._place(first, known), self._size(stride), bool(backward), _slot(slot)
            )
            for p, first, stride, backward, slot in s["slices"]
        )
        carried = tuple(
            kinds.Carried(
                p,
                self._place(first, known),
                self._place(following, inside),
                None if end is None else self._place(end, known),
                None if size is None else self._size(size),
                target,
                None if other is None else self._place(other, known),
                _slot(slot),
            )
            for p, first, following, end, size, target, other, slot in s["carried"]
        )
        if any((c.target is None) != (c.other is None and c.slot is None) for c in carried):
            raise ValueError("a carried value has half of two buffers")
        at, first, again, ran = (
            None if s[k] is None else self._place(s[k], (k == "again" and inside) or known)
            for k in ("number", "first", "again", "ran")
        )
        if (first is None) != (again is None):
            raise ValueError("a loop has half of a condition")
        count = s["loop"]
        count = self._place(count, known) if isinstance(count, list) else number(count, 1 << 62)
        body = self.steps(s["body"], inside, depth + 1)
        return kinds.Repeat(count, body, slices, carried, at, first, again, ran)

    def _array(self, found: Any, known: frozenset[int]) -> HostArray:
        dtype, place, shape = found
        if by_name(text(dtype)) is None:
            raise ValueError(f"{dtype!r} is no element type")
        return HostArray(dtype, self._place(place, known), tuple(map(self._size, shape)))

    def _size(self, found: Any) -> int | Arg:
        """A number of bytes."""
        if not isinstance(found, list):
            return number(found, self.memory)
        size = self._place(found, frozenset())
        if size.kind != "extent":
            raise ValueError(f"a size is {size.kind!r}")
        return size

    def _place(self, found: Any, pointers: frozenset[int]) -> Arg:
        kind, index, offset, *slots = found
        if kind == "pointer":
            if index not in pointers:
                raise ValueError(f"pointer {index!r} is used outside of its loop")
            return Arg(kind, index, number(offset, self.memory))
        if slots:
            (slot,) = slots
            if kind not in ("arena", "place"):
                raise ValueError(f"{kind!r} lies in no slot")
            limit = self.memory if kind == "arena" else self.limits[kind]
            index, offset = number(index, limit), number(offset, self.memory)
            return Arg(kind, index, offset, number(slot, SLOTS))
        return Arg(kind, number(index, self.limits[kind]), number(offset, self.room(kind, index)))


def _slot(found: Any) -> int | None:
    return None if found is None else number(found, SLOTS)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def number(value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"expected a number from 0 to {limit}, found {value!r}")
    return value
