"""A builder with constant folding: values that depend on no input are computed during import.

Source models compute shapes with operators (shape, gather, concat, reshape).  Small results of
small constants are computed when their operator is added.  Larger ones are computed when an
importer asks for their contents (`known`).  So shapes are numbers by the time an operator needs
them.  Where a dimension is symbolic, the elements of small tensors are extents (`contents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilesmith.graph.builder import Builder, labels
from tilesmith.graph.evaluate import evaluate_op
from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.cse import op_key
from tilesmith.ir import extents
from tilesmith.ir.dtypes import i64
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import as_dim, expected, symbol, symbols_of
from tilesmith.ir.types import Dim, same_dim, same_shape
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Cast, Equal, LogicalOr, Sub, Where
from tilesmith.ops.elementwise.base import Elementwise
from tilesmith.ops.quantize import Dequantize
from tilesmith.ops.random import is_random
from tilesmith.ops.rules import UnequalDims, divided, equal
from tilesmith.ops.runtime_shape import Reinterpret, Stretch
from tilesmith.ops.shape import Expand, Reshape, Squeeze, Unsqueeze
from tilesmith.ops.sizes import Extents
from tilesmith.ops.slicing import Concat
from tilesmith.support.errors import ModelError, OpenDimensionError, UnsupportedError

from .contents import Contents, is_small, known_contents, results
from .equations import replacement
from .limits import MAX_NODES, checked_dims

_FOLD_ELEMENTS = 1 << 14
"""Results up to this many elements are computed at once, larger ones on demand."""

_FOLD_BYTES = 1 << 30
"""Upper bound on the bytes of all computed results together."""

_KNOWN_BYTES = 1 << 26
"""Upper bound on the bytes of one result that is computed on demand."""


def _widens_weights(op: Op, inputs: tuple[Value, ...]) -> bool:
    """Whether `op` converts a matrix of at most 8 bits to a wider type.  Such an `op` is not
    folded, so that passes see the narrow matrix of a product.
    """
    if not isinstance(op, (Cast, Dequantize)):
        return False
    return inputs[0].dtype.bits <= 8 and inputs[0].type.rank > 1


def is_weight(value: Value) -> bool:
    """Whether a constant may be a weight: it has the name that the source gives it."""
    return bool(value.name) and value.dtype.is_float


class FoldingBuilder(Builder):
    """The `Builder` of an importer.

    for_training: whether results of weights, which are named constants of floats, and random
        numbers stay nodes.  Training turns weights into inputs and draws new numbers in each step.
    """

    def __init__(self, name: str = "main", for_training: bool = False) -> None:
        super().__init__(name)
        self.for_training = for_training
        self.without_dropout = False
        """Whether dropout keeps all elements where the model has it in training mode."""
        self.always_runs = True
        """Whether every run reaches the builder's nodes.  If so, the nodes restrict the sizes and
        known values of all runs, otherwise only those of the runs that reach the nodes.
        """
        self._origin: dict[Value, tuple[Op, tuple[Value, ...], int]] = {}
        self._folded: dict[Value, np.ndarray] = {}
        self._contents: dict[Value, Contents] = {}
        self._at_run: set[Value] = set()
        """Tensors of extents that the current node treats as computed by a run."""
        self._fold_bytes = 0
        self._visited = 0
        self._streams = 0
        self.numbers: set[Value] = set()
        """Values of rank 0 that are numbers in the source's language, and not tensors."""
        self.measured: set[Var] = set()
        """The symbols that runs measure, also those of enclosing graphs."""
        self._symbols: dict[tuple[Value, Value | None], tuple[Dim, ...]] = {}
        self._required: set[Value] = set()
        self._assumptions: dict[tuple[Dim, Dim], list[Node]] = {}
        self._made: dict[tuple[Any, tuple[Value, ...]], Any] = {}
        self._loc = self._label = ""

    def next_stream(self) -> int:
        """The number of the next source of random numbers without a seed."""
        self._streams += 1
        return self._streams

    def count(self) -> None:
        """Count a node, of the model or of an expansion.  Raises ModelError above `MAX_NODES`."""
        self._visited += 1
        if self._visited > MAX_NODES:
            raise ModelError(
                f"the model unfolds into more than {MAX_NODES} nodes, the most allowed"
            )

    @contextmanager
    def at(self, loc: str, label: str) -> Iterator[None]:
        """A context in which new nodes belong to the source model's node `loc`.  `label` is the
        name of the node's first output.
        """
        before = self._loc, self._label
        self._loc, self._label = loc, label
        try:
            yield
        finally:
            self._loc, self._label = before

    def add(self, op: Op, *inputs: Value, loc: str | None = None, name: str | None = None) -> Any:
        """Add a node, as `Builder.add` does.  The result is a constant if all inputs are small
        constants.

        The small result of an equal earlier operator is reused, so that a size computed twice is
        measured once.

        An operator may require that two extents are equal, although they are equal for some sizes
        only.  If no replacement of a symbol makes them equal for all sizes, they are assumed to be
        equal.  A run checks this before it begins (decision 75).

        Errors do not name `loc`: the importer adds it to all errors of a node.  Raises ModelError
        if a result has more than `MAX_ELEMENTS` elements even if each symbol is 1, UnequalDims if
        symbols should be replaced first.
        """
        self.count()
        key = op_key(op), inputs
        if key in self._made:
            return self._made[key]
        loc, name = self._loc if loc is None else loc, self._label if name is None else name
        try:
            types = self._types(op, inputs)
        except UnequalDims as e:
            if self._is_replaced(e):
                raise
            fitted = self._fitted(op, inputs, e, loc)
            return self.add(*fitted, loc=loc, name=name)
        outputs = self._append(op, inputs, types, loc, labels(name, len(types)))
        if isinstance(op, Extents):
            self._contents[outputs[0]] = np.array(op.elements, object).reshape(op.shape)
        for i, v in enumerate(outputs):
            checked_dims(v.type.shape, f"the result of {op.name}")
            self._origin[v] = (op, inputs, i)
        if not op.heavy_reference:
            outputs = self._computed(op, inputs, outputs)
        result = outputs[0] if len(outputs) == 1 else outputs
        if outputs and all(map(is_small, types)):
            self._made[key] = result
        return result

    def _is_replaced(self, error: UnequalDims) -> bool:
        """Whether the importer should replace symbols so that the two extents of `error` become
        equal.
        """
        a, b = error.first, error.second
        if not (self.always_runs and self.measured.isdisjoint(symbols_of((a, b)))):
            return False
        return replacement(a, b) is not None or expected(a) != expected(b)

    def divided(self, op: str, dim: Dim, by: int, what: str, loc: str) -> Dim:
        """`dim / by`; a run with a remainder is refused, and the error names `loc`.

        op: the operator, in messages.
        what: the extent, in messages.

        Raises ModelError where there always is a remainder, UnequalDims where symbols should be
        replaced first.
        """
        try:
            return divided(op, dim, by, what)
        except UnequalDims as e:
            if self._is_replaced(e):
                raise
            self._require(e, loc)
            return as_dim(dim // by)

    def _require(self, error: UnequalDims, loc: str) -> None:
        """Refuses runs in which two extents differ."""
        a, b = error.first, error.second
        if self.measured.isdisjoint(symbols_of((a, b))):
            self.assume_equal(a, b, loc)
        else:
            self.require_equal(a, b)

    def measure(
        self,
        value: Value,
        bounds: Sequence[Dim],
        zero: Value | None = None,
        name: str = "",
        usual: Sequence[int] = (),
    ) -> tuple[Dim, ...]:
        """The elements of an i64 list as extents: numbers or expressions if known, else symbols.

        bounds: the upper bound of each element.
        usual: the expected value of each element; by default the bound.
        zero: a list of numbers; runs in which one is not 0 are refused.
        name: the name of the symbols.

        Raises ModelError if a known element is negative, or a known element of `zero` is not 0.
        """
        wrong = None if zero is None else self.contents(zero)
        held = self.contents(value)
        if wrong is not None and any(isinstance(e, int) and e != 0 for e in wrong.flat):
            raise ModelError("the values of its inputs do not fit the shapes of the others")
        if held is not None:
            if zero is not None and (wrong is None or any(isinstance(e, Expr) for e in wrong.flat)):
                self.require_zero(zero)
            if any(isinstance(e, int) and e < 0 for e in held.flat):
                raise ModelError(f"expected extents of 0 or more, found {list(held.flat)}")
            return tuple(held.flat)
        key = (value, zero)
        if key not in self._symbols:
            self._symbols[key] = self._measured(value, bounds, zero, name, usual)
            if zero is None:
                made = np.empty(len(bounds), object)
                made[:] = self._symbols[key]
                self._contents[value] = made
        return self._symbols[key]

    def require_zero(self, numbers: Value, of: str = "") -> None:
        """Refuses runs in which one of a list of numbers is not 0.

        of: the formula of the numbers, for the message.
        """
        if numbers not in self._required:
            self._required.add(numbers)
            symbols = tuple(symbol("excess", 0, 0) for _ in range(numbers.type.size))
            self.measured.update(symbols)
            self.add(Measure(symbols, (0,) * len(symbols), of), numbers)

    def _measured(
        self,
        value: Value,
        bounds: Sequence[Dim],
        zero: Value | None,
        name: str,
        usual: Sequence[int],
    ) -> tuple[Dim, ...]:
        symbols: list[Var] = []
        for i, limit in enumerate(bounds):
            most = extents.values_of(limit).hi
            high = LARGEST if most is None else min(max(most, 0), LARGEST)
            guess = None if same_dim(limit, LARGEST) else min(max(expected(limit), 0), high)
            guess = min(usual[i], high) if usual else guess
            symbols.append(symbol(f"{name}.{i}", 0, high, guess))
        checks: list[Var] = []
        whole = value
        if zero is not None:
            checks = [symbol(f"{name}.excess", 0, 0) for _ in range(zero.type.static_shape[0])]
            whole = self.add(Concat(0), value, zero)
        self.measured.update(symbols_of(symbols))
        self.add(Measure((*symbols, *checks), (*bounds, *[0] * len(checks))), whole)
        return tuple(symbols)

    def _fitted(
        self, op: Op, inputs: tuple[Value, ...], error: UnequalDims, loc: str
    ) -> tuple[Any, ...]:
        """The operator and its operands, with the two extents of `error` made equal.  A run checks
        that they are; in an elementwise operator, a measured extent may also be 1.
        """
        a, b = error.first, error.second
        is_measured = not self.measured.isdisjoint(symbols_of((a, b)))
        if isinstance(op, Reshape):
            self._require(error, loc)
            return Reinterpret(op.rounded(inputs[0].shape)), *inputs
        inside = [any(same_dim(d, e) for v in inputs for d in v.shape) for e in (a, b)]
        if not any(inside):
            raise OpenDimensionError(str(error), error.dims) from None
        common = a if not inside[0] or isinstance(a, int) else b
        if is_measured and isinstance(op, Elementwise):
            common = self._common(a, b)
        else:
            self._require(error, loc)

        def fitted(shape: Sequence[Dim]) -> tuple[Dim, ...]:
            return tuple(common if same_dim(d, a) or same_dim(d, b) else d for d in shape)

        wide = [
            v if same_shape(fitted(v.shape), v.shape) else self.add(Stretch(fitted(v.shape)), v)
            for v in inputs
        ]
        is_known = all(v is w for v, w in zip(inputs, wide, strict=True))
        if isinstance(op, Expand) and not same_shape(fitted(op.shape), op.shape):
            op, is_known = Expand(fitted(op.shape)), False
        if is_known:  # nothing changed, so the error remains
            raise OpenDimensionError(str(error), error.dims) from None
        return op, *wide

    def assume_equal(self, a: Dim, b: Dim, loc: str) -> None:
        """Refuses runs in which two extents differ, at the beginning of the run.  The error names
        `loc`.
        """
        if (a, b) in self._assumptions:
            return
        wanted = b if isinstance(b, int) else 0
        excess = a if isinstance(b, int) else extents.difference(a, b)
        here, made = len(self._nodes), self._made
        # The new nodes move to the front of the graph, so they can't use results of other nodes.
        self._made = {}
        elements = self.add(Extents((excess,), (1,)))
        fit = symbol("fit", wanted, wanted)
        self.add(Measure((fit,), (wanted,), str(excess)), elements, loc=loc)
        self._made = made
        self._assumptions[a, b] = self._nodes[here:]
        del self._nodes[here:]

    def finish(self, outputs: Sequence[Value] | Value, names: Sequence[str] | None = None) -> Graph:
        """The graph with these `outputs`; assumptions about sizes are checked first."""
        self._nodes = [*(n for nodes in self._assumptions.values() for n in nodes), *self._nodes]
        return super().finish(outputs, names)

    def _common(self, a: Dim, b: Dim) -> Dim:
        """The broadcast of two extents."""
        lists = [self.add(Extents((d,), (1,))) for d in (a, b)]
        one = self.constant(np.ones(1, np.int64))
        is_one = [self.add(Equal(), v, one) for v in lists]
        fits = self.add(LogicalOr(), self.add(Equal(), *lists), self.add(LogicalOr(), *is_one))
        zero = self.add(Sub(), one, self.add(Cast(i64), fits))
        for d in (a, b):
            # A constant extent here is not 1, since 1 always broadcasts.
            if isinstance(d, int):
                self.require_zero(zero)
                return d
        return self.measure(self.add(Where(), is_one[0], *reversed(lists)), (LARGEST,), zero)[0]

    def require_equal(self, a: Dim, b: Dim) -> None:
        """If one of two extents is measured, refuses runs in which they differ.  Otherwise raises
        UnequalDims if they are equal for some sizes only, and ModelError if they are never equal.
        """
        if self.measured.isdisjoint(symbols_of((a, b))):
            if not equal("the operator", a, b):
                raise ModelError(f"expected two equal extents, found {a} and {b}")
            return
        lists = [self.add(Extents((d,), (1,))) for d in (a, b)]
        self.require_zero(self.add(Sub(), *lists))

    def _computed(
        self, op: Op, inputs: tuple[Value, ...], outputs: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """`outputs`, with small outputs of known contents replaced by constants or extents."""
        values = (*inputs, *outputs)
        if any(v in self._contents for v in inputs) or not op.is_static:
            return self._symbolic(op, inputs, outputs) if all(map(_is_small, values)) else outputs
        small = all(v.type.is_static and v.type.size <= _FOLD_ELEMENTS for v in values)
        small = small and not _widens_weights(op, inputs)
        if self.for_training and (is_random(op) or any(map(is_weight, inputs))):
            return outputs
        if small and self._fold_bytes < _FOLD_BYTES and all(map(self.is_constant, inputs)):
            try:
                arrays = evaluate_op(op, *map(self._array, inputs))
            except ModelError:
                if self.always_runs:
                    raise
                return outputs
            self._fold_bytes += sum(a.nbytes for a in arrays)
            return tuple(map(self.constant, arrays))
        return outputs

    def _symbolic(
        self, op: Op, inputs: tuple[Value, ...], outputs: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """The outputs of an operator on tensors whose contents depend on symbolic dimensions."""
        held = [self.contents(v) for v in inputs]
        known = [c for c in held if c is not None]
        if isinstance(op, Extents) or len(known) < len(held):
            return outputs
        contents = results(op, tuple(v.type for v in inputs), known)
        if contents is None:
            return outputs
        return tuple(map(self._holding, outputs, contents))

    def _holding(self, value: Value, contents: Contents) -> Value:
        """`value` with `contents`: a constant if all are numbers, `Extents` for an integer type."""
        array = known_contents(contents, value.type)
        if array is not None:
            return self.constant(array)
        if value.dtype.is_int:
            made = Extents(tuple(contents.flat), value.type.static_shape, value.dtype)
            return self.add(made, name=value.name)
        self._contents[value] = contents
        return value

    def contents(self, value: Value) -> Contents | None:
        """The contents of a small tensor, numbers or symbolic; None if they are unknown."""
        contents = None if value in self._at_run else self._contents.get(value)
        if value.type.is_static and value.type.size == 0:
            return np.empty(value.type.static_shape, object)
        if contents is None and _is_small(value):
            array = self.known(value)
            contents = None if array is None else array.astype(object)
        return contents

    @contextmanager
    def at_run(self, values: Iterable[Value]) -> Iterator[None]:
        """A context in which only a run knows the contents of `values`."""
        before = self._at_run, self._made
        self._at_run, self._made = {*self._at_run, *values}, {}
        try:
            yield
        finally:
            self._at_run, self._made = before

    def partly(self, value: Value) -> list[Dim | None]:
        """The elements of a list of integers, None for each unknown one."""
        held = self.contents(value)
        if held is not None:
            return [e if isinstance(e, (int, Expr)) else None for e in held.flat]
        op, inputs, _ = self._origin.get(value, (None, (), 0))
        if isinstance(op, Concat) and value.type.rank == 1:
            return [e for v in inputs for e in self.partly(v)]
        if inputs and value.type.size == 1 and isinstance(op, (Reshape, Squeeze, Unsqueeze)):
            return self.partly(inputs[0])
        return [None] * value.type.size

    @property
    def open_inputs(self) -> tuple[str, ...]:
        """The names of the inputs with symbolic dimensions."""
        return tuple(v.name for v in self._inputs if not v.type.is_static)

    def open_inputs_with(self, symbols: Iterable[Var]) -> tuple[str, ...]:
        """The names of `open_inputs`, first the inputs that have some of these symbols."""
        wanted = set(symbols)
        inputs = [v for v in self._inputs if not v.type.is_static]
        inputs.sort(key=lambda v: wanted.isdisjoint(symbols_of(v.shape)))
        return tuple(v.name for v in inputs)

    def known(self, value: Value) -> np.ndarray | None:
        """The contents of a value, computed on demand.  None if the value depends on inputs, or if
        the computation is too expensive.
        """
        if value.type.is_static and value.type.size == 0:
            return np.empty(value.type.static_shape, value.dtype.numpy)
        order: list[Value] = []
        for v in self._behind(value):
            if self._is_known(v):
                continue
            made = self._origin.get(v)
            if made is None or made[0].heavy_reference or not made[0].is_static:
                return None
            if not v.type.is_static or v.type.bytes > _KNOWN_BYTES:
                return None
            order.append(v)
        self._fold(order)
        return self._array(value)

    def _fold(self, values: list[Value]) -> None:
        """Compute the arrays of `values`.  Operands that are not known are computed first."""
        waiting = list(values)
        while waiting:
            v = waiting[-1]
            if v in self._folded:
                waiting.pop()
                continue
            op, inputs, index = self._origin[v]
            missing = [i for i in inputs if not self._is_known(i)]
            if missing:
                waiting += missing
                continue
            if self._fold_bytes > _FOLD_BYTES:
                raise UnsupportedError(
                    f"computing its constant inputs takes more than {_FOLD_BYTES} bytes"
                )
            self._folded[v] = evaluate_op(op, *map(self._array, inputs))[index]
            self._fold_bytes += self._folded[v].nbytes
            waiting.pop()

    def _is_known(self, value: Value) -> bool:
        return value in self._folded or self.is_constant(value)

    def _array(self, value: Value) -> np.ndarray:
        array = self._folded.get(value)
        return self._constants[value].data.array if array is None else array

    def inputs_behind(self, value: Value) -> tuple[str, ...]:
        """Names of the model inputs from which a value is computed."""
        return tuple(
            v.name for v in self._behind(value) if v not in self._origin and not self.is_constant(v)
        )

    def _behind(self, value: Value) -> Iterator[Value]:
        """`value` and its direct and indirect operands, each once.  The operands of a value with
        known contents are left out.
        """
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            yield v
            if v in self._origin and not self._is_known(v):
                fresh = [i for i in self._origin[v][1] if i not in seen]
                seen.update(fresh)
                pending += fresh


def _is_small(value: Value) -> bool:
    return is_small(value.type)
