"""Precision in the form that users write: one type for all products, or a type for each pattern of
node names.

    bf16
    head/*=f32, *=bf16

Patterns are those of `fnmatch`.  The first one that matches the name of a node decides; a node
without a match keeps f32.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import UsageError

PRECISIONS = ("f32", "bf16", "f16")
"""Types in which the operands of products may be read."""

AUTO = "auto"
"""Selects the fastest types within the accuracy policy."""

ANY = "*"


def precision_text(precision: str | Mapping[str, str]) -> str:
    """The text form of a precision, which may be given as text or as a mapping of patterns to
    types.  Raises UsageError for other values.
    """
    if isinstance(precision, str):
        pins_of(precision)
        return precision
    if not isinstance(precision, Mapping) or not precision:
        raise UsageError(f"precision is {_known()} or types by pattern of names, not {precision!r}")
    for pattern in precision:
        if not isinstance(pattern, str) or not pattern or "," in pattern:
            raise UsageError(
                f"precision: a pattern is a text without commas, not {pattern!r}; write ? in the "
                "place of a comma"
            )
    text = ", ".join(f"{pattern}={name}" for pattern, name in precision.items())
    pins_of(text)
    return text


def pins_of(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs of a pattern and the name of its type; empty for "auto".  Raises UsageError for other
    texts.
    """
    if text == AUTO:
        return ()
    pins: list[tuple[str, str]] = []
    for part in text.split(","):
        pattern, equals, name = part.strip().rpartition("=")
        if name not in PRECISIONS or (equals and not pattern):
            raise UsageError(
                f"precision must be {_known()}, or PATTERN=TYPE with commas between, found {text!r}"
            )
        if equals == "" and "," in text:
            raise UsageError(f"precision: {name!r} stands alone, or after PATTERN=: found {text!r}")
        pins.append((pattern or ANY, name))
    return tuple(pins)


def _known() -> str:
    return f"{', '.join(PRECISIONS)} or {AUTO}"
