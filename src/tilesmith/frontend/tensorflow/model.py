"""A TensorFlow model as its files state it: the main graph, functions, signatures, variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilesmith.frontend.common.protobuf import VARINT, Message
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tensorflow import SAVED_MODEL
from tilesmith.frontend.tensorflow.bundle import Bundle
from tilesmith.frontend.tensorflow.schema import SCHEMA
from tilesmith.support.errors import ModelError

_BUNDLE = "variables/variables"
_SERVING = "serve"
"""The tag of the graph that runs the model, among the graphs of a SavedModel."""

_HIDDEN = "__saved_model"
"""The prefix of signatures that TensorFlow uses internally."""

_MAIN = "serving_default"


@dataclass(frozen=True, slots=True)
class Ref:
    """A use of a node's output.

    node: the node's name, or that of a function's argument.
    output: the name of the output; empty if `index` counts all outputs.
    index: the index of the tensor in the named output, or among all outputs.
    """

    node: str
    output: str = ""
    index: int = 0

    @staticmethod
    def of(text: str) -> Ref:
        name, _, rest = text.partition(":")
        output, _, index = rest.rpartition(":")
        if rest and not index.isdecimal():
            raise ModelError(f"expected an output of a node, found {text!r}")
        return Ref(name, output, int(index or 0))


@dataclass(slots=True, eq=False)
class Node:
    """A node of a graph.

    name: its name, unique in the graph.
    op: the operator's name.
    inputs: its operands.
    controls: names of nodes that run before it.
    attributes: AttrValue messages by name.
    """

    name: str
    op: str
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]
    attributes: Mapping[str, Message]

    @staticmethod
    def of(stated: Message) -> Node:
        texts: Sequence[str] = stated.input
        return Node(
            stated.name,
            stated.op,
            tuple(Ref.of(t) for t in texts if not t.startswith("^")),
            tuple(t[1:] for t in texts if t.startswith("^")),
            stated.attr,
        )

    def text(self, name: str) -> str:
        """An attribute that is text; empty if it is left out."""
        stated = self.attributes.get(name)
        return "" if stated is None else bytes(stated.s).decode(errors="replace")

    @property
    def called(self) -> Iterator[tuple[str, int]]:
        """The functions that the node calls, each with the index of the operand that is its first
        argument.
        """
        for name, skipped in _CALLING.items():
            stated = self.attributes.get(name)
            if stated is not None:
                functions = (stated.func,) if stated.func is not None else _functions(stated)
                is_choice = name == "branches" or name.endswith("_branch")
                yield from ((f.name, skipped if is_choice else 0) for f in functions)


_CALLING = {"f": 0, "then_branch": 1, "else_branch": 1, "branches": 1, "cond": 0, "body": 0}
"""Attributes that name functions, and the number of leading operands that are not arguments."""


def _functions(stated: Message) -> Sequence[Message]:
    return stated.list.func if stated.list is not None else ()


@dataclass(slots=True, eq=False)
class Function:
    """A function, or the main graph, which has neither arguments nor results.

    name: its name.
    nodes: the nodes by name.
    arguments: names of the arguments.
    results: the outputs of nodes that the function returns.
    effects: names of nodes that run even if no result needs them.
    """

    name: str
    nodes: dict[str, Node]
    arguments: tuple[str, ...] = ()
    results: tuple[Ref, ...] = ()
    effects: tuple[str, ...] = ()

    @staticmethod
    def of(stated: Message) -> Function:
        declared = stated.signature
        if declared is None:
            raise ModelError("expected a function with a signature, found none")
        missing = [a.name for a in declared.output_arg if a.name not in stated.ret]
        if missing:
            raise ModelError(f"function {declared.name!r}: result {missing[0]!r} has no value")
        return Function(
            declared.name,
            _nodes(stated.node_def),
            tuple(a.name for a in declared.input_arg),
            tuple(Ref.of(stated.ret[a.name]) for a in declared.output_arg),
            tuple(stated.control_ret.values()),
        )


def _nodes(stated: Sequence[Message]) -> dict[str, Node]:
    return {n.name: n for n in map(Node.of, stated)}


@dataclass(slots=True, eq=False)
class Signature:
    """A function of the model for callers, stated as inputs and outputs of the main graph.

    name: its name.
    inputs: for each name the placeholder's output, and the TensorInfo that declares it.
    outputs: for each name the output, and the TensorInfo.
    """

    name: str
    inputs: dict[str, tuple[Ref, Message]]
    outputs: dict[str, tuple[Ref, Message]]

    @staticmethod
    def of(name: str, stated: Message) -> Signature:
        pairs = [
            {n: (Ref.of(info.name), info) for n, info in sorted(infos.items())}
            for infos in (stated.inputs, stated.outputs)
        ]
        return Signature(name, *pairs)


@dataclass(slots=True, eq=False)
class Model:
    """A model.

    graph: the main graph.
    functions: the functions by name.
    signatures: the signatures by name; none for a frozen graph.
    bundle: the stored variables; None if there are none.
    restore: the node that restores the variables; empty if there is none.
    version: the version of TensorFlow that wrote the file; empty if it does not say.
    """

    graph: Function
    functions: dict[str, Function]
    signatures: dict[str, Signature] = field(default_factory=dict)
    bundle: Bundle | None = None
    restore: str = ""
    version: str = ""

    def function(self, name: str) -> Function:
        """The function with this name.  Raises ModelError if there is none."""
        if name not in self.functions:
            raise ModelError(f"function {name!r} is called, which the model does not have")
        return self.functions[name]

    def signature(self, name: str | None) -> Signature | None:
        """The signature with this name, or without a name the main one; None if there are none."""
        if name is not None or not self.signatures:
            return self.signatures.get(name or "")
        return self.signatures.get(_MAIN) or next(iter(self.signatures.values()))


def read(source: Source) -> Model:
    """The model in a file or folder.  Raises ModelError if it is damaged."""
    if source.is_folder:
        content = source.file(SAVED_MODEL)
        assert content is not None
        return _saved(source, content)
    assert source.content is not None
    view = memoryview(source.content)
    if view[0] == VARINT | 1 << 3:
        return _saved(source, view)
    return _of_graph(SCHEMA.decode(view, "GraphDef"))


def _saved(source: Source, content: memoryview) -> Model:
    graphs: Sequence[Message] = SCHEMA.decode(content, "SavedModel").meta_graphs
    if not graphs:
        raise ModelError("expected a SavedModel with a graph, found none")
    tags = [set(g.meta_info_def.tags) if g.meta_info_def is not None else set() for g in graphs]
    stated = next((g for g, t in zip(graphs, tags, strict=True) if _SERVING in t), graphs[0])
    if stated.graph_def is None:
        raise ModelError("expected a SavedModel with a graph, found none")
    model = _of_graph(stated.graph_def)
    model.signatures = {
        name: Signature.of(name, s)
        for name, s in sorted(stated.signature_def.items())
        if not name.startswith(_HIDDEN)
    }
    model.bundle = _bundle(source)
    model.restore = stated.saver_def.restore_op_name if stated.saver_def is not None else ""
    if stated.meta_info_def is not None:
        model.version = stated.meta_info_def.tensorflow_version
    return model


def _of_graph(stated: Message) -> Model:
    library: Sequence[Message] = () if stated.library is None else stated.library.function
    functions = {f.name: f for f in map(Function.of, library)}
    return Model(Function("main", _nodes(stated.node)), functions)


def _bundle(source: Source) -> Bundle | None:
    """The variables of a SavedModel; None if it has none, or was given as bytes."""
    if source.folder is None:
        return None
    index = source.file(f"{_BUNDLE}.index")
    if index is None:
        return None
    opened: dict[int, memoryview] = {}

    def shard(number: int, count: int) -> memoryview:
        name = f"{_BUNDLE}.data-{number:05}-of-{count:05}"
        if number not in opened:
            content = source.file(name)
            if content is None:
                raise ModelError(f"expected variables in {name!r}, found no file")
            opened[number] = content
        return opened[number]

    return Bundle(index, shard)
