"""The calls of a graph in an archive, with the graphs inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.frontend.archive.arguments import argument
from tilesmith.frontend.archive.composites import Composites
from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.aten.functional import Functional, functional
from tilesmith.frontend.aten.program import PLACED, Block, Call, Memory, Ref, line_of, needed
from tilesmith.support.errors import UnsupportedError

_DEEPEST = 16
"""Upper bound on the nesting of graphs."""


def current_of(value: Any, current: Callable[[str], str]) -> Any:
    """An argument in which the name of a tensor is replaced by the name of its current contents."""
    return Ref(current(value.name)) if isinstance(value, Ref) else value


_WRAPPERS = {
    "torch.ops.higher_order.wrap_with_set_grad_enabled": 1,
    "torch.ops.higher_order.wrap_with_autocast": 4,
}
"""Operators that run a graph in another state of PyTorch, and the argument that is the graph."""


_BRANCHING = {
    "torch.ops.higher_order.cond": "cond",
    "torch.ops.higher_order.while_loop": "while_loop",
}
"""Operators with graphs among their arguments, and the names of their import functions."""


@dataclass(slots=True)
class CallGraph:
    """Reads the calls of a graph.

    graph: the graph in the archive's form.
    composites: expands composed operators.
    prefix: prefix of the names that the graph defines.
    given: the values of the graph's inputs by name, for a graph inside another graph.
    depth: number of enclosing graphs.
    traced: collects the archive's records about names, such as types.
    """

    graph: Json
    composites: Composites
    prefix: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0
    traced: dict[str, Json] = field(default_factory=dict)

    def functional(self) -> Functional:
        """The calls without writes to tensors, and with composed operators expanded."""
        return functional(self.composites.expanded(self.calls(), self.traced))

    def calls(self) -> Iterator[Call]:
        if self.depth > _DEEPEST:
            self.graph.bad(f"at most {_DEEPEST} graphs inside one another")
        for table in ("tensor_values", "sym_int_values"):
            for name, meta in self.graph[table].items():
                self.traced.setdefault(f"{self.prefix}{name}", meta)
        for node in self.graph["nodes"].list():
            target = node["target"].text()
            inputs = node["inputs"].list()
            if target in _WRAPPERS:
                yield from self._inner(node, inputs, _WRAPPERS[target])
                continue
            by_name = [_is_keyword(i) for i in inputs]
            args = [i["arg"] for i, named in zip(inputs, by_name, strict=True) if not named]
            if target in _BRANCHING:
                yield self._branching(node, args)
                continue
            kwargs = {
                i["name"].text(): self._own(argument(i["arg"]))
                for i, named in zip(inputs, by_name, strict=True)
                if named
            }
            target = _target(target)
            if target in PLACED and isinstance(of := argument(args[0]), Ref):
                kwargs["memory"] = self._memory(of.name)
            yield Call(
                target,
                [self._own(argument(a)) for a in args],
                kwargs,
                self._results(node),
                self._where(node),
            )

    def _memory(self, name: str) -> Memory:
        """The strides of a tensor and the position of its first element; no strides if one is
        open.
        """
        meta = self.graph["tensor_values"][name]
        strides = [s.one() for s in meta["strides"].list()]
        form, offset = meta["storage_offset"].one()
        if any(f != "as_int" for f in (*(f for f, _ in strides), form)):
            return (), 0
        return tuple(s.integer(0) for _, s in strides), offset.integer(0)

    def _inner(self, node: Json, inputs: list[Json], at: int) -> Iterator[Call]:
        """The calls of a subgraph, in place of the node that calls the subgraph."""
        if len(inputs) <= at:
            node.bad(f"at least {at + 1} arguments")
        if at == 4 and argument(inputs[2]["arg"]) is not False:
            raise UnsupportedError(
                f"{node.place}: autocast around a part of the model is not supported; export the "
                "model without torch.autocast"
            )
        graph = inputs[at]["arg"]["as_graph"]["graph"]
        names = [argument(a) for a in graph["inputs"].list()]
        args = [self._own(argument(i["arg"])) for i in inputs[at + 1 :]]
        if len(names) != len(args) or not all(isinstance(n, Ref) for n in names):
            node.bad(f"{len(names)} arguments for the graph's inputs")
        pairs = zip(names, args, strict=True)
        inside = f"{self.prefix}{_name(node)}/"
        by_name = {n.name: a for n, a in pairs}
        inner = CallGraph(graph, self.composites, inside, by_name, self.depth + 1, self.traced)
        yield from inner.calls()
        outputs = [inner._own(argument(o)) for o in graph["outputs"].list()]
        names = self._results(node)
        results = (names,) if isinstance(names, str) else names
        if len(outputs) != len(results):
            node.bad(f"{len(outputs)} results")
        for value, name in zip(outputs, results, strict=True):
            if name:
                yield Call("aten.alias.default", [value], {}, name, self._where(node))

    def _branching(self, node: Json, args: list[Json]) -> Call:
        """A call with graphs among its arguments: the control flow of the model."""
        operands = [
            self._block(a["as_graph"]["graph"])
            if a.one()[0] == "as_graph"
            else self._own(argument(a))
            for a in args
        ]
        names = self._results(node)
        results = (names,) if isinstance(names, str) else names
        target = _BRANCHING[node["target"].text()]
        return Call(target, operands, {}, results, self._where(node))

    def _block(self, graph: Json) -> Block:
        """A graph as an argument.  It uses no names from outside."""
        inner = CallGraph(graph, self.composites, depth=self.depth + 1)
        rewritten = inner.functional()
        names = [argument(a) for a in graph["inputs"].list()]
        for name in names:
            if not isinstance(name, Ref):
                graph.bad("names of inputs")
            if rewritten.current(name.name) != name.name:
                raise UnsupportedError(
                    f"{graph.place}: a branch or a loop writes to {name.name!r}, a tensor of the "
                    "code around it; write to a clone()"
                )
        outputs = [current_of(argument(o), rewritten.current) for o in graph["outputs"].list()]
        calls = needed(rewritten.calls, outputs)
        return Block(tuple(n.name for n in names), tuple(calls), outputs)

    def _own(self, given: Any) -> Any:
        """An argument with its names replaced.  The name of an input of the graph becomes the value
        in `self.given`; other names get `self.prefix`.
        """
        if isinstance(given, Ref):
            return self.given.get(given.name, Ref(f"{self.prefix}{given.name}"))
        if isinstance(given, list):
            return [self._own(a) for a in given]
        return given

    def _results(self, node: Json) -> str | tuple[str, ...]:
        outputs = node["outputs"].list()
        if not outputs:
            return f"{self.prefix}{_name(node)}"
        names: list[str] = []
        for o in outputs:
            form, _ = o.one()
            result = argument(o)
            if form not in ("as_none", "as_tensor", "as_tensors") and not isinstance(result, Ref):
                o.bad("the name of a result")
            names += [f.name if isinstance(f, Ref) else "" for f in _listed(result)]
        is_single = len(outputs) == 1 and outputs[0].one()[0] != "as_tensors"
        named = tuple(n and f"{self.prefix}{n}" for n in names)
        if not any(named):
            return f"{self.prefix}{_name(node)}"
        return named[0] if is_single else named

    def _where(self, node: Json) -> str:
        trace = node["metadata"].get("stack_trace")
        return line_of(trace.text()) if trace is not None else ""


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _is_keyword(given: Json) -> bool:
    kind = given.get("kind")
    return kind is not None and kind.integer() == 2


def _name(node: Json) -> str:
    name = node.get("name")
    return node["target"].text() if name is None else name.text()


def _target(text: str) -> str:
    """The name of an operator or function, as `frontend.torch.fx.target_name` returns it."""
    if text.startswith("torch.ops."):
        return text.removeprefix("torch.ops.")
    return f"operator.{text.removeprefix('_operator.')}" if text.startswith("_operator.") else text
