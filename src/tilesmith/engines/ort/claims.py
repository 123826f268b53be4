"""The parts of a session's graph that the execution provider claims: those that compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from tilesmith.driver.entry import compiled
from tilesmith.driver.request import Request
from tilesmith.frontend.load import load
from tilesmith.runtime.executable import Executable
from tilesmith.support.errors import TilesmithError
from tilesmith.support.options import Options

from .api import Api
from .graphs import NARROW, Read, read
from .parts import Part, Source

_VERBOSE = 0

_LARGEST = 2**31 - 1
"""The largest size of an open extent; the smallest is 0, as in ONNX Runtime."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Nodes of a graph that are computed together.

    nodes: their addresses.
    executable: computes them.
    """

    nodes: Sequence[int]
    executable: Executable


def claimed(api: Api, graph: int, options: Options, log: Callable[[int, str], None]) -> list[Claim]:
    """The parts of a graph, each with its executable.

    A part is a maximal run of known nodes (see `Source`).  If a part does not compile, other
    providers get its nodes that can't be imported.  If all can be imported, the part is divided.

    log: takes a level and a text.
    """
    content = read(api, graph)
    refused = content.unreadable | _with_other_values(content)
    search = _Search(content, options, log)
    source = Source(content.model, content.types, refused)
    parts = source.runs()
    made = [search.compiled(source, p) for p in parts]
    failed = [p for p, m in zip(parts, made, strict=True) if m is None]
    culprits = {source.order[i] for p in failed for i in search.culprits(source, p)}
    if not culprits:
        rest = [c for p in failed for c in search.divided(source, p)]
        return [*(m for m in made if m is not None), *rest]
    source = Source(content.model, content.types, refused | culprits)
    return [c for p in source.runs() for c in search.all_of(source, p)]


class _Search:
    def __init__(self, found: Read, options: Options, log: Callable[[int, str], None]) -> None:
        self._found, self._options, self._log = found, options, log

    def compiled(self, source: Source, part: Part) -> Claim | None:
        try:
            model = source.model_of(part)
            if not model.graph.output:
                return None
            opened = dict.fromkeys(open_extents(model), (0, _LARGEST))
            # The cache finds a program by its serialised model, which can't be larger than 2 GB.
            is_small = model.ByteSize() <= onnx.checker.MAXIMUM_PROTOBUF
            whole = model.SerializeToString() if is_small else model
            executable = compiled(Request.of(whole, self._options, dynamic=opened))
        except TilesmithError as e:
            self._log(_VERBOSE, f"{len(part)} nodes are not tilesmith's: {e}")
            return None
        return Claim([self._found.nodes[i] for i in source.positions(part)], executable)

    def culprits(self, source: Source, part: Part) -> list[int]:
        """The nodes of a part that can't be imported, not even alone."""
        try:
            load(source.model_of(part))
        except TilesmithError:
            if len(part) == 1:
                return [part.begin]
            return [i for half in part.halves() for i in self.culprits(source, half)]
        return []

    def divided(self, source: Source, part: Part) -> list[Claim]:
        """The claims in the halves of a part."""
        halves = part.halves() if len(part) > 1 else ()
        return [c for half in halves for c in self.all_of(source, half)]

    def all_of(self, source: Source, part: Part) -> list[Claim]:
        """The claims in a part: all of it, or those in its halves."""
        made = self.compiled(source, part)
        return self.divided(source, part) if made is None else [made]


def open_extents(model: onnx.ModelProto) -> set[str]:
    """The names of the open extents of a model's inputs."""
    shapes = (i.type.tensor_type.shape for i in model.graph.input)
    return {d.dim_param for s in shapes for d in s.dim if d.dim_param}


_OTHERS = {TensorProto.UNDEFINED, TensorProto.STRING, *NARROW}
"""Element types of values that can't be at the border of a part."""


def _with_other_values(found: Read) -> set[int]:
    """Positions of nodes with an input or output, not a constant, of a type in `_OTHERS`."""
    constants = {t.name for t in found.model.graph.initializer}

    def is_other(name: str) -> bool:
        type_ = found.types.get(name, onnx.TypeProto())
        return bool(name) and name not in constants and type_.tensor_type.elem_type in _OTHERS

    return {
        i
        for i, node in enumerate(found.model.graph.node)
        if any(map(is_other, (*node.input, *node.output)))
    }
