"""What nests deeper than Python's stack is refused: an error says so, not a RecursionError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import TilesmithError


@contextmanager
def depth_checked(kind: type[TilesmithError], what: str, advice: str) -> Iterator[None]:
    """Within: a RecursionError becomes an error of this kind.

    what: what nests too deep.
    advice: what to do about it.
    """
    try:
        yield
    except RecursionError:
        raise kind(f"{what} nests deeper than can be compiled; {advice}") from None
