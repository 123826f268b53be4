"""The typed errors of Tilesmith.

Every message names the expected value, the actual value, the place, and a remedy.  Users catch
`TilesmithError`.  The subclasses tell who made the mistake; the command line maps each to an exit
code.  A message quotes the user's input, which may be a name of 100,000 letters or a sum of as many
terms.  So the middle of long words and lines is omitted from all messages.  `brief` shortens a
single value inside a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_END = 100
"""Letters that are kept at either end of a long word: about the width of an editor's line."""
LONGEST = 6 * _END
"""Upper bound on the letters of a word, or of a value as text, that is not shortened.  Names of
nodes and most paths are shorter.
"""
_LONGEST_LINE = 4 * LONGEST
"""Lines with more letters are shortened.  The limit leaves room for some long values with text
around them.
"""


def brief(text: str, longest: int = LONGEST, end: int = _END) -> str:
    """Shorten a text of more than `longest` letters to its first and last `end` letters."""
    if len(text) <= longest:
        return text
    return f"{text[:end]}... ({len(text) - 2 * end} more letters) ...{text[-end:]}"


def _brief_message(message: str) -> str:
    """A message without the middles of its long words and lines."""
    if len(message) <= LONGEST:
        return message
    words = re.sub(r"\S+", lambda found: brief(found[0]), message)
    return "\n".join(brief(line, _LONGEST_LINE, LONGEST) for line in words.split("\n"))


DAMAGED = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
"""Python's errors while fields of a damaged file are read, such as those of parsed JSON."""


class TilesmithError(Exception):
    """Base of all errors that Tilesmith raises on purpose.  `exit_code`: exit code of the command
    line.

    The middle of a word of more than 600 letters, and of a line of more than 2,400, is omitted.
    """

    exit_code = 3

    def __init__(self, *args: Any) -> None:
        super().__init__(*(_brief_message(a) if isinstance(a, str) else a for a in args))


class UsageError(TilesmithError):
    """An argument of a public function or command is wrong (unknown option, name, pass, target)."""

    exit_code = 1


class ModelError(TilesmithError):
    """The model file, or an input given to a compiled model, is bad."""

    exit_code = 2


class OpenShapesError(ModelError):
    """Inputs have symbolic dimensions whose sizes are needed, but were not given.

    inputs: names of these inputs.
    """

    def __init__(self, message: str, inputs: Sequence[str]) -> None:
        super().__init__(message)
        self.inputs = tuple(inputs)


class UnsupportedError(ModelError):
    """The model is valid but uses features that Tilesmith does not support yet.  The message lists
    all of them.
    """


class OpenDimensionError(UnsupportedError, ValueError):
    """A symbolic dimension occurs where a number is needed.

    dims: the symbolic extents, if they are known.
    """

    def __init__(self, message: str, dims: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.dims = tuple(dims)


class DeviceError(TilesmithError):
    """A device is missing, has no memory left, or fails."""

    exit_code = 5


class UnavailableError(TilesmithError):
    """A request is not accepted: the queue is full, or the server is closed.  The same request may
    be answered later or elsewhere.
    """


class DeadlineError(TilesmithError, TimeoutError):
    """The deadline of a request passed before its run began."""


class SignatureError(ModelError):
    """A required signature is missing, damaged or made with another key, or the file was
    changed.
    """


class ScheduleError(TilesmithError):
    """A schedule step is illegal; the schedule is unchanged."""

    exit_code = 1


class ExpressionError(TilesmithError, TypeError):
    """A tensor expression is malformed: operands of wrong types, an index that may leave its
    tensor, a reduction axis that is not listed.  It is a TypeError too, like errors of Python's
    operators.
    """

    exit_code = 1


class ParseError(TilesmithError):
    """Text of an IR does not parse; the message has line and column."""

    exit_code = 1


class VerifyError(TilesmithError):
    """A pass broke an invariant of its IR: a bug of Tilesmith.  The message names the pass or
    stage.
    """


class InternalError(TilesmithError):
    """The compiler detected a bug of its own."""


class AccuracyError(TilesmithError):
    """A compiled kernel differs from its reference by more than the documented bound."""

    exit_code = 4
