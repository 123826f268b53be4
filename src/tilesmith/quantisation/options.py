"""All options of quantisation, as one frozen value.

`ts.quantize` takes the fields as keyword arguments (`QuantizeChoices`).  The command line is made
from the fields' metadata, as for `Options`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from tilesmith.ir.dtypes import DType, i8, u8
from tilesmith.runtime.executable import Executable
from tilesmith.support.arguments import check_fields, shown
from tilesmith.support.errors import UsageError
from tilesmith.support.options import option

from .ranges import METHODS
from .schemes import SCHEMES

AUTO = "auto"
"""The scheme that lets quantisation choose a scheme for each layer."""
ACTIVATIONS: Mapping[str, DType] = {"u8": u8, "i8": i8}
Metric: TypeAlias = Callable[[Executable], float]
"""A measure of an executable's quality, such as its accuracy on labelled data; more is better."""


class QuantizeChoices(TypedDict, total=False):
    """The fields of `QuantizeOptions` as keyword arguments."""

    scheme: str
    max_drop: float
    metric: Metric | None
    calibration: str
    activations: str
    group: int
    bias_correction: bool
    balance: bool
    pins: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """Options of one quantisation.  The metadata of a field describes it.

    Raises UsageError if a value is impossible.
    """

    scheme: str = option(
        AUTO,
        f"What to do to layers: {', '.join(SCHEMES[1:])}, or {AUTO}: what suits each one.",
        None,
    )
    max_drop: float = option(
        0.01,
        f"For {AUTO}: most that the metric may lose; without one, the answers' cosine similarity.",
        None,
    )
    metric: Metric | None = option(
        None,
        "What an executable is worth, more being better (default: no labels).",
        None,
        cli=False,
    )
    calibration: str = option(
        "mse", f"How the ranges of activations are found: {', '.join(METHODS)}.", None
    )
    activations: str = option("u8", f"Type of activations: {', '.join(ACTIVATIONS)}.", None)
    group: int = option(32, "For int4-weights: inputs that share a scale.", None)
    bias_correction: bool = option(
        True, "Take the mean error that rounded weights cause out of the results.", None
    )
    balance: bool = option(
        True,
        "Move channel scales from activations into weights where that makes steps finer.",
        None,
    )
    pins: Mapping[str, str] | None = option(
        None,
        "By name or pattern of a layer: the only scheme it may have (f32 leaves it alone).",
        None,
        cli=False,
    )

    def __post_init__(self) -> None:
        check_fields(self, UsageError)
        _check("scheme", self.scheme, (*SCHEMES[1:], AUTO))
        if not 1 <= self.group < 1 << 31:
            raise UsageError(f"group must be from 1 to 2^31 - 1, not {shown(self.group)}")
        if not (math.isfinite(self.max_drop) and self.max_drop >= 0):
            raise UsageError(f"max_drop must be a number of at least 0, not {self.max_drop!r}")
        _check("calibration", self.calibration, METHODS)
        _check("activations", self.activations, ACTIVATIONS)
        for scheme in (self.pins or {}).values():
            _check("a pinned scheme", scheme, SCHEMES)

    @property
    def activation_type(self) -> DType:
        """The element type of activations."""
        return ACTIVATIONS[self.activations]


def _check(what: str, value: Any, known: Any) -> None:
    if value not in known:
        raise UsageError(f"{what} must be one of {', '.join(known)}, not {value!r}")
