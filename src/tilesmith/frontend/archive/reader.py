"""From an archive of PyTorch to a graph."""

from __future__ import annotations

from tilesmith.frontend.archive.files import Archive
from tilesmith.frontend.archive.inspection import inspected
from tilesmith.frontend.archive.program import exported_of, nodes_of
from tilesmith.frontend.aten.exported import Exported
from tilesmith.frontend.aten.graph import graph_of
from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.inputs import Given
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.source import Reader, Source
from tilesmith.graph.nodes import Graph
from tilesmith.support.cache import Cache


def exported(source: Source, cache: Cache | None = None) -> Exported:
    """The program in an archive.  Raises ModelError or UnsupportedError.

    cache: keeps PyTorch's decompositions of calls in the archive.
    """
    assert source.content is not None
    with errors_name(""):
        return exported_of(Archive(source.content, source.name), cache)


def load(source: Source, given: Given) -> Graph:
    """The graph of an archived program (see `graph_of`)."""
    return graph_of(exported(source), given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of an archived program's calls."""
    assert source.content is not None
    with errors_name(""):
        return nodes_of(Archive(source.content, source.name))


def inspect(source: Source) -> Inspection:
    """Facts about an archive.  Raises ModelError if it is damaged, UnsupportedError if it is of
    another version.
    """
    return inspected(exported(source))


READER = Reader(load, nodes, inspect)
