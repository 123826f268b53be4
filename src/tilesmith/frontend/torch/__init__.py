"""The PyTorch frontend: exported programs of `torch.export`.

Importing this package does not import `torch`: a caller that passes a PyTorch object has already
imported `torch`.  The first such object imports the reader, because the reader imports the import
functions of all ATen operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.foreign import is_exported_program, is_module

if TYPE_CHECKING:
    from tilesmith.frontend.common.inputs import Given
    from tilesmith.graph.nodes import Graph


def recognises(source: Source) -> bool:
    return is_exported_program(source.model) or is_module(source.model)


def load(source: Source, given: Given) -> Graph:
    """The graph of a module or of an exported program (see `graph_of`)."""
    from .exported import load

    return load(source, given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of an exported program's calls."""
    from .exported import nodes

    return nodes(source)


TORCH = Frontend(
    "",
    ("a torch.nn.Module with example inputs", "a torch.export.ExportedProgram"),
    recognises,
    load,
    nodes,
)

__all__ = ["TORCH"]
