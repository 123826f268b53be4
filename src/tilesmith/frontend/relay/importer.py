"""The walk over a Relay program: expressions become values, tuples of values, or closures.

A call of a function is inlined.  A function that calls itself becomes a loop if its body is
bindings and an `if`, and one branch of the `if` ends in the call.  Other recursion must end at
compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import branched, results_of
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.slots import FAILED, Slot
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.common.whiles import repeated
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data, Value
from tilesmith.support.errors import ModelError, UnsupportedError

from . import syntax as sx
from .node import OPERATORS, RelayNode

Item: TypeAlias = Any
"""A value, a closure, a failed value, or a tuple of items."""

Graph: TypeAlias = "Callable[[Body | None, Sequence[Slot]], Item]"
"""Adds a part of a program to a body, for the part's arguments.  Returns the part's result.  If the
body is None, the nodes are added to the current builder."""


@dataclass(slots=True, eq=False)
class Scope:
    """Local names.

    parent: the enclosing scope.
    body: the graph body in which the names are used; None if it is the parent's.
    names: the item of each name.
    """

    parent: Scope | None = None
    body: Body | None = None
    names: dict[str, Item] = field(default_factory=dict)

    def find(self, name: str) -> Item:
        """The meaning of a name.  Raises ModelError if it has none here."""
        if name not in self.names:
            if self.parent is None:
                raise ModelError(f"%{name} is used where it is not defined")
            item = self.parent.find(name)
            self.names[name] = item if self.body is None else captured(item, self.body)
        return self.names[name]


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function with its scope.

    itself: the expression by which the function's body refers to the function.
    """

    function: sx.Function
    scope: Scope | None
    itself: sx.Name | sx.Global | None = None


def captured(item: Item, body: Body) -> Item:
    """The item in `body` that stands for `item` of the enclosing graph."""
    if isinstance(item, tuple):
        return tuple(captured(i, body) for i in item)
    if isinstance(item, Closure):
        return Closure(item.function, Scope(item.scope, body), item.itself)
    return body.slot(item)


def flat(item: Item) -> list[Any]:
    """The leaves of nested tuples, in order."""
    return [f for i in item for f in flat(i)] if isinstance(item, tuple) else [item]


def built(like: Item, items: Iterator[Any]) -> Item:
    """Nested tuples with the structure of `like` and the leaves `items`."""
    return tuple(built(i, items) for i in like) if isinstance(like, tuple) else next(items)


def straight(e: sx.Expr) -> tuple[tuple[tuple[str, sx.Expr], ...], sx.Expr]:
    """The bindings of an expression, and its result.

    If the result is only the name of the last binding, as in A-normal form, that binding's
    expression is the result.
    """
    bindings: tuple[tuple[str, sx.Expr], ...] = ()
    while isinstance(e, sx.Block):
        bindings, e = (*bindings, *e.bindings), e.result
        if isinstance(e, sx.Name) and bindings and bindings[-1][0] == e.name:
            bindings, e = bindings[:-1], bindings[-1][1]
    return bindings, e


class RelayImporter(Importer):
    """Imports one program."""

    def __init__(self, builder: FoldingBuilder, module: sx.Module, weights: NewWeights) -> None:
        """weights: new contents for constants, by name."""
        super().__init__(builder)
        self.module = module
        self._weights = weights
        self._active: dict[sx.Function, int] = {}
        """The functions that are being inlined, each with `_open` at its call: the number of
        enclosing branches and loops whose condition only a run knows."""
        self._depth = self._open = 0

    # Expressions

    def evaluate(self, e: sx.Expr, scope: Scope, label: str = "") -> Item:
        """The item that an expression computes; `label` names its node."""
        match e:
            case sx.Name():
                return scope.find(e.name)
            case sx.Global():
                if e.name not in self.module.functions:
                    raise ModelError(f"the module has no function @{e.name}")
                return Closure(self.module.functions[e.name], None, e)
            case sx.Literal():
                type_ = array_type(e.array)
                data = Data.of(e.array)
                if e.name:
                    data = self._weights.data(e.name, type_, data)
                return self.builder.lazy_constant(type_, data, e.name)
            case sx.Tuple():
                return tuple(self.evaluate(i, scope) for i in e.items)
            case sx.Item():
                return self._item(self.evaluate(e.of, scope), e.index)
            case sx.Function():
                return Closure(e, scope, sx.Name(label) if label else None)
            case sx.Block():
                inner = Scope(scope)
                self._bind(e.bindings, inner)
                return self.evaluate(e.result, inner, label)
            case sx.Match():
                return self._match(self.evaluate(e.of, scope), e, scope)
            case sx.Branch():
                condition = self.evaluate(e.condition, scope)
                return self._branch(condition, e, scope, label)
            case sx.Call():
                return self._call(e, scope, label)
            case sx.Operator():
                raise ModelError(f"operator {e.name} is used without arguments")

    def _bind(self, bindings: Sequence[tuple[str, sx.Expr]], scope: Scope) -> None:
        for name, e in bindings:
            scope.names[name] = self.evaluate(e, scope, name)

    def _item(self, of: Item, index: int) -> Item:
        if of is FAILED:
            return FAILED
        if not isinstance(of, tuple) or not 0 <= index < len(of):
            raise ModelError(f"expected a tuple with an element {index}")
        return of[index]

    def _match(self, of: Item, e: sx.Match, scope: Scope) -> Item:
        for pattern, result in e.clauses:
            inner = Scope(scope)
            if self._fits(pattern, of, inner):
                return self.evaluate(result, inner)
        raise ModelError("no pattern of a match fits")

    def _fits(self, pattern: sx.Pattern, item: Item, scope: Scope) -> bool:
        """Whether an item matches a pattern.  The pattern's names are bound in `scope`."""
        if isinstance(pattern, str):
            scope.names[pattern] = item
            return True
        if item is FAILED:
            item = (FAILED,) * len(pattern)
        if not isinstance(item, tuple) or len(item) != len(pattern):
            return False
        return all(self._fits(p, i, scope) for p, i in zip(pattern, item, strict=True))

    # Calls

    def _call(self, e: sx.Call, scope: Scope, label: str) -> Item:
        arguments = tuple(self.evaluate(a, scope) for a in e.arguments)
        if isinstance(e.callee, sx.Operator):
            return self._operator(e.callee.name, arguments, e, label)
        closure = self.evaluate(e.callee, scope)
        if closure is FAILED:
            return FAILED
        if not isinstance(closure, Closure):
            raise ModelError(f"line {e.line}: expected a function, found a value that is called")
        self.builder.count()
        return self._function(closure, arguments, e, label)

    def _node(self, operator: str, slots: tuple[Item, ...], e: sx.Call, label: str) -> RelayNode:
        def inline(graph: Graph, arguments: Sequence[Slot], loc: str) -> list[Slot]:
            return flat(graph(None, arguments))

        loc = f"%{label}" if label else f"line {e.line}"
        name = "" if label.isdecimal() else label
        return RelayNode(
            self.builder, loc, name, inline, self._nested, operator, slots, e.attributes
        )

    def _nested(
        self, body: Body, graph: Graph, arguments: Sequence[Slot], loc: str
    ) -> list[Slot] | None:
        return self.within(body, lambda: flat(graph(body, arguments)))

    def _operator(self, name: str, arguments: tuple[Item, ...], e: sx.Call, label: str) -> Item:
        self.builder.count()
        node = self._node(name, arguments, e, label)

        def made() -> Sequence[Any] | None:
            function = OPERATORS.find("", name)
            if function is None:
                raise UnsupportedError("the operator is not supported")
            if any(f is FAILED for f in flat(arguments)):
                return None
            with self.builder.at(node.loc, node.label):
                result = function(node)
            node.check_all_read()
            return [result]

        results = self.attempt(Site(name, "", node.loc), made)
        return FAILED if results is None else results[0]

    def _function(
        self, closure: Closure, arguments: tuple[Item, ...], e: sx.Call, label: str
    ) -> Item:
        function = closure.function
        parameters = function.parameters
        if len(arguments) != len(parameters):
            raise ModelError(
                f"line {e.line}: expected {len(parameters)} arguments of a function, found "
                f"{len(arguments)}"
            )
        loop = _loop(closure)
        if loop is not None:
            return self._repeated(closure, loop, arguments, e, label)
        if self._depth > MAX_DEPTH or self._active.get(function, self._open) < self._open:
            reason = "calls itself where only a run knows whether it ends"
            if self._depth > MAX_DEPTH:
                reason = f"is called more than {MAX_DEPTH} deep"
            raise UnsupportedError(f"line {e.line}: a function {reason}, and not as its last step")
        before = self._active.get(function)
        self._active[function] = self._open
        self._depth += 1
        try:
            return self.evaluate(function.body, self._entered(closure, None, arguments))
        finally:
            self._depth -= 1
            self._active.pop(function)
            if before is not None:
                self._active[function] = before

    def _entered(self, closure: Closure, body: Body | None, arguments: Sequence[Item]) -> Scope:
        """A scope in which the function's parameters have the values `arguments` of `body`."""
        scope = Scope(closure.scope, body)
        for (name, type_), item in zip(closure.function.parameters, arguments, strict=True):
            if (
                isinstance(type_, sx.Tensor)
                and isinstance(item, Value)
                and (item.dtype, item.type.rank) != (type_.dtype, len(type_.dims))
            ):
                raise ModelError(
                    f"parameter %{name}: expected {type_.dtype} of rank {len(type_.dims)}, found "
                    f"{item.type}"
                )
            scope.names[name] = item
        if isinstance(closure.itself, sx.Name):
            inside = closure if body is None else captured(closure, body)
            scope.names.setdefault(closure.itself.name, inside)
        return scope

    # Control flow

    def _branch(self, condition: Item, e: sx.Branch, scope: Scope, label: str) -> Item:
        if condition is FAILED:
            return FAILED
        node = self._node("if", (condition,), sx.Call(e, (), {}, e.line), label)
        like: list[Item] = []

        def graph(part: sx.Expr) -> Graph:
            def added(body: Body | None, arguments: Sequence[Slot]) -> Item:
                like.append(self.evaluate(part, Scope(scope, body)))
                return like[-1]

            return added

        def made() -> Sequence[Any]:
            is_known = node.known(node.input(0)) is not None
            self._open += not is_known
            try:
                results = branched(node, node.input(0), (graph(e.then), graph(e.otherwise)))
            finally:
                self._open -= not is_known
            return results if isinstance(results, tuple) else (results,)

        results = self.attempt(Site("if", "", node.loc), made)
        return FAILED if results is None else built(like[-1], iter(results))

    def _repeated(
        self, closure: Closure, loop: _Loop, arguments: tuple[Item, ...], e: sx.Call, label: str
    ) -> Item:
        """The result of a loop that is written as a function."""
        if any(f is FAILED for f in flat(arguments)):
            return FAILED
        node = self._node("loop", arguments, e, label)

        def entered(body: Body | None, state: Sequence[Any]) -> Scope:
            scope = self._entered(closure, body, built(arguments, iter(state)))
            self._bind(loop.bindings, scope)
            return scope

        def condition(body: Body | None, state: Sequence[Slot]) -> Item:
            going = self.evaluate(loop.condition, entered(body, state))
            return going if loop.goes_on or not isinstance(going, Value) else ~going

        def step(body: Body | None, state: Sequence[Slot]) -> Item:
            scope = entered(body, state)
            self._bind(loop.again[0], scope)
            return tuple(self.evaluate(a, scope) for a in loop.again[1].arguments)

        def made() -> Sequence[Any]:
            self._open += 1
            try:
                return results_of(flat(repeated(node, condition, step, flat(arguments))))
            finally:
                self._open -= 1

        last = self.attempt(Site("loop", "", node.loc), made)
        return FAILED if last is None else self.evaluate(loop.end, entered(None, last))


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """A loop that is written as a function.

    bindings: bindings of the function's body before its `if`.
    condition: condition of the `if`.
    goes_on: whether the loop continues if the condition is true; otherwise, if it is false.
    again: the continuing branch: its bindings, and the call that begins the next iteration.
    end: the other branch, the loop's result.
    """

    bindings: tuple[tuple[str, sx.Expr], ...]
    condition: sx.Expr
    goes_on: bool
    again: tuple[tuple[tuple[str, sx.Expr], ...], sx.Call]
    end: sx.Expr


def _loop(closure: Closure) -> _Loop | None:
    """A function as a loop; None if the function has another form."""
    bindings, branch = straight(closure.function.body)
    if closure.itself is None or not isinstance(branch, sx.Branch):
        return None
    for goes_on, part, end in (
        (True, branch.then, branch.otherwise),
        (False, branch.otherwise, branch.then),
    ):
        inner, call = straight(part)
        _, other = straight(end)
        if _calls(call, closure) and not _calls(other, closure):
            assert isinstance(call, sx.Call)
            return _Loop(bindings, branch.condition, goes_on, (inner, call), end)
    return None


def _calls(e: sx.Expr, closure: Closure) -> bool:
    """Whether an expression in a function's body calls that function."""
    return (
        isinstance(e, sx.Call)
        and type(e.callee) is type(closure.itself)
        and e.callee.name == closure.itself.name  # type: ignore[union-attr]
    )
