"""The typed errors of Tilesmith.

Every message says what was expected, what was found, where, and what to do about it. Users catch
`TilesmithError`; the subclasses tell whose mistake it was, and the command line maps each to an
exit code.  A message quotes what a user gave, which may be a name of 100,000 letters: of a long
word the middle is left out, here for all messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_END = 100
"""Letters that are kept at either end of a long word: as many as an editor's line shows."""
_LONGEST = 6 * _END
"""Letters of a word that is kept whole: longer than names of nodes and most paths."""


def _brief(message: str) -> str:
    """A message without the middles of its long words."""
    return message if len(message) <= _LONGEST else re.sub(r"\S+", _brief_word, message)


def _brief_word(found: re.Match[str]) -> str:
    word = found[0]
    if len(word) <= _LONGEST:
        return word
    return f"{word[:_END]}... ({len(word) - 2 * _END} more letters) ...{word[-_END:]}"


class TilesmithError(Exception):
    """Base of all errors that Tilesmith raises on purpose.  `exit_code` is the command line's.

    The middle of a word of more than 600 letters is left out of the message.
    """

    exit_code = 3

    def __init__(self, *args: Any) -> None:
        super().__init__(*(_brief(a) if isinstance(a, str) else a for a in args))


class UsageError(TilesmithError):
    """An argument of a public function or command is wrong (unknown option, name, pass, target)."""

    exit_code = 1


class ModelError(TilesmithError):
    """The model file, or an input given to a compiled model, is bad."""

    exit_code = 2


class OpenShapesError(ModelError):
    """Inputs have dimensions that the model leaves open and nobody gave.

    inputs: their names.
    """

    def __init__(self, message: str, inputs: Sequence[str]) -> None:
        super().__init__(message)
        self.inputs = tuple(inputs)


class UnsupportedError(ModelError):
    """The model is valid but uses what Tilesmith does not do yet; lists all such uses at once."""


class OpenDimensionError(UnsupportedError, ValueError):
    """A number is needed for a dimension that the model leaves open.

    dims: the extents concerned, where they are known.
    """

    def __init__(self, message: str, dims: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.dims = tuple(dims)


class DeviceError(TilesmithError):
    """A device is not there, has no memory left, or fails."""

    exit_code = 5


class SignatureError(ModelError):
    """A signature that was asked for is missing, damaged or another's, or the file was changed."""


class ScheduleError(TilesmithError):
    """A schedule step is illegal; the schedule is unchanged."""

    exit_code = 1


class ExpressionError(TilesmithError, TypeError):
    """A tensor expression is malformed: operands of wrong types, an index that may leave its
    tensor, a reduction axis that is not listed.  A TypeError too, as of Python's own operators.
    """

    exit_code = 1


class ParseError(TilesmithError):
    """Text of an IR does not parse; the message has line and column."""

    exit_code = 1


class VerifyError(TilesmithError):
    """A pass broke an invariant of its IR: our bug.  Names the pass or stage."""


class InternalError(TilesmithError):
    """Our bug, found at run time of the compiler."""


class AccuracyError(TilesmithError):
    """A compiled kernel differs from its reference by more than the documented bound."""

    exit_code = 4
