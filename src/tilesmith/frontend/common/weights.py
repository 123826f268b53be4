"""New contents for a model's weights."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError


@dataclass(slots=True)
class NewWeights:
    """New contents by the names of weights.

    arrays: the contents.
    """

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    _types: dict[str, TensorType] = field(default_factory=dict)

    def array(self, name: str, type: TensorType) -> np.ndarray | None:
        """The new contents of a weight of the model; None if the weight keeps its contents.
        `check` later reports contents that do not fit.
        """
        self._types[name] = type
        array = self.arrays.get(name)
        fits = array is not None and _fits(array, type)
        return array if fits else None

    def data(self, name: str, type: TensorType, data: Data) -> Data:
        """The new contents of a weight of the model, or else the weight's own contents `data`."""
        array = self.array(name, type)
        return data if array is None else Data.of(np.ascontiguousarray(array).reshape(array.shape))

    def check(self) -> None:
        """Raises ModelError, which lists all errors: contents of other types than the model's
        weights, and names that the model does not have.
        """
        wrong = []
        for name, array in self.arrays.items():
            type = self._types.get(name)
            if type is None:
                wrong.append(f"no weight is called {name!r}{_nearest(name, self._types)}")
            elif not _fits(array, type):
                wrong.append(f"{name!r}: expected {type}, found {array.dtype} {list(array.shape)}")
        if wrong:
            raise ModelError(f"the weights do not fit the model: {'; '.join(wrong)}")


def _fits(array: np.ndarray, type: TensorType) -> bool:
    return array.dtype == type.dtype.numpy and array_type(array).shape == type.shape


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
