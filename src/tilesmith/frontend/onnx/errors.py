"""Errors of the ONNX frontend that callers can act upon."""

from __future__ import annotations

from tilesmith.support.errors import UnsupportedError


class NotedError(UnsupportedError):
    """What makes a node unsupported was noted before, inside of its sub-graph:

    it is not reported again.
    """


class ValuesNeededError(UnsupportedError):
    """A shape of the model depends on the *values* of its inputs `inputs`.

    Loading succeeds when those inputs are given constant values (`values=`), so a caller can
    specialise a model.
    """

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.inputs = inputs
