"""Import of the calls of a program: names become values, calls become the graph's operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature
from itertools import zip_longest
from typing import Any

from tilesmith.frontend.aten.custom import registered
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.program import Block, Call, Ref
from tilesmith.frontend.aten.refusals import reason_of
from tilesmith.frontend.aten.registry import OPERATORS, PLACEMENT
from tilesmith.frontend.common.errors import NotedError
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.slots import FAILED, Failed
from tilesmith.graph.nodes import Value
from tilesmith.support.errors import ModelError, UnsupportedError

_WORD = re.compile(r"\w+")


class AtenImporter(Importer):
    """Imports the calls of one program.

    names: the names defined so far, with their meanings.  A meaning is a value, a number, a
        symbolic size, a tuple of these, or `FAILED`.  A reader adds the inputs and constants.
    """

    def __init__(self, builder: Any, may_fall_back: bool = True) -> None:
        """Create an importer.

        may_fall_back: whether PyTorch will run refused operators.  If not, messages say how to
            leave them to PyTorch.
        """
        super().__init__(builder)
        self.names: dict[str, Any] = {}
        self._may_fall_back = may_fall_back

    def run(self, calls: Iterable[Call]) -> None:
        """Imports calls in order.  A call uses only results of earlier calls.

        Unsupported operators are recorded, and `check` reports them.  Raises ModelError.
        """
        for call in calls:
            self.builder.count()
            site = Site(call.target, "", call.where or call.name)
            results = self.attempt(site, lambda call=call: [self._result(call)])
            self._define(call, FAILED if results is None else results[0])

    def resolved(self, argument: Any) -> Any:
        """An argument with names replaced by their meanings."""
        if isinstance(argument, Ref):
            if argument.name not in self.names:
                raise ModelError(f"{argument.name!r} is used, which nothing defines")
            return self.names[argument.name]
        if isinstance(argument, Block):
            return Branch(self, argument)
        if isinstance(argument, (list, tuple)):
            return [self.resolved(a) for a in argument]
        return argument

    def run_block(self, builder: FoldingBuilder, block: Block, arguments: Sequence[Any]) -> Any:
        """Import a block into `builder`.  Returns the block's results.

        Records unsupported calls in the block, and raises NotedError if there are any.
        """
        inside = AtenImporter(builder, self._may_fall_back)
        inside.names.update(zip(block.inputs, arguments, strict=True))
        inside.run(block.calls)
        if inside.problems:
            self._problems.extend(inside.problems)
            raise NotedError("it has calls that are not supported")
        return inside.resolved(block.outputs)

    def _result(self, call: Call) -> Any:
        function, ignored = OPERATORS.find("", call.target), PLACEMENT
        if function is None:
            function, ignored = registered(call.target), frozenset()
        if function is None:
            raise UnsupportedError(reason_of(call.target, self._may_fall_back))
        args = [self.resolved(a) for a in call.args]
        kwargs = {n: self.resolved(a) for n, a in call.kwargs.items() if n not in ignored}
        if any(isinstance(a, Failed) for a in _leaves([*args, *kwargs.values()])):
            return FAILED
        node = AtenNode(self.builder, call.name, call.name, call.target, call.count)
        with self.builder.at(call.name, call.name):
            names = _sizes_of(function)
            args = [_measured(node, a) if p in names else a for p, a in _named(function, args)]
            kwargs = {p: _measured(node, a) if p in names else a for p, a in kwargs.items()}
            return function(node, *args, **kwargs)

    def _define(self, call: Call, result: Any) -> None:
        if isinstance(call.results, str):
            self.names[call.results] = result
            return
        several: Sequence[Any] = [result] * len(call.results)
        if not isinstance(result, Failed):
            several = result if isinstance(result, (tuple, list)) else [result]
        if len(several) < len(call.results):
            raise ModelError(
                f"{call.target} has {len(several)} results, found {len(call.results)} names"
            )
        self.names.update(
            {name: value for name, value in zip(call.results, several, strict=False) if name}
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A block as an argument of an operator's import function.

    importer: the importer of the enclosing program; it records unsupported operators.
    block: its calls.
    """

    importer: AtenImporter
    block: Block

    def __call__(self, builder: FoldingBuilder, arguments: Sequence[Any]) -> Any:
        """Import the calls into `builder`, for `arguments` (see `AtenImporter.run_block`)."""
        return self.importer.run_block(builder, self.block, arguments)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of an import function's parameters after the node."""
    return tuple(signature(function).parameters)[1:]


@cache
def _sizes_of(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters of an import function that accept extents but no `Value`."""
    while isinstance(function, partial):
        function = function.func
    kinds = getattr(function, "__annotations__", {}).items()
    words = {name: set(_WORD.findall(str(kind))) for name, kind in kinds}
    return frozenset(name for name, of in words.items() if "Dim" in of and "Value" not in of)


def _named(function: Callable[..., Any], args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The parameter name and the value of each positional argument.  The name is "" for a surplus
    argument.
    """
    return zip_longest(_parameters(function)[: len(args)], args, fillvalue="")


def _measured(n: AtenNode, argument: Any) -> Any:
    """One or several extents, with each `Value` replaced by an extent (see `AtenNode.dims_of`)."""
    if isinstance(argument, (list, tuple)):
        return n.dims_of(argument)
    return n.dims_of((argument,))[0] if isinstance(argument, Value) else argument


def _leaves(arguments: Iterable[Any]) -> Iterator[Any]:
    for a in arguments:
        if isinstance(a, (list, tuple)):
            yield from _leaves(a)
        else:
            yield a
