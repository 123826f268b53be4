"""Building graphs.  Only here do nodes get their types.

Frontends, operators' `decompose` and tests make graphs with a `Builder`.  The builder infers result
types from the operator (`infer`; for a composite, from its expansion).  It reports a bad node
together with the node of the source model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import ref

import numpy as np

from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.rules import UnequalDims
from tilesmith.perf.limits import SHARED_BYTES
from tilesmith.support.arguments import checked_methods
from tilesmith.support.arrays import bare
from tilesmith.support.errors import (
    ModelError,
    OpenDimensionError,
    TilesmithError,
    UsageError,
)


def array_type(array: np.ndarray) -> TensorType:
    """The type of a NumPy array.  Raises ModelError if tensors cannot have its element type."""
    try:
        return TensorType(to_dtype(array.dtype), tuple(int(n) for n in array.shape))
    except TypeError as e:
        raise ModelError(
            f"expected an array of numbers or bools, found {array.dtype}: {e}"
        ) from None


@lru_cache(maxsize=2048)
def expansion(op: Op, types: tuple[TensorType, ...]) -> Graph:
    """One level of a composite operator's decomposition for inputs of `types` (cached).

    Inner composites stay composite.  Raises ModelError if the inputs do not fit the operator.
    """
    b = Builder(op.name)
    inputs = [b.input(f"x{i}", t) for i, t in enumerate(types)]
    result = op.decompose(b, *inputs)
    return b.finish(result if isinstance(result, tuple) else (result,))


def infer(op: Op, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """Result types of `op` for inputs of `types`.

    Raises ModelError, naming the operator and the types, if the inputs do not fit the operator.
    """
    try:
        if op.is_composite() and type(op).infer is Op.infer:
            return tuple(v.type for v in expansion(op, types).outputs)
        return tuple(t if t.is_static else _simplified(t) for t in op.infer(*types))
    except UnequalDims:
        raise  # a frontend adds the extents to the message
    except OpenDimensionError as e:
        raise OpenDimensionError(_of_operator(op, types, str(e)), e.dims) from None
    except ModelError as e:
        kind, message = type(e), str(e)
    except (TypeError, ValueError, IndexError) as e:
        # Expressions report wrong shapes and dtypes by Python's own exceptions.  Here these mean a
        # bad model.
        kind, message = ModelError, str(e)
    raise kind(_of_operator(op, types, message))


def _of_operator(op: Op, types: Sequence[TensorType], message: str) -> str:
    """An error's message, preceded by the operator's name and the types of its operands."""
    shown = f"{op.name}({', '.join(map(str, types))})"
    return f"{shown}: {message.removeprefix(f'{op.name}: ')}"


def _simplified(type: TensorType) -> TensorType:
    """The type with its symbolic extents simplified, so that equal extents are one object."""
    return TensorType(type.dtype, tuple(map(as_dim, type.shape)))


@checked_methods(ModelError)
class Builder:
    """Makes one `Graph`, node by node.  A builder is used once: `finish` ends it."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self._inputs: list[Value] = []
        self._constants: dict[Value, Constant] = {}
        self._nodes: list[Node] = []
        self._known: set[Value] = set()
        self._shared: dict[tuple[TensorType, bytes], Value] = {}
        self._self = ref(self)
        """A weak reference to this builder, given to its values, since values outlive builders."""

    def input(self, name: str, type: TensorType) -> Value:
        """A new graph input.  Users see its `name`, which must be unique among inputs."""
        if any(v.name == name for v in self._inputs):
            raise ModelError(f"two graph inputs are named {name!r}; names of inputs must be unique")
        value = Value(name, type, made_by=self._self)
        self._inputs.append(value)
        self._known.add(value)
        return value

    def constant(self, array: np.ndarray | np.generic, name: str = "") -> Value:
        """A constant.  Small unnamed constants of equal content share one value."""
        array = bare(array, f"constant {name!r}" if name else "constant")
        type = array_type(array)
        key = (type, array.tobytes()) if not name and array.nbytes <= SHARED_BYTES else None
        if key is not None and key in self._shared:
            return self._shared[key]
        value = self.lazy_constant(type, Data.of(array), name)
        if key is not None:
            self._shared[key] = value
        return value

    def lazy_constant(self, type: TensorType, data: Data, name: str = "") -> Value:
        """A constant of `type` whose contents are read at the first use."""
        value = Value(name, type, made_by=self._self)
        self._constants[value] = Constant(value, data)
        self._known.add(value)
        return value

    def is_constant(self, value: Value) -> bool:
        """True for a value whose contents are known."""
        return value in self._constants

    def data(self, value: Value) -> Data:
        """The contents of a constant.  Raises ModelError for another value."""
        constant = self._constants.get(value)
        if constant is None:
            raise ModelError(f"{value} is no constant of graph '{self.name}'")
        return constant.data

    def add(self, op: Op, *inputs: Value, loc: str = "", name: str = "") -> Any:
        """The result of `op` applied to `inputs`; a tuple if there are several results.

        loc: name of the node in the source model.
        name: label of the first result.

        Raises ModelError, naming `loc`, if the inputs do not fit the operator.
        """
        try:
            types = self._types(op, inputs)
        except UnequalDims:
            raise  # a frontend adds the extents to the message
        except TilesmithError as e:
            message = f"node {loc!r}: {e}" if loc else str(e)
            if isinstance(e, OpenDimensionError):
                raise OpenDimensionError(message, e.dims) from e.__cause__
            raise type(e)(message) from e.__cause__
        outputs = self._append(op, inputs, types, loc, labels(name, len(types)))
        return outputs[0] if len(outputs) == 1 else outputs

    def include(self, graph: Graph, inputs: Mapping[Value, Value]) -> dict[Value, Value]:
        """Add the constants and nodes of `graph`, whose inputs are `inputs`.  Returns the value of
        this graph for each value of `graph`.  Raises UsageError for an input without a value.
        """
        new = dict(inputs)
        for v in graph.inputs:
            if v not in new:
                raise UsageError(
                    f"Builder.include: inputs: expected a value for each input of graph "
                    f"'{graph.name}', found none for {v!r}"
                )
        for c in graph.constants:
            if c.value not in new:
                new[c.value] = self.lazy_constant(c.value.type, c.data, c.value.name)
        for n in graph.nodes:
            types = tuple(v.type for v in n.outputs)
            operands = tuple(new[v] for v in n.inputs)
            names = [v.name for v in n.outputs]
            new.update(zip(n.outputs, self._append(n.op, operands, types, n.loc, names)))
        return new

    def _types(self, op: Op, inputs: tuple[Value, ...]) -> tuple[TensorType, ...]:
        for v in inputs:
            if not isinstance(v, Value) or v not in self._known:
                raise UsageError(f"{op.name}: input {v!r} is not a value of graph '{self.name}'")
        return infer(op, tuple(v.type for v in inputs))

    def _append(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        types: tuple[TensorType, ...],
        loc: str,
        names: Sequence[str],
    ) -> tuple[Value, ...]:
        """Add a node.  Returns its results, whose types are `types` and whose labels are
        `names`.
        """
        outputs = tuple(
            Value(name, t, made_by=self._self) for name, t in zip(names, types, strict=True)
        )
        self._nodes.append(Node(op, inputs, outputs, loc))
        self._known.update(outputs)
        return outputs

    def part(self, inputs: Sequence[Value], output: Value) -> Graph:
        """The nodes so far that compute `output` from `inputs`, as a graph with inputs x0, x1, ...

        Raises ModelError for a value that `output` needs besides.
        """
        needed, nodes = {output}, []
        for node in reversed(self._nodes):
            if any(v in needed and v not in inputs for v in node.outputs):
                nodes.append(node)
                needed.update(node.inputs)
        made = {v for n in nodes for v in n.outputs}
        free = [v for v in needed if not (v in made or v in inputs or v in self._constants)]
        if free:
            raise ModelError(
                f"expected {output.name!r} to be computed from "
                f"{', '.join(repr(v.name) for v in inputs)}, found that it needs "
                f"{', '.join(sorted(repr(v.name) for v in free))}, too"
            )
        new = {v: Value(f"x{i}", v.type) for i, v in enumerate(inputs)}
        constants = (c for v, c in self._constants.items() if v in needed and v not in new)
        body = tuple(n.with_values(new) for n in reversed(nodes))
        return Graph(
            self.name, (*new.values(),), (*constants,), body, (new.get(output, output),), ("y",)
        )

    def finish(self, outputs: Sequence[Value] | Value, names: Sequence[str] | None = None) -> Graph:
        """The graph with these `outputs`, called `names` (default: their labels or `output<i>`)."""
        outputs = (outputs,) if isinstance(outputs, Value) else tuple(outputs)
        for v in outputs:
            if not isinstance(v, Value) or v not in self._known:
                raise UsageError(f"output {v!r} is not a value of graph '{self.name}'")
        chosen = tuple(names) if names is not None else _default_names(outputs)
        if len(chosen) != len(outputs):
            raise ModelError(
                f"graph '{self.name}' has {len(outputs)} outputs but {len(chosen)} names"
            )
        if len(set(chosen)) != len(chosen):
            twice = next(n for n in chosen if chosen.count(n) > 1)
            raise ModelError(
                f"two graph outputs are named {twice!r}; names of outputs must be unique"
            )
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(self._constants.values()),
            tuple(self._nodes),
            outputs,
            chosen,
        )


def labels(name: str, count: int) -> list[str]:
    """The labels of a node's results.  The first label is `name`."""
    return [name if i == 0 or not name else f"{name}.{i}" for i in range(count)]


def _default_names(outputs: tuple[Value, ...]) -> tuple[str, ...]:
    labels = [v.name or f"output{i}" for i, v in enumerate(outputs)]
    if len(outputs) == 1 and not outputs[0].name:
        return ("output",)
    return tuple(f"output{i}" if labels.count(n) > 1 else n for i, n in enumerate(labels))
