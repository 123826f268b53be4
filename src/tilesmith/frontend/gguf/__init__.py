"""GGUF files, which hold weights but no graph: `inspect` shows them, `load_weights` reads them."""

from tilesmith.frontend.common.source import Frontend, Source
from tilesmith.runtime.gguf import MAGIC


def recognises(source: Source) -> bool:
    """Whether a file begins with GGUF's signature."""
    return source.content is not None and bytes(source.content[:4]) == MAGIC


GGUF = Frontend(
    "", ("a path to a GGUF file of weights",), recognises, "tilesmith.frontend.gguf.reader"
)

__all__ = ["GGUF"]
