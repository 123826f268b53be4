"""Networks that are lists of named layers, as many formats store them.

A reader of such a format parses files to a `Network`.  The format's operators are a table of import
functions that get a `LayerNode`.  All these formats share the walk, the messages and `inspect`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types, resizable
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.operands import Operands
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.scopes import Scope
from tilesmith.frontend.common.slots import FAILED, Failed, Result, Slot, kind_of
from tilesmith.frontend.common.source import Reader, Source
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data, Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.types import Dim
from tilesmith.support.errors import ModelError, UnsupportedError

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator of a network.

    kind: the operator's name in the format.
    name: the layer's name, for messages and labels.
    inputs: names of values; an empty name if the input is left out.
    outputs: names that the layer defines.  A later layer may define a name again.
    attributes: numbers, lists, texts or messages, by name.
    weights: names of the layer's own stored tensors.
    parts: the layers inside of the layer, such as branches or the body of a loop.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Layers inside of a layer.  They may use the names that are defined before that layer.

    inputs: names of the arguments; an empty name if an argument is not used.
    outputs: names of the results, which the layers, the inputs or layers outside define.
    layers: the layers, each after the layers that define its inputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """A model in a file.

    format: the format with its version.
    inputs: the declared inputs.
    outputs: the name of each output -> the name of its value.
    layers: the layers, each after the layers that define its inputs.
    weights: stored tensors by name: arrays, or functions that read them.
    producer: the program that wrote the file, if it says so.
    metadata: further entries of the file.
    is_resizable: whether the caller may change each dimension of the inputs.
    """

    format: str
    inputs: tuple[Declared, ...]
    outputs: Mapping[str, str]
    layers: Sequence[Layer]
    weights: Mapping[str, np.ndarray | Callable[[], np.ndarray]] = field(default_factory=dict)
    producer: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_resizable: bool = False


@dataclass(slots=True, eq=False)
class LayerNode(Operands, CallingNode):
    """One layer during import.

    layer: the layer as the file states it.
    slots: its inputs; None for an input that is left out.
    stored: a function from the name of a stored tensor to its constant.
    """

    layer: Layer
    slots: tuple[Slot, ...]
    stored: Callable[[str], Value]

    def weight(self, index: int, shape: Sequence[Dim] | None = None) -> Value:
        """Stored tensor number `index` of the layer, reshaped to `shape` if one is given."""
        if index >= len(self.layer.weights):
            raise ModelError(
                f"expected at least {index + 1} stored tensors, found {len(self.layer.weights)}"
            )
        value = self.stored(self.layer.weights[index])
        return value if shape is None else self.reshape(value, shape)

    # Attributes.  In text formats, numbers and lists are texts.

    def has(self, name: str) -> bool:
        return self.layer.attributes.get(name) is not None

    def _attribute(self, name: str, default: Any) -> Any:
        value = self.layer.attributes.get(name)
        if value is None and default is None:
            raise ModelError(f"expected attribute {name!r}, which is required; found none")
        return default if value is None else value

    def _wrong(self, name: str, expected: str, value: Any) -> ModelError:
        return ModelError(f"attribute {name!r}: expected {expected}, found {value!r}")

    def attr_int(self, name: str, default: int | None = None, low: int | None = None) -> int:
        """An integer.  `low` is its smallest legal value."""
        value = self._attribute(name, default)
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):  # the last for infinity
            raise self._wrong(name, "an integer", value) from None
        if isinstance(value, float) and value != number:
            raise self._wrong(name, "an integer", value)
        if low is not None and number < low:
            raise self._wrong(name, f"at least {low}", number)
        return number

    def attr_float(self, name: str, default: float | None = None) -> float:
        value = self._attribute(name, default)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._wrong(name, "a number", value) from None

    def attr_flag(self, name: str, default: bool | None = None) -> bool:
        value = self._attribute(name, default)
        if str(value).lower() in (*_TRUE, *_FALSE):
            return str(value).lower() in _TRUE
        raise self._wrong(name, "true or false", value)

    def attr_ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers.  A single number counts as a list."""
        numbers = self.attr_floats(name, default)
        if not all(float(v).is_integer() for v in numbers):
            raise self._wrong(name, "integers", numbers)
        return tuple(int(v) for v in numbers)

    def attr_floats(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """A list of numbers.  A single number counts as a list."""
        value = self._attribute(name, default)
        if isinstance(value, str):
            if re.search(r"[^\s\d.,()\[\]eE+-]", value):
                raise self._wrong(name, "a list of numbers", value)
            return tuple(map(float, _NUMBER.findall(value)))
        try:
            return tuple(np.asarray(value).reshape(-1).tolist())
        except (TypeError, ValueError):
            raise self._wrong(name, "a list of numbers", value) from None

    def attr_string(self, name: str, default: str | None = None, among: Sequence[str] = ()) -> str:
        """A text, which must be one of `among` if these are given."""
        value = str(self._attribute(name, default))
        if among and value not in among:
            raise self._wrong(name, f"one of {', '.join(among)}", value)
        return value


LayerFunction: TypeAlias = Callable[[LayerNode], Result]
Layers: TypeAlias = Registry[LayerFunction]
"""A format's table of layers."""


class NetworkImporter(Importer):
    """Imports one network."""

    def __init__(
        self, builder: FoldingBuilder, network: Network, table: Layers, given: Given
    ) -> None:
        super().__init__(builder)
        self._network, self._table, self._given = network, table, given
        self._outermost = builder
        self._stored: dict[str, Value] = {}
        self._depth = 0
        self.scope = Scope()
        """The names of the network itself, not of parts."""

    def declare(self) -> None:
        """Add the network's inputs to the graph."""
        inputs = self._network.inputs
        if self._network.is_resizable:
            inputs = tuple(resizable(i, self._given) for i in inputs)
        values = fixed(inputs, self._given.values)
        types = input_types(inputs, self._given, values)
        for i in inputs:
            known = i.name in values
            self.scope.names[i.name] = (
                self.builder.constant(values[i.name])
                if known
                else self.builder.input(i.name, types[i.name])
            )

    def stored(self, name: str) -> Value:
        """The constant of a stored tensor.  Raises ModelError if the file lacks the tensor."""
        if name not in self._stored:
            weight = self._network.weights.get(name)
            if weight is None:
                raise ModelError(f"stored tensor {name!r} is used, but the file does not have it")
            array = np.asarray(weight() if callable(weight) else weight)
            type_ = array_type(array)
            data = self._given.weights.data(name, type_, Data.of(array))
            self._stored[name] = self._outermost.lazy_constant(type_, data, name)
        return self._stored[name]

    def slot(self, name: str, scope: Scope | None = None) -> Slot:
        """The value of a name: of an input, of a layer's output or of a stored tensor.

        scope: the part that uses the name; None for the network itself.
        """
        if not name:
            return None
        if name not in self.scope.names and name in self._network.weights:
            self.scope.names[name] = self.stored(name)
        return (scope or self.scope).find(name)

    def layer(self, layer: Layer, scope: Scope | None = None) -> None:
        """Import a layer: add its nodes and define its outputs.

        scope: the part that has the layer; None for the network itself.
        """
        scope = scope or self.scope
        self.builder.count()
        site = Site(layer.kind, "", layer.name)
        label = next(filter(None, layer.outputs), layer.name)
        results = self.attempt(site, lambda: self._results(layer, label, scope))
        for i, name in enumerate(layer.outputs):
            scope.names[name] = FAILED if results is None else results[i]

    def _part(
        self, part: Part, arguments: Sequence[Slot], scope: Scope, body: Body | None = None
    ) -> list[Slot]:
        """The results of a part of a layer in `scope`.  Its nodes are added to `body`, or to the
        current graph.
        """
        if self._depth >= MAX_DEPTH:
            raise ModelError(f"layers are more than {MAX_DEPTH} deep in layers")
        if len(arguments) != len(part.inputs):
            raise ModelError(f"expected {len(part.inputs)} arguments, found {len(arguments)}")
        inner = Scope(scope, body)
        inner.names |= {k: a for k, a in zip(part.inputs, arguments, strict=True) if k}
        self._depth += 1
        try:
            for layer in part.layers:
                self.layer(layer, inner)
        finally:
            self._depth -= 1
        return [self.slot(name, inner) for name in part.outputs]

    def _results(self, layer: Layer, label: str, scope: Scope) -> Sequence[Slot] | None:
        function = self._table.find("", layer.kind)
        if function is None:
            raise UnsupportedError("the operator is not supported")
        slots = tuple(self.slot(name, scope) for name in layer.inputs)
        if any(isinstance(s, Failed) for s in slots):
            return None

        def nested(body: Body, part: Part, arguments: Sequence[Slot], _: str) -> Any:
            return self.within(body, lambda: self._part(part, arguments, scope, body))

        def constant(name: str) -> Value:
            value = scope.seen(self.stored(name))
            assert isinstance(value, Value)
            return value

        node = LayerNode(
            self.builder,
            layer.name,
            label,
            lambda part, arguments, _: self._part(part, arguments, scope),
            nested,
            layer,
            slots,
            constant,
        )
        with self.builder.at(layer.name, label):
            made = function(node)
        results = made if isinstance(made, tuple) else (made,)
        if len(results) < len(layer.outputs):
            raise UnsupportedError(f"its output number {len(results) + 1} is not supported")
        return results

    def finish(self) -> Graph:
        """The graph.  Raises UnsupportedError with all layers that could not be imported."""
        self.check()
        outputs: list[Value] = []
        for name, value_name in self._network.outputs.items():
            value = self.slot(value_name)
            if not isinstance(value, Value):
                raise ModelError(f"output {name!r}: expected a tensor, found {kind_of(value)}")
            outputs.append(value)
        if not outputs:
            raise ModelError("expected at least one output, found none")
        return dce(self.builder.finish(outputs, list(self._network.outputs)))


def load_network(network: Network, table: Layers, given: Given, name: str = "") -> Graph:
    """The graph of a network.  `name` is the file's name, for messages."""
    with errors_name(name):
        builder = FoldingBuilder("main", given.for_training)
        importer = NetworkImporter(builder, network, table, given)
        importer.declare()
        for layer in network.layers:
            importer.layer(layer)
        return importer.finish()


def network_nodes(network: Network) -> list[tuple[str, str]]:
    """The names and operators of the layers."""
    return [(layer.name, layer.kind) for layer in _every(network.layers)]


def _every(layers: Iterable[Layer]) -> Iterator[Layer]:
    """The layers, and the layers inside of them."""
    for layer in layers:
        yield layer
        yield from _every(inner for part in layer.parts for inner in part.layers)


def inspect_network(network: Network, table: Layers) -> Inspection:
    """Facts about a network."""
    operators = Counter(layer.kind for layer in _every(network.layers))
    size = 0
    for weight in network.weights.values():
        size += np.asarray(weight() if callable(weight) else weight).nbytes
    return Inspection(
        network.format,
        network.producer,
        {i.name: _type(i) for i in network.inputs},
        {name: "" if value == name else value for name, value in network.outputs.items()},
        operators,
        frozenset(k for k in operators if table.find("", k) is None),
        size,
        network.metadata,
    )


def network_reader(read: Callable[[Source], Network], table: Layers) -> Reader:
    """The reader of a format.  `read` parses its files to a network."""

    def named(source: Source) -> Network:
        with errors_name(source.name):
            return read(source)

    return Reader(
        lambda source, given: load_network(named(source), table, given, source.name),
        lambda source: network_nodes(named(source)),
        lambda source: inspect_network(named(source), table),
    )


def _type(declared: Declared) -> str:
    if declared.dims is None:
        return f"{declared.dtype} of unknown rank"
    return f"{declared.dtype}[{','.join(str(d) if d != '' else '?' for d in declared.dims)}]"
