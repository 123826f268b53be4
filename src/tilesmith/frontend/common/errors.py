"""Errors of frontends that callers can act upon, and the context that adds the model's name to
messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilesmith.graph.nodes import Value
from tilesmith.ops.rules import UnequalDims
from tilesmith.support.errors import (
    ModelError,
    OpenDimensionError,
    OpenShapesError,
    UnsupportedError,
)


class NotedError(UnsupportedError):
    """A node is unsupported because of nodes inside its sub-graph.  The problems of these nodes are
    already recorded.
    """


class LocatedError(ModelError):
    """A ModelError whose message already names the node."""


class ValuesNeededError(UnsupportedError):
    """A shape of the model depends on the *values* of its inputs `inputs`.

    Loading succeeds when those inputs are given constant values (`values=`), so a caller can
    specialise a model.
    """

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.inputs = inputs


class OpenValueError(OpenDimensionError):
    """A number is needed for a tensor `value`, but its elements depend on open dimensions."""

    def __init__(self, message: str, dims: Sequence[Any], value: Value) -> None:
        super().__init__(message, dims)
        self.value = value


@contextmanager
def errors_name(model: str) -> Iterator[None]:
    """A context that turns the message of an error into one line, which begins with the name of the
    model if there is one.
    """
    try:
        yield
    except UnequalDims:
        raise  # the caller then imports the model again
    except ValuesNeededError as e:
        raise ValuesNeededError(_one_line(model, e), e.inputs) from None
    except OpenShapesError as e:
        raise OpenShapesError(_one_line(model, e), e.inputs) from None
    except ModelError as e:
        kind = UnsupportedError if isinstance(e, UnsupportedError) else ModelError
        raise kind(_one_line(model, e)) from None
    except RecursionError:
        deep = ModelError("functions or sub-graphs stand too deep in one another")
        raise ModelError(_one_line(model, deep)) from None


def _one_line(model: str, error: Exception) -> str:
    message = f"{model}: {error}" if model else str(error)
    # names in a model may contain any characters, including line ends and control characters
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
