"""The walk over an ONNX model, in which names become values and nodes become operators.

Functions of the model are inlined, and control flow is resolved if its condition is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.errors import NotedError, OpenValueError, ValuesNeededError
from tilesmith.frontend.common.external import ExternalFiles
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.host_values import is_object, string_constant
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.order import ordered
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.slots import FAILED, Failed, Scope, Slot
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.onnx.attributes import Attributes
from tilesmith.frontend.onnx.custom import import_function
from tilesmith.frontend.onnx.fallback import ReferenceNode, by_stand_in, types_for_strings
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.objects import STRING, strings_in
from tilesmith.frontend.onnx.proto import text
from tilesmith.frontend.onnx.registry import OBJECTS, OPERATORS, ImportFunction, standard_function
from tilesmith.frontend.onnx.structure import captured, named, node_name, subgraphs
from tilesmith.frontend.onnx.tensors import Contents, decode, decode_sparse
from tilesmith.graph.nodes import Value
from tilesmith.support.errors import ModelError, OpenDimensionError, UnsupportedError

_DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(slots=True)
class Frame(Scope):
    """A graph or function body: its names, and the opsets and attributes that its nodes use."""

    opsets: dict[str, int] = field(default_factory=dict)
    attributes: Attributes | None = None


class OnnxImporter(Importer):
    """Imports one model; external data is in `files`."""

    def __init__(
        self,
        builder: FoldingBuilder,
        files: ExternalFiles,
        functions: Sequence[Any],
        fallback: bool = False,
        in_place: frozenset[str] = frozenset(),
        new_weights: NewWeights | None = None,
    ) -> None:
        """fallback: whether nodes that can't be native code run on the host.

        in_place: outputs of the model that live in the memory of an input.
        new_weights: new contents for the model's initializers.
        """
        super().__init__(builder)
        self.files = files
        self.fallback = fallback
        self.in_place = in_place
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
        self._new_weights = new_weights or NewWeights()
        self.defaults: dict[str, Contents] = {}
        """The stored tensors that are inputs, by name (see `initializers`)."""
        self._calls: list[tuple[str, str, str]] = []

    # Graphs

    def initializers(
        self,
        graph: Any,
        frame: Frame,
        skip: frozenset[str] = frozenset(),
        weights: Mapping[int, np.ndarray] | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        """Defines a graph's stored tensors in `frame`, except those named in `skip`.

        weights: number of an initializer -> its bytes, if its message has none.
        optional: names of tensors that become inputs, with their contents added to `defaults`.
        """
        for i, t in enumerate(graph.initializer):
            if t.data_type == STRING:
                self._strings(t, frame, skip)
                continue
            raw = weights.get(i) if weights else None
            read = partial(decode, t, self.files, f"initializer {t.name!r}", raw)
            self._initializer(t.name, frame, skip, read, t.name in optional)
        for t in graph.sparse_initializer:
            read = partial(decode_sparse, t, self.files, f"initializer {t.values.name!r}")
            self._initializer(t.values.name, frame, skip, read, t.values.name in optional)

    def _strings(self, tensor: Any, frame: Frame, skip: frozenset[str]) -> None:
        """Defines a stored tensor of strings."""
        name = text(tensor.name, "an initializer's name")
        if name not in skip:
            strings = strings_in(tensor, f"initializer {name!r}")
            frame.names[name] = string_constant(self.builder, strings, name)

    def _initializer(
        self,
        given: str | bytes,
        frame: Frame,
        skip: frozenset[str],
        read: Callable[[], Contents],
        is_input: bool,
    ) -> None:
        name = text(given, "an initializer's name")
        if not name:
            raise ModelError("an initializer has no name")
        if name in frame.names or name in self.defaults:
            raise ModelError(f"initializer {name!r} is defined twice; names must be unique")
        if name in skip:
            return
        try:
            constant = read()
            data = constant.data
            if frame.parent is None:
                data = self._new_weights.data(name, constant.type, data)
            if is_input:
                self.defaults[name] = Contents(constant.type, data)
                return
            frame.names[name] = self.builder.lazy_constant(constant.type, data, name)
        except UnsupportedError as e:
            self.note(Site("initializer", "", name), e)
            frame.names[name] = FAILED

    def body(self, nodes: Sequence[Any], frame: Frame, where: str) -> None:
        """Imports `nodes`, defining their outputs in `frame`."""
        if frame.depth > MAX_DEPTH:
            raise ModelError(
                f"{where}: functions and sub-graphs stand more than {MAX_DEPTH} deep in one another"
            )
        in_order = ordered([*map(named, nodes)], set(frame.names), frame.parent or (), where)
        for node in in_order:
            self.node(node, frame)

    def nested(
        self, body: Body, graph: Any, frame: Frame, arguments: Sequence[Slot], loc: str
    ) -> list[Slot] | None:
        """The outputs of a sub-graph whose nodes are added to `body`.  None if a node of it is
        unsupported or invalid; then no problem is recorded and `body.misfit` has the reason.
        """
        calls = len(self._calls)
        try:
            return self.within(body, lambda: self.subgraph(graph, frame, arguments, loc, body))
        finally:
            del self._calls[calls:]

    def subgraph(
        self,
        graph: Any,
        frame: Frame,
        arguments: Sequence[Slot],
        loc: str,
        body: Body | None = None,
    ) -> list[Slot]:
        """The outputs of a sub-graph (a branch, a loop's body) for `arguments`.

        The sub-graph's nodes are inlined and see the names of `frame`.  With a `body`, they see
        only the values that it captures.
        """
        inner = Frame(
            frame if body is None else None,
            f"{loc}/",
            frame.depth + 1,
            opsets=frame.opsets,
            attributes=frame.attributes,
        )
        if body is not None:
            inner.names |= {name: body.slot(frame.find(name)) for name in sorted(captured(graph))}
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
        """Imports one node, defining its outputs in `frame`, as `FAILED` if it is unsupported."""
        self.builder.count()
        op_type = text(node.op_type, "an operator's name")
        domain, loc = domain_of(node), frame.prefix + node_name(node)
        function = self._functions.get((domain, op_type, text(node.overload, "an overload")))
        version = frame.opsets.get(domain)
        if version is None and function is None:
            raise ModelError(
                f"node {loc!r}: the model imports no opset of domain {domain!r}, which "
                f"{op_type} is in"
            )
        inputs = tuple(frame.find(text(i, "an input's name")) if i else None for i in node.input)
        outputs = tuple(text(o, "an output's name") for o in node.output)
        visit = _Visit(
            self, node, frame, domain, op_type, version or 0, loc, function, inputs, outputs
        )
        site = Site(
            f"{domain}.{op_type}" if domain else op_type, f"opset {version}" if version else "", loc
        )
        results = self.attempt(site, visit.results)
        for i, o in enumerate(outputs):
            if o:
                frame.names[o] = FAILED if results is None else results[i]

    def call(
        self, function: Any, attributes: Attributes, inputs: Sequence[Slot], frame: Frame, loc: str
    ) -> list[Slot]:
        """The results of a call of one of the model's functions, whose body is inlined."""
        key = (domain_of(function), text(function.name, "a function's name"), function.overload)
        if key in self._calls:
            raise ModelError(f"function {key[1]!r} calls itself")
        if len(inputs) > len(function.input):
            raise ModelError(
                f"function {key[1]!r}: expected at most {len(function.input)} inputs, found "
                f"{len(inputs)}"
            )
        by_name: dict[str, Any] = {}
        for a in function.attribute_proto:
            by_name[text(a.name, "an attribute's name")] = a
        for name in attributes.names:
            by_name[name] = attributes.find(name)
        for name in function.attribute:
            if text(name, "an attribute's name") not in by_name:
                by_name.pop(name, None)  # an optional attribute without default is omitted
        inner = Frame(
            None,
            f"{loc}/",
            frame.depth + 1,
            opsets=opsets_of(function, frame.opsets),
            attributes=Attributes(by_name),
        )
        for i, formal in enumerate(function.input):
            inner.names[text(formal, "an input's name")] = inputs[i] if i < len(inputs) else None
        self._calls.append(key)
        self.body(function.node, inner, f"function {key[1]!r}")
        self._calls.pop()
        return [inner.find(text(o, "an output's name")) for o in function.output]


@dataclass(frozen=True, slots=True)
class _Visit:
    """A node while it is imported.

    importer: walks over the model.
    node, frame: the NodeProto and the body that contains it.
    domain, op_type, version: its operator.
    loc: its location, for messages.
    function: the model's function that it calls, if it calls one.
    inputs: the inputs, None for one that is left out.
    outputs: the names of its outputs ("" for one left out).
    """

    importer: OnnxImporter
    node: Any
    frame: Frame
    domain: str
    op_type: str
    version: int
    loc: str
    function: Any
    inputs: tuple[Slot, ...]
    outputs: tuple[str, ...]

    def results(self) -> Sequence[Slot] | None:
        """The node's outputs; None where an input failed.  Raises UnsupportedError."""
        captured = [self.frame.find(name) for name in self._captured]
        if any(isinstance(v, Failed) for v in (*self.inputs, *captured)):
            self._find()  # also raises UnsupportedError for an unsupported operator
            return None
        if self.function is None and any(map(is_object, self.inputs)):
            function = OBJECTS.find(self.domain, self.op_type, self.version)
            return self._on_host() if function is None else self._made(function, self.inputs)
        try:
            return self._native_of_open(self.inputs)
        except (NotedError, ValuesNeededError, OpenDimensionError):
            raise
        except UnsupportedError as e:
            if not self.importer.fallback:
                raise
            try:
                return self._by_reference(is_fallback=True)
            except UnsupportedError:
                raise e from None

    def _on_host(self) -> Sequence[Slot]:
        """The outputs of an operator that reads host objects, for which `OBJECTS` has no function.

        The reference evaluator computes them.  The user must allow this (`fallback`) if the
        operator has no import function, or if all host values that it reads are tensors of numbers
        of unknown rank.
        """
        is_known = OPERATORS.find(self.domain, self.op_type, self.version) is not None
        objects = [s.dtype for s in self.inputs if isinstance(s, Value) and s.dtype.is_host]
        is_fallback = not is_known or all(
            d.form == "tensor" and not d.of[0].is_host for d in objects
        )
        if is_fallback and not self.importer.fallback:
            raise UnsupportedError(
                "it reads a value of the host, for which there is no native code; "
                'fallback="warn" runs it by the reference evaluator'
            )
        return self._by_reference(is_fallback)

    def _find(self) -> tuple[ImportFunction | None, Any]:
        """The import function of the operator, and the FunctionProto to inline instead.

        One of the two is None.  Raises UnsupportedError if the operator has neither.
        """
        if self.function is not None:
            return None, self.function
        importer = OPERATORS.find(self.domain, self.op_type, self.version)
        importer = importer or import_function(self.domain, self.op_type)
        called = None
        if importer is None:
            called = standard_function(self.domain, self.op_type, self.version)
            if called is None:
                raise UnsupportedError(_why_unknown(self.domain, self.op_type))
        return importer, called

    def _native(self, inputs: Sequence[Slot]) -> Sequence[Slot]:
        """The outputs for `inputs`, none of which are objects of the host."""
        importer, called = self._find()
        if importer is not None:
            return self._made(importer, inputs)
        results = self.importer.call(called, self._attributes, inputs, self.frame, self.loc)
        return self._checked(results)

    def _native_of_open(self, inputs: Sequence[Slot]) -> Sequence[Slot]:
        """The outputs.  The import may need the contents of an operand that depends on open
        dimensions.  Then the import is repeated, and treats this operand as computed at run time.
        """
        try:
            return self._native(inputs)
        except OpenValueError as e:
            first, needed = e, e.value
        at_run: list[Value] = []
        while needed not in at_run and needed in inputs:
            at_run.append(needed)
            try:
                with self.importer.builder.at_run(at_run):
                    return self._native(inputs)
            except OpenValueError as e:
                needed = e.value
            except (ValuesNeededError, OpenDimensionError):
                break
        raise first

    def _made(self, importer: ImportFunction, inputs: Sequence[Slot]) -> Sequence[Slot]:
        """The outputs from an import function."""
        walk, frame = self.importer, self.frame
        label = next((o for o in self.outputs if o), "")
        context = OnnxNode(
            walk.builder,
            self.loc,
            label,
            lambda graph, arguments, at: walk.subgraph(graph, frame, arguments, at),
            lambda body, graph, arguments, at: walk.nested(body, graph, frame, arguments, at),
            self.op_type,
            self.version,
            self._attributes,
            tuple(inputs),
            self.outputs,
            walk.files,
            frozenset() if frame.depth else walk.in_place,
            frame,
        )
        with walk.builder.at(self.loc, label):
            made = importer(context)
        context.check_all_read()
        return self._checked(made if isinstance(made, tuple) else (made,))

    def _checked(self, results: Sequence[Slot]) -> Sequence[Slot]:
        for i, o in enumerate(self.outputs):
            if o and (i >= len(results) or results[i] is None):
                raise UnsupportedError(f"its output number {i + 1} ({o!r}) is not supported")
        return results

    def _by_reference(self, is_fallback: bool = False) -> Sequence[Slot]:
        """The outputs computed by the reference evaluator, on the host."""
        names = dict.fromkeys((*filter(None, self.node.input), *self._captured))
        reference = ReferenceNode(
            self.importer.builder,
            self.node,
            self.domain,
            self.frame.opsets,
            self._attributes,
            {name: self.frame.find(name) for name in names},
            self.loc,
        )
        is_known = OPERATORS.find(self.domain, self.op_type, self.version) is not None
        if not is_known or not any(map(is_object, self.inputs)):
            return reference.run(None, is_fallback)
        stood_in = by_stand_in(
            reference.builder,
            self.inputs,
            self._native,
            has_bodies=any(True for _ in subgraphs(self.node)),
        )
        if stood_in is None:
            return reference.run(None, is_fallback)
        types = types_for_strings(stood_in)
        held = all(reference.builder.contents(v) is not None for v in stood_in)
        if held and not any(t.dtype.is_host for t in types):
            # The results are shapes, which don't depend on the strings.  Results that hold strings
            # are excluded even if they are empty, because here numbers replace strings.
            return stood_in
        return reference.run(types, is_fallback)

    @property
    def _attributes(self) -> Attributes:
        attributes = Attributes.of(self.node, self.frame.attributes)
        if not self.domain and self.version < 6:
            attributes.find("consumed_inputs")  # only says that inputs may be overwritten
        return attributes

    @property
    def _captured(self) -> list[str]:
        """Names in enclosing graphs that the node's sub-graphs use."""
        return [name for graph in subgraphs(self.node) for name in sorted(captured(graph))]


def domain_of(proto: Any) -> str:
    """The domain of a node or function; the default domain, which has two names, is ""."""
    domain = text(proto.domain, "a domain")
    return "" if domain in _DEFAULT_DOMAINS else domain


def opsets_of(proto: Any, otherwise: dict[str, int] | None = None) -> dict[str, int]:
    """Domain -> version, as a model or function imports them."""
    versions = dict(otherwise or {})
    seen: set[str] = set()
    for o in proto.opset_import:
        domain = domain_of(o)
        if domain in seen and versions[domain] != o.version:
            raise ModelError(
                f"domain {domain!r} is imported at versions {versions[domain]} and {o.version}"
            )
        seen.add(domain)
        versions[domain] = int(o.version)
    return versions


def _why_unknown(domain: str, op_type: str) -> str:
    known = OPERATORS.versions(domain, op_type)
    if known:
        return f"{op_type} is supported at opset versions {known}"
    return (
        "the operator is not supported"
        if not domain
        else f"no operator of this name in domain {domain!r}; register_op adds operators"
    )
