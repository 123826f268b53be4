"""The walk over a model: names become values, nodes become operators.

Functions of the model are inlined, control flow is resolved where its condition is known, and
values that do not depend on the inputs are computed as they appear, so that shapes written as
computations (Shape, Gather, Concat, Reshape) are numbers by the time an operator needs them. A
node that cannot be imported does not stop the walk: all such nodes are reported together at the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.onnx import registry
from tilesmith.frontend.onnx.attributes import Attributes
from tilesmith.frontend.onnx.errors import NotedError, ValuesNeededError
from tilesmith.frontend.onnx.external import ExternalFiles
from tilesmith.frontend.onnx.node import NodeContext
from tilesmith.frontend.onnx.problems import Problem
from tilesmith.frontend.onnx.proto import text
from tilesmith.frontend.onnx.slots import FAILED, Failed, Slot
from tilesmith.frontend.onnx.structure import captured, node_name, ordered, subgraphs
from tilesmith.frontend.onnx.tensors import MAX_ELEMENTS, Contents, decode, decode_sparse
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate_op
from tilesmith.graph.nodes import Data, Value
from tilesmith.ops.base import Op
from tilesmith.support.errors import ModelError, UnsupportedError

_FOLD_ELEMENTS = 1 << 14
"""Results up to this many elements are computed during import;

larger ones when something asks for them.
"""

_FOLD_BYTES = 1 << 30
"""Memory for all such results together; a small file must not be able to fill the machine."""

_NODE_LIMIT = 500_000
"""A model that unfolds into more nodes (functions in functions, long loops) is refused."""

_DEPTH_LIMIT = 64
"""Functions and sub-graphs within one another."""

_NOT_FOLDED = frozenset(
    {
        "attention",
        "avg_pool",
        "col2_im",
        "conv",
        "conv_transpose",
        "deform_conv",
        "deform_sample",
        "dft",
        "einsum",
        "grid_sample",
        "lp_pool",
        "max_pool",
        "max_pool_indices",
        "resample",
        "resize",
        "roi_align",
        "stft",
    }
)
"""Operators whose reference may need far more than operands and result take: never for shapes."""

_DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(slots=True)
class Frame:
    """Where names are looked up while one graph or function body is walked."""

    opsets: dict[str, int]
    parent: Frame | None = None
    attributes: Attributes | None = None
    prefix: str = ""
    depth: int = 0
    names: dict[str, Slot] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.names or (self.parent is not None and name in self.parent)

    def find(self, name: str) -> Slot:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        raise ModelError(f"{name!r} is used, which nothing defines")


class Importer:
    """Imports one model into one `Builder`."""

    def __init__(self, builder: Builder, files: ExternalFiles, functions: Sequence[Any]) -> None:
        self.builder = builder
        self.files = files
        self.problems: list[Problem] = []
        self._functions: dict[tuple[str, str, str], Any] = {}
        for f in functions:
            key = (
                domain_of(f),
                text(f.name, "a function's name"),
                text(f.overload, "a function's overload"),
            )
            if key in self._functions:
                raise ModelError(f"function {key[1]!r} of domain {key[0]!r} is defined twice")
            self._functions[key] = f
        self._calls: list[tuple[str, str, str]] = []
        self._visited = 0
        self._origin: dict[Value, tuple[Op, tuple[Value, ...], int]] = {}
        self._folded: dict[Value, np.ndarray] = {}
        self._constants: dict[Value, Data] = {}
        self._label = ""
        self._streams = 0
        self._fold_bytes = 0

    # Values

    def next_stream(self) -> int:
        """The number of a source of random numbers among those that have no seed."""
        self._streams += 1
        return self._streams

    def constant(self, array: np.ndarray) -> Value:
        """A constant made during import."""
        value = self.builder.constant(array)
        self._constants.setdefault(value, Data.of(array))
        return value

    def stored(self, contents: Contents, name: str) -> Value:
        """A constant of the model."""
        value = self.builder.lazy_constant(contents.type, contents.data, name)
        self._constants[value] = contents.data
        return value

    def add(self, op: Op, inputs: Sequence[Value], loc: str) -> Any:
        """`builder.add`, with limits on the result;

        computed at once when all inputs are small constants.
        """
        self._count()
        result = self.builder.add(op, *inputs, loc=loc, name=self._label)
        outputs = result if isinstance(result, tuple) else (result,)
        for v in outputs:
            if v.type.is_static and v.type.size > MAX_ELEMENTS:
                raise ModelError(
                    f"{op.name} gives {v.type}: more than {MAX_ELEMENTS} elements, the most allowed"
                )
        for i, v in enumerate(outputs):
            self._origin[v] = (op, tuple(inputs), i)
        small = all(v.type.size <= _FOLD_ELEMENTS for v in (*inputs, *outputs))
        cheap = small and op.name not in _NOT_FOLDED and self._fold_bytes < _FOLD_BYTES
        if cheap and all(self._is_constant(v) for v in inputs):
            arrays = evaluate_op(op, *(self._array(v) for v in inputs))
            self._fold_bytes += sum(a.nbytes for a in arrays)
            folded = tuple(self.constant(a) for a in arrays)
            return folded if isinstance(result, tuple) else folded[0]
        return result

    def known(self, value: Value) -> np.ndarray | None:
        """The contents of a value that does not depend on inputs, computed now if need be;

        else None.
        """
        if self._is_constant(value):
            return self._array(value)
        if value in self._folded:
            return self._folded[value]
        order: list[Value] = []
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            if self._is_constant(v) or v in self._folded:
                continue
            made = self._origin.get(v)
            if made is None or made[0].name in _NOT_FOLDED or v.type.bytes > 1 << 26:
                return None
            order.append(v)
            for i in made[1]:
                if i not in seen:
                    seen.add(i)
                    pending.append(i)
        self._fold(order)
        return self._folded[value]

    def _fold(self, values: list[Value]) -> None:
        """Computes `values`, among which are all that they need."""
        waiting = list(values)
        while waiting:
            v = waiting[-1]
            if v in self._folded:
                waiting.pop()
                continue
            op, inputs, index = self._origin[v]
            missing = [i for i in inputs if i not in self._folded and not self._is_constant(i)]
            if missing:
                waiting += missing
                continue
            if self._fold_bytes > _FOLD_BYTES:
                raise UnsupportedError(
                    f"computing its constant inputs takes more than {_FOLD_BYTES} bytes"
                )
            self._folded[v] = evaluate_op(op, *(self._array(i) for i in inputs))[index]
            self._fold_bytes += self._folded[v].nbytes
            waiting.pop()

    def _is_constant(self, value: Value) -> bool:
        return value in self._constants

    def _array(self, value: Value) -> np.ndarray:
        if value in self._folded:
            return self._folded[value]
        return self._constants[value].array

    def inputs_behind(self, value: Value) -> tuple[str, ...]:
        """Names of the model inputs that a value is computed from."""
        found: dict[str, None] = {}
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            made = self._origin.get(v)
            if made is None:
                if not self._is_constant(v):
                    found[v.name] = None
                continue
            for i in made[1]:
                if i not in seen:
                    seen.add(i)
                    pending.append(i)
        return tuple(found)

    def _count(self) -> None:
        self._visited += 1
        if self._visited > _NODE_LIMIT:
            raise ModelError(
                f"the model unfolds into more than {_NODE_LIMIT} nodes, the most allowed"
            )

    # Graphs

    def initializers(
        self,
        graph: Any,
        frame: Frame,
        skip: frozenset[str] = frozenset(),
        weights: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        """Defines a graph's stored tensors in `frame`; `weights`: bytes that the message is
        without, by position.
        """
        for i, t in enumerate(graph.initializer):
            raw = weights.get(i) if weights else None
            read = partial(decode, t, self.files, f"initializer {t.name!r}", raw)
            self._initializer(t.name, frame, skip, read)
        for t in graph.sparse_initializer:
            read = partial(decode_sparse, t, self.files, f"initializer {t.values.name!r}")
            self._initializer(t.values.name, frame, skip, read)

    def _initializer(
        self,
        given: str | bytes,
        frame: Frame,
        skip: frozenset[str],
        read: Callable[[], Contents],
    ) -> None:
        name = text(given, "an initializer's name")
        if not name:
            raise ModelError("an initializer has no name")
        if name in frame.names:
            raise ModelError(f"initializer {name!r} is defined twice; names must be unique")
        if name in skip:
            return
        try:
            frame.names[name] = self.stored(read(), name)
        except UnsupportedError as e:
            self.problems.append(Problem("initializer", "", 0, name, str(e), None))
            frame.names[name] = FAILED

    def body(self, nodes: Sequence[Any], frame: Frame, where: str) -> None:
        """Imports `nodes`, defining their outputs in `frame`."""
        if frame.depth > _DEPTH_LIMIT:
            raise ModelError(
                f"{where}: functions and sub-graphs stand more than {_DEPTH_LIMIT} deep in one "
                "another"
            )
        for node in ordered(nodes, set(frame.names), frame.parent or (), where):
            self.node(node, frame)

    def subgraph(self, graph: Any, frame: Frame, arguments: Sequence[Slot], loc: str) -> list[Slot]:
        """The outputs of a sub-graph (a branch, a loop's body) for `arguments`, inlined where
        `frame` is.
        """
        inner = Frame(frame.opsets, frame, frame.attributes, f"{loc}/", frame.depth + 1)
        if len(graph.input) != len(arguments):
            raise ModelError(
                f"sub-graph of {loc!r}: expected {len(arguments)} inputs, found {len(graph.input)}"
            )
        for formal, actual in zip(graph.input, arguments, strict=True):
            inner.names[text(formal.name, "an input's name")] = actual
        self.initializers(graph, inner)
        self.body(graph.node, inner, f"sub-graph of {loc!r}")
        return [inner.find(text(o.name, "an output's name")) for o in graph.output]

    # Nodes

    def node(self, node: Any, frame: Frame) -> None:
        """Imports one node; a problem is noted and poisons the node's outputs."""
        self._count()
        op_type = text(node.op_type, "an operator's name")
        domain, name = domain_of(node), node_name(node)
        loc = frame.prefix + name
        outputs = tuple(text(o, "an output's name") for o in node.output)
        function = self._functions.get((domain, op_type, text(node.overload, "an overload")))
        version = frame.opsets.get(domain)
        if version is None and function is None:
            raise ModelError(
                f"node {loc!r}: the model imports no opset of domain {domain!r}, which "
                f"{op_type} is in"
            )
        importer = registry.find(domain, op_type, version or 0)
        inputs = tuple(frame.find(text(i, "an input's name")) if i else None for i in node.input)
        failed = any(isinstance(v, Failed) for v in (*inputs, *self._captured(node, frame)))
        results: Sequence[Slot] = ()
        try:
            if function is None and importer is None:
                raise UnsupportedError(_why_unknown(domain, op_type))
            if not failed:
                attributes = Attributes.of(node, frame.attributes)
                self._label = next((o for o in outputs if o), "")
                values: Any = inputs
                if function is not None:
                    results = self._call(function, attributes, values, frame, loc)
                else:
                    assert importer is not None
                    context = NodeContext(
                        self, op_type, version or 0, attributes, values, outputs, loc, frame
                    )
                    made = importer(context)
                    context.check_all_read()
                    results = made if isinstance(made, tuple) else (made,)
                for i, o in enumerate(outputs):
                    if o and (i >= len(results) or results[i] is None):
                        raise UnsupportedError(
                            f"its output number {i + 1} ({o!r}) is not supported"
                        )
        except UnsupportedError as e:
            if not isinstance(e, NotedError):
                needs = e.inputs if isinstance(e, ValuesNeededError) and e.inputs else None
                problem = Problem(op_type, domain, version or 0, loc, _bare(str(e), loc), needs)
                self.problems.append(problem)
            failed = True
        except (Located, RecursionError):
            raise
        except ModelError as e:
            raise Located(
                f"node {loc!r} ({op_type}, opset {version}): {_bare(str(e), loc)}"
            ) from None
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as e:
            # Numbers that no operator is prepared for: the file is at fault, not the compiler.
            reason = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
            raise Located(f"node {loc!r} ({op_type}, opset {version}): {reason}") from e
        for i, o in enumerate(outputs):
            if o:
                frame.names[o] = FAILED if failed else results[i]

    def _captured(self, node: Any, frame: Frame) -> list[Slot]:
        """Values of the graphs around that a node's sub-graphs use."""
        return [frame.find(name) for graph in subgraphs(node) for name in sorted(captured(graph))]

    def _call(
        self, function: Any, attributes: Attributes, inputs: Sequence[Slot], frame: Frame, loc: str
    ) -> list[Slot]:
        """The results of a call of one of the model's functions, its body inlined."""
        key = (domain_of(function), text(function.name, "a function's name"), function.overload)
        if key in self._calls:
            raise ModelError(f"function {key[1]!r} calls itself")
        if len(inputs) > len(function.input):
            raise ModelError(
                f"function {key[1]!r}: expected at most {len(function.input)} inputs, found "
                f"{len(inputs)}"
            )
        given: dict[str, Any] = {}
        for a in function.attribute_proto:
            given[text(a.name, "an attribute's name")] = a
        for name in attributes.names:
            given[name] = attributes.find(name)
        for name in function.attribute:
            if text(name, "an attribute's name") not in given:
                given.pop(
                    name, None
                )  # an attribute without default may be left out, its users see none
        inner = Frame(
            opsets_of(function, frame.opsets), None, Attributes(given), f"{loc}/", frame.depth + 1
        )
        for i, formal in enumerate(function.input):
            inner.names[text(formal, "an input's name")] = inputs[i] if i < len(inputs) else None
        self._calls.append(key)
        self.body(function.node, inner, f"function {key[1]!r}")
        self._calls.pop()
        return [inner.find(text(o, "an output's name")) for o in function.output]


class Located(ModelError):
    """A ModelError whose message already says at which node."""


def domain_of(proto: Any) -> str:
    """The domain of a node or function; both names of the default domain are the empty one."""
    domain = text(proto.domain, "a domain")
    return "" if domain in _DEFAULT_DOMAINS else domain


def opsets_of(proto: Any, otherwise: dict[str, int] | None = None) -> dict[str, int]:
    """Domain -> version, as a model or function imports them."""
    found = dict(otherwise or {})
    seen: set[str] = set()
    for o in proto.opset_import:
        domain = domain_of(o)
        if domain in seen and found[domain] != o.version:
            raise ModelError(
                f"domain {domain!r} is imported at versions {found[domain]} and {o.version}"
            )
        seen.add(domain)
        found[domain] = int(o.version)
    return found


def _why_unknown(domain: str, op_type: str) -> str:
    known = registry.versions(domain, op_type)
    if known:
        return f"{op_type} is supported at opset versions {known}"
    return (
        "the operator is not supported"
        if not domain
        else f"no operator of this name in domain {domain!r}"
    )


def _bare(message: str, loc: str) -> str:
    """A message without the place that the builder put in front of it."""
    return message.removeprefix(f"node {loc!r}: ")
