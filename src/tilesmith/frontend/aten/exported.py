"""An exported program: calls of operators, its inputs and outputs, and the weights.

Readers of `torch.export` objects and of archives both return an `Exported`.  `graph.py` converts it
to a `Graph`.  Callers of the compiled program read its `signature`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tilesmith.frontend.aten.program import Call
from tilesmith.ir.dtypes import DType

Kind = Literal["tensor", "size", "constant"]


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the program, or a weight that its calls use.

    name: the name of the argument or weight in the calls.
    kind: "tensor"; "size" for any number that is an input of the graph; or "constant".
    dtype: element type of a tensor or of a number; None for a constant.
    dims: extents of a tensor, each a number or the text of an expression of symbols.
    value: the constant.
    weight: the weight's name; None for an argument.
    """

    name: str
    kind: Kind = "tensor"
    dtype: DType | None = None
    dims: tuple[int | str, ...] = ()
    value: Any = None
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A result of the program, or a tensor that it writes.

    kind: "tensor", "size" for a number, or "constant".
    value: the result, in the form of an argument of a `Call`.
    written: None for a result.  For a written tensor, the name of a weight or the number of an
        argument.
    """

    kind: Kind
    value: Any
    written: str | int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a symbol of a program.

    low: the smallest number.
    high: the largest number; None if there is no upper bound.
    """

    low: int
    high: int | None


class Structure(Protocol):
    """The nesting of a module's arguments and results."""

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of a call, flattened.

        Raises ModelError if their nesting differs from the module's.
        """
        ...

    def restored(self, leaves: Sequence[Any]) -> Any:
        """The module's results, nested again from their leaves."""
        ...

    def names(self) -> list[str]:
        """Names of the leaves of the results.  A leaf is named by its keys; if these are only
        numbers, by its position among the leaves.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exported:
    """A program of ATen operators with all that it needs.

    name: its name in messages.
    inputs: arguments in order, and weights.
    outputs: results in order, then written tensors.
    weights: tensors or arrays by name.  Only weights among `inputs` are used.
    state: the names of the weights in the module's state: parameters and persistent buffers.
    ranges: ranges of the symbols in extents, by the symbol's text.
    hints: numbers of symbolic extents in the example inputs, by the text of the extent.
    structure: nesting of arguments and results.
    calls: calls in an order in which each call uses only earlier ones.
    guards: conditions that tracing assumed for the sizes of arguments (`guards.py`).
    """

    name: str
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    weights: Mapping[str, Any]
    state: Sequence[str]
    ranges: Mapping[str, Range]
    hints: Mapping[str, int]
    structure: Structure
    calls: Callable[[], Iterable[Call]]
    guards: Sequence[str] = ()

    @property
    def signature(self) -> Signature:
        """The mapping from a caller's arguments and results to inputs and outputs of the graph."""
        arguments = [i for i in self.inputs if i.weight is None]
        new = tuple(o.written for o in self.outputs if o.written is not None)
        return Signature(
            tuple([i.value] if i.kind == "constant" else None for i in arguments),
            tuple(target for target in new if isinstance(target, str)),
            tuple(
                [o.value] if o.kind == "constant" else o.kind
                for o in self.outputs
                if o.written is None
            ),
            new,
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """The mapping from arguments and results of a program to inputs and outputs of its graph.

    arguments: an entry for each leaf of the program's arguments.  `[constant]` if the leaf must be
        that constant.  None for a tensor or a size; these are the graph's first inputs, in order.
    written: the buffers that the program writes.  They are the graph's last inputs.
    results: an entry for each leaf of the program's results.  `[constant]` for a constant,
        "tensor", or "size" for a number.  Tensors and sizes are the graph's first outputs, in
        order.
    new: where to write each of the graph's last outputs: the name of a buffer, or the number of a
        leaf among the arguments.
    """

    arguments: tuple[list[Any] | None, ...]
    written: tuple[str, ...]
    results: tuple[list[Any] | str, ...]
    new: tuple[str | int, ...]


def bound(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
    count: int,
    keywords: Collection[str],
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments of a call in the example's form.

    Arguments that the call gives by keyword become positional if they are positional in the
    example.  If the call has other arguments than the example, all are returned unchanged.

    names: names of the example's arguments, the positional ones first; empty if not known.
    count: number of positional arguments of the example.
    keywords: names of the example's keyword arguments.
    """
    missing = names[len(args) : count]
    if len(args) >= count or set(kwargs) != {*missing, *keywords}:
        return args, kwargs
    rest = {name: kwargs[name] for name in keywords}
    return (*args, *(kwargs[name] for name in missing)), rest


def name_of(path: Sequence[object], number: int, count: int) -> str:
    """The name of a leaf of the results: the keys in `path`, joined by dots.

    If all keys are numbers, the name is "output" and the leaf's `number`, or just "output" if the
    results have a single leaf.

    count: number of leaves.
    """
    keys = [str(k) for k in path]
    if any(not k.isdigit() for k in keys):
        return ".".join(keys)
    return "output" if count == 1 else f"output{number}"
