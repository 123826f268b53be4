"""The tables of Keras' layers and operations: which function imports which class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tilesmith.frontend.common.registry import Registry

Import: TypeAlias = Callable[..., Any]

LAYERS: Registry[Import] = Registry()
OPERATION = "ops"
"""The domain of operations, which are also called directly on tensors of a functional model."""

MASKED: set[str] = set()
"""The layers whose result has the mask of their input."""


def layer(*names: str, masked: bool = False) -> Callable[[Import], Import]:
    """A decorator that registers the function of the layers `names`.

    masked: whether the result has the mask of the first input.
    """
    if masked:
        MASKED.update(names)
    return LAYERS.register(*names)


def operation(*names: str) -> Callable[[Import], Import]:
    """A decorator that registers the function of the operations `names`."""
    return LAYERS.register(*names, domain=OPERATION)
