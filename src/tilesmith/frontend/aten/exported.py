"""An exported program: calls of operators, its inputs and outputs, and the weights.

Objects of `torch.export` and their archives are both read into this description.  `graph.py` makes
a `Graph` of it, and callers of the compiled program read its signature.
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

    name: its name in the calls.
    kind: a tensor, a number that is an input (whether an extent or not), or a constant.
    dtype: element type of a tensor or of a number; None for a constant.
    dims: extents of a tensor: numbers, and expressions of symbols by their text.
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

    kind: a tensor, a number, or a constant.
    value: the value, like an argument of a call.
    written: the written tensor: the name of a weight, or the number of an argument; None for a
        result.
    """

    kind: Kind
    value: Any
    written: str | int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a symbol of a program stands for.

    low: the smallest.
    high: the largest; None if there is none.
    """

    low: int
    high: int | None


class Structure(Protocol):
    """The nesting of a module's arguments and results."""

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of a call, one after another.

        Raises ModelError if their nesting differs from the module's.
        """
        ...

    def restored(self, leaves: Sequence[Any]) -> Any:
        """The results of the module, from their leaves."""
        ...

    def names(self) -> list[str]:
        """Names for the parts of the results: by keys where these are text, else by number."""
        ...


@dataclass(frozen=True, slots=True)
class Exported:
    """A program of ATen operators with all that it needs.

    name: its name in messages.
    inputs: its arguments in order, and weights.
    outputs: results in order, then written tensors.
    weights: tensors or arrays by name; inputs determine which are used.
    state: the names of the weights in the module's state: parameters and persistent buffers.
    ranges: ranges of the symbols in extents, by their text.
    hints: values of symbolic extents in the example, by their text.
    structure: nesting of its arguments and results.
    calls: its calls, each after the calls that it uses.
    guards: conditions on the sizes of arguments that its trace assumed (`guards.py`).
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

    arguments: for each leaf of the program's arguments, the constant that it must be, as a list of
        one; None for a tensor or a size, which are inputs in order.
    written: the buffers that the program writes, which are the last inputs.
    results: for each leaf of its results, the constant that it is, as a list of one; "tensor", or
        "size" for a number.  The last two are outputs in order.
    new: where the last outputs are written: the name of a buffer, or the number of a leaf among the
        arguments.
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
    """The arguments of a call in the example's form.  Positional arguments of the example may be
    given by keyword.  If the arguments are not the example's, they are returned unchanged.

    names: names of the example's arguments, the positional ones first; empty if not known.
    count: number of these that were positional.
    keywords: the names of the other arguments.
    """
    missing = names[len(args) : count]
    if len(args) >= count or set(kwargs) != {*missing, *keywords}:
        return args, kwargs
    rest = {name: kwargs[name] for name in keywords}
    return (*args, *(kwargs[name] for name in missing)), rest


def name_of(path: Sequence[object], number: int, count: int) -> str:
    """The name of a leaf of the results, by its keys; by its number if all are numbers."""
    keys = [str(k) for k in path]
    if any(not k.isdigit() for k in keys):
        return ".".join(keys)
    return "output" if count == 1 else f"output{number}"
