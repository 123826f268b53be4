"""Modules of VHLO, StableHLO's portable form, in MLIR's bytecode."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.support.errors import ModelError, UnsupportedError

from .attributes import ATTRIBUTES, operator
from .bytecode import IR, LAZY_REGIONS, USE_LISTS, Bytecode, Stream
from .syntax import Function, Module, Operation, Region, Type
from .vhlo import Signature, Values

_HAS_ATTRIBUTES, _HAS_RESULTS, _HAS_OPERANDS, _HAS_SUCCESSORS = 1, 2, 4, 8
_HAS_REGIONS, _HAS_USE_LISTS, _HAS_PROPERTIES = 16, 32, 64
"""Parts that an operation may have, as bits."""


def parse_bytecode(content: bytes | memoryview, file: str) -> Module:
    """The module of MLIR's bytecode with StableHLO's portable operations.

    file: the kind of the file, in words.

    Raises ModelError, with an offset, if it is damaged; UnsupportedError for other dialects.
    """
    return _Reader(Bytecode(content)).module(file)


class _Scope:
    """Values of a region that reads none from around it, and of the regions inside it.

    count: the number of values that exist now.
    arguments: how many of them, the first ones, are arguments.
    """

    def __init__(self) -> None:
        self.count = self.arguments = 0

    def name(self, number: int) -> str:
        return f"%arg{number}" if number < self.arguments else f"%{number}"


class _Reader:
    def __init__(self, code: Bytecode) -> None:
        self._code, self._values, self._depth = code, Values(code), 0

    def module(self, file: str) -> Module:
        stream = self._code.operations
        count, has_arguments = stream.flagged("the number of operations")
        if has_arguments:
            stream.bad("operations without arguments around them", "arguments")
        outer = _Scope()
        made = [self._operation(stream, outer, iter(())) for _ in range(count)]
        functions: dict[str, Function] = {}
        for o in made:
            inner = o.regions[0].operations if o.name == "builtin.module" and o.regions else (o,)
            for function in map(_function, inner):
                if function.name in functions:
                    raise ModelError(f"two functions @{function.name}, expected one")
                functions[function.name] = function
        return Module(file, functions, self._code.producer)

    def _region(self, stream: Stream, scope: _Scope, is_isolated: bool) -> Region:
        blocks = stream.varint("the number of blocks")
        if blocks == 0:
            return Region((), ())
        if blocks != 1:
            raise UnsupportedError(f"byte {stream.at}: a region of {blocks} blocks")
        values = stream.count("values")
        start = scope.count
        scope.count += values
        numbers = iter(range(start, scope.count))
        count, has_arguments = stream.flagged("the number of operations")
        types = self._arguments(stream) if has_arguments else ()
        if is_isolated:
            scope.arguments = len(types)
        names = self._named(stream, scope, numbers, len(types))
        arguments = tuple(zip(names, types, strict=True))
        made = tuple(
            self._operation(stream, scope, numbers)
            for _ in range(stream.bounded(count, stream.left + 1, "operations that are there"))
        )
        scope.count = start
        return Region(arguments, made)

    def _arguments(self, stream: Stream) -> tuple[Type, ...]:
        """The types of a block's arguments."""
        types = []
        for _ in range(stream.count("arguments")):
            number, has_location = self._code.has_location(stream)
            types.append(self._values.type_of(stream, number))
            if has_location:
                stream.varint("a location")
        if self._code.version >= USE_LISTS and stream.bytes(1, "a flag")[0]:
            _skip_use_lists(stream, len(types))
        return tuple(types)

    def _named(
        self, stream: Stream, scope: _Scope, numbers: Iterator[int], count: int
    ) -> tuple[str, ...]:
        """Names for the next `count` values of a region."""
        names = []
        for _ in range(count):
            number = next(numbers, None)
            if number is None:
                stream.bad("as many values as the region states", "more")
            names.append(scope.name(number))
        return tuple(names)

    def _operation(self, stream: Stream, scope: _Scope, numbers: Iterator[int]) -> Operation:
        code, values = self._code, self._values
        place = f"byte {stream.at}"
        written = code.operators[stream.index(len(code.operators), "an operator's number")]
        if not written.startswith("vhlo.") and written != "builtin.module":
            raise UnsupportedError(
                f"{place}: operation {written} in bytecode; expected StableHLO's portable form, "
                "as jax.export writes it, or text"
            )
        name = operator(written)
        has = stream.bytes(1, "an operation")[0]
        stream.varint("a location")
        attributes = values.attribute(stream) if has & _HAS_ATTRIBUTES else {}
        if not isinstance(attributes, dict):
            stream.bad("a dictionary of attributes", type(attributes).__name__)
        if has & _HAS_PROPERTIES:
            attributes = attributes | values.properties(stream, ATTRIBUTES.get(written, ()))
        types: tuple[Type, ...] = ()
        if has & _HAS_RESULTS:
            types = tuple(values.type(stream) for _ in range(stream.count("results")))
        operands: list[str] = []
        if has & _HAS_OPERANDS:
            count = stream.count("operands")
            operands = [scope.name(stream.index(scope.count, "a value's number"))
                        for _ in range(count)]  # fmt: skip
        if has & _HAS_SUCCESSORS:
            raise UnsupportedError(f"{place}: operation {name} jumps to a block")
        if has & _HAS_USE_LISTS:
            _skip_use_lists(stream, len(types))
        regions = self._regions(stream, scope) if has & _HAS_REGIONS else ()
        results = self._named(stream, scope, numbers, len(types))
        return Operation(name, tuple(operands), results, types, attributes, regions, place)

    def _regions(self, stream: Stream, scope: _Scope) -> tuple[Region, ...]:
        count, is_isolated = stream.flagged("the number of regions")
        stream.bounded(count, stream.left + 1, "regions that are there")
        if self._depth >= MAX_DEPTH:
            raise ModelError(f"byte {stream.at}: regions are nested more than {MAX_DEPTH} deep")
        self._depth += 1
        if is_isolated:
            scope = _Scope()
            if self._code.version >= LAZY_REGIONS:
                number, stream = stream.section()
                if number != IR:
                    stream.bad("a section of operations", f"section {number}")
        regions = tuple(self._region(stream, scope, is_isolated) for _ in range(count))
        self._depth -= 1
        return regions


def _function(operation: Operation) -> Function:
    """A function in its module."""
    name, type_ = (operation.attributes.get(key) for key in ("sym_name", "function_type"))
    if operation.name != "func" or len(operation.regions) != 1:
        raise UnsupportedError(f"{operation.place}: operation {operation.name} among functions")
    if not isinstance(name, str) or not isinstance(type_, Signature):
        raise ModelError(f"{operation.place}: expected a function's name and type, found none")
    return Function(name, operation.regions[0], type_.results)


def _skip_use_lists(stream: Stream, values: int) -> None:
    """Skip the orders in which values' uses are listed."""
    for _ in range(stream.count("use lists") if values > 1 else 1):
        if values > 1:
            stream.varint("a value's number")
        count, _ = stream.flagged("a use list")
        for _ in range(stream.bounded(count, stream.left + 1, "uses that are there")):
            stream.varint("a use")
