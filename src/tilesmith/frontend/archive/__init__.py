"""The frontend for archives of PyTorch: `.pt2` files, as `torch.export.save` writes them.

PyTorch's own loader unpickles example inputs and evaluates text.  This frontend only reads JSON and
arrays, checks both, and needs no PyTorch.
"""

from __future__ import annotations

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.support.foreign import is_zip


def recognises(source: Source) -> bool:
    return source.content is not None and is_zip(source.content)


ARCHIVE = Frontend(
    "a PyTorch archive (.pt2)",
    ("a path to an archive of torch.export", "its bytes"),
    recognises,
    "tilesmith.frontend.archive.reader",
)

__all__ = ["ARCHIVE"]
