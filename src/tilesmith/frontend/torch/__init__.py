"""The PyTorch frontend: exported programs of `torch.export`.

Importing this package does not import `torch`: a caller that passes a PyTorch object has already
imported `torch`.  The reader is imported when the first such object is passed, and not before,
because the reader imports the import functions of all ATen operators.
"""

from __future__ import annotations

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.foreign import is_exported_program, is_module


def recognises(source: Source) -> bool:
    return is_exported_program(source.model) or is_module(source.model)


TORCH = Frontend(
    "",
    ("a torch.nn.Module with example inputs", "a torch.export.ExportedProgram"),
    recognises,
    "tilesmith.frontend.torch.reader",
)

__all__ = ["TORCH"]
