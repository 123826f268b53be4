"""The frontend for archives of PyTorch: `.pt2` files, as `torch.export.save` writes them.

PyTorch's own loader unpickles example inputs and evaluates text.  This frontend only reads JSON and
arrays, checks both, and needs no PyTorch.  The reader is imported when the first archive is read,
because it imports the import functions of all ATen operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.foreign import is_zip

if TYPE_CHECKING:
    from tilesmith.frontend.aten.exported import Exported
    from tilesmith.frontend.common.inputs import Given
    from tilesmith.frontend.common.inspection import Inspection
    from tilesmith.graph.nodes import Graph
    from tilesmith.support.cache import Cache


def exported(source: Source, cache: Cache | None = None) -> Exported:
    """The program in an archive.  Raises ModelError or UnsupportedError.

    cache: keeps PyTorch's decompositions of calls in the archive.
    """
    from .files import Archive
    from .program import exported_of

    assert source.content is not None
    with errors_name(""):
        return exported_of(Archive(source.content, source.name), cache)


def recognises(source: Source) -> bool:
    return source.content is not None and is_zip(source.content)


def load(source: Source, given: Given) -> Graph:
    """The graph of an archived program (see `graph_of`)."""
    from tilesmith.frontend.aten.graph import graph_of

    return graph_of(exported(source), given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of an archived program's calls."""
    from .files import Archive
    from .program import nodes_of

    assert source.content is not None
    with errors_name(""):
        return nodes_of(Archive(source.content, source.name))


def inspect(source: Source) -> Inspection:
    """Facts about an archive.  Raises ModelError if it is damaged, UnsupportedError if it is of
    another version.
    """
    from .inspection import inspected

    return inspected(exported(source))


ARCHIVE = Frontend(
    "a PyTorch archive (.pt2)",
    ("a path to an archive of torch.export", "its bytes"),
    recognises,
    load,
    nodes,
    inspect,
)

__all__ = ["ARCHIVE", "exported"]
