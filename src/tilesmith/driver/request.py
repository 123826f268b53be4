"""What a user asks of one compilation.  It names no part of the compiler, which a program from the
cache does not need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilesmith.support.options import Options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from tilesmith.ir.given_sizes import ExpectedSizes, Ranges


@dataclass(frozen=True, slots=True)
class Request:
    """A model to compile; `compile` explains the fields that are called like its arguments.

    model: the source.
    options: target, threads, accuracy and all other options.
    shapes: fixed shapes of inputs.
    values: inputs that get a fixed value.
    dynamic: what sizes open dimensions may have.
    expected: the sizes for which the program is made fast.
    in_place: outputs that live in the memory of an input.
    sizes: numbers for symbols of the model, by the name that they have in its inputs' shapes.
    weights: contents that weights get instead of their own, by name.
    pins: values that choices and knobs get.
    forbid: values that they don't get.
    optional: initialisers that become inputs with their value as the default.
    """

    model: Any
    options: Options
    shapes: Mapping[str, Sequence[int] | int] | None = None
    values: Mapping[str, ArrayLike] | None = None
    dynamic: Ranges | None = None
    expected: ExpectedSizes | None = None
    in_place: Mapping[str, str] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] | None = None
    pins: Mapping[str, Any] | None = None
    forbid: Mapping[str, Collection[Any]] | None = None
    optional: Sequence[str] = ()

    def on_cpu(self) -> Request:
        """The same model for this machine's CPU, which has no limits of a device."""
        options = replace(self.options, target="native", memory_limit=None, time_limit=None)
        return replace(self, options=options)
