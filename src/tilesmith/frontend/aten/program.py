"""A program of ATen operators, independent of its source: calls of operators by name.

Its sources are graphs of `torch.export` and of a compiler backend, the JSON of an archive, and
TorchScript.  So a program contains only names, numbers, lists and our element types, and nothing of
PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that refers to an input, a constant or a call's result by `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator.

    target: the operator with its overload, such as "aten.add.Tensor", or a function of Python on
        sizes, such as "operator.mul".
    args: its arguments in the order of the operator's schema: `Ref`, numbers, bools, strings,
        `DType`, None, and lists of these.
    kwargs: further arguments by name.
    results: the name of the result, or a tuple of names for several results.  An unused result in a
        tuple has the name "".
    where: the line of the model's source that made the call, for messages; empty if not known.
    several: the length of the list if `results` names a list; None otherwise.
    """

    target: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    results: str | tuple[str, ...]
    where: str = ""
    several: int | None = None

    @property
    def count(self) -> int | None:
        """The number of results, or the list's length; None for a single result that is no list."""
        return self.several if isinstance(self.results, str) else len(self.results)

    @property
    def name(self) -> str:
        """The call's name in messages."""
        return self.results if isinstance(self.results, str) else next(filter(None, self.results))


Memory: TypeAlias = tuple[Sequence[int], int]
"""Layout of a tensor in memory: the strides, and the position of the first element.  Both count
elements.  Empty strides mean that sizes are open and the order is not row-major.
"""

PLACED = (
    "aten.as_strided.default",
    "aten.as_strided_copy.default",
    "aten.as_strided_scatter.default",
)
"""Operators that get the layout of their first argument as `memory=`, a `Memory`."""


@dataclass(frozen=True, slots=True)
class Block:
    """An argument that consists of calls: a branch, or the body of a loop.  The calls use only
    names of the block.

    inputs: the names of the block's arguments.
    calls: calls in an order in which each call uses only earlier ones.
    outputs: the block's results, in the form of arguments of a `Call`.
    """

    inputs: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: Any


def names_in(given: Any) -> Iterator[str]:
    """The names in one or several arguments of calls."""
    if isinstance(given, Ref):
        yield given.name
    elif isinstance(given, (list, tuple)):
        for g in given:
            yield from names_in(g)


_CHECKS = ("aten._assert_", "aten.sym_constrain_")
"""Prefixes of the names of operators that return nothing, but may refuse a run."""


def needed(calls: Sequence[Call], results: Any) -> list[Call]:
    """Dead code elimination for a program without writes: the calls that `results` need, and the
    calls that check something.  Unused results of these calls get empty names.

    results: arguments of calls.
    """
    used, kept = set(names_in(results)), []
    for c in reversed(calls):
        names = (c.results,) if isinstance(c.results, str) else c.results
        if used.isdisjoint(names) and not c.target.startswith(_CHECKS):
            continue
        if not isinstance(c.results, str):
            c = replace(c, results=tuple(n if n in used else "" for n in names))
        kept.append(c)
        used.update(names_in([*c.args, *c.kwargs.values()]))
    return kept[::-1]


_FRAMES = ("torch/fx/", "torch/_", "torch/nn/", "torch/export/")
"""Parts of the paths of PyTorch's own files.  `line_of` returns a line of such a file only if the
trace has no line of another file.
"""


def line_of(trace: str) -> str:
    """The model's line in a trace, "model.py:7 in forward: h = self.conv(x)"; empty if none."""
    places: list[tuple[str, str]] = []
    for line in trace.splitlines():
        text = line.strip()
        if text.startswith('File "'):
            file, _, rest = text.removeprefix('File "').partition('", line ')
            number, _, function = rest.partition(", in ")
            places.append((f"{file}:{number} in {function}", ""))
        elif places and not places[-1][1]:
            places[-1] = (places[-1][0], text)
    own = [p for p in places if not any(f in p[0] for f in _FRAMES)] or places
    if not own:
        return ""
    place, code = own[-1]
    return f"{place}: {code}" if code else place
