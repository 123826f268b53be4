"""Weights as constants of native code, which packs them once, until they change.

A weight is the same as before if its memory is at the same address and PyTorch's counter of writes
to it is the same.  Writes through `weight.data`, which PyTorch doesn't count, are not seen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import Native

_PATIENCE = 2
"""A weight that has changed so often is no constant any more."""

_KEPT = 64
"""Sets of weights with code of their own: the layers of a model may share one graph."""

_address = torch.Tensor.data_ptr
_version = operator.attrgetter("_version")


@dataclass(slots=True, eq=False)
class Packed:
    """Native code in which some weights are constants.

    numbers: of the inputs that these are.
    weights: the tensors; as long as they are referred to here, nothing else is at their addresses.
    addresses: of their memory.
    versions: their counters of writes when they were packed.
    native: the code.
    quick: its call without detours (see `quick_call`), once it was needed.
    """

    numbers: tuple[int, ...]
    weights: tuple[torch.Tensor, ...]
    addresses: tuple[int, ...]
    versions: tuple[int, ...]
    native: Native
    quick: Callable[[Sequence[Any]], Any] | None = None


class Weights:
    """The native code for the weights of each call."""

    def __init__(
        self,
        numbers: Collection[int],
        make: Callable[[Sequence[Any], Sequence[int]], Native | None],
    ) -> None:
        """numbers: of the inputs that are weights.

        make: compiles for these inputs, of which some, by number, are constants.
        """
        self.numbers = list(numbers)
        self._make = make
        self._constant = list(numbers)
        self._changes = dict.fromkeys(numbers, 0)
        self._packed: dict[tuple[int, ...], Packed] = {}

    def first(self, args: Sequence[Any]) -> Packed | None:
        """The code for the first call; None if it can't be made."""
        self._constant = [i for i in self.numbers if _is_counted(args[i])]
        return self._new(args)

    def packed(self, args: Sequence[Any]) -> Packed | None:
        """The code for a call with these inputs; None if it can't be made."""
        weights = [args[i] for i in self._constant]
        packed = self._packed.get(tuple(map(_address, weights)))
        if packed is not None:
            if tuple(map(_version, weights)) == packed.versions:
                return packed
            self._changed(packed, weights)
        return self._new(args)

    def _changed(self, packed: Packed, weights: Sequence[Any]) -> None:
        """Notes which weights were written to."""
        before = len(self._constant)
        for i, then, now in zip(
            [*self._constant], packed.versions, map(_version, weights), strict=True
        ):
            self._changes[i] += then != now
        self._constant = [i for i in self._constant if self._changes[i] < _PATIENCE]
        if len(self._constant) < before:
            self._packed.clear()

    def _new(self, args: Sequence[Any]) -> Packed | None:
        numbers = tuple(self._constant)
        weights = tuple(args[i] for i in numbers)
        versions = tuple(map(_version, weights))
        native = self._make(args, numbers)
        if native is None:
            return None
        if len(self._packed) >= _KEPT:
            self._packed.pop(next(iter(self._packed)))
        addresses = tuple(map(_address, weights))
        made = self._packed[addresses] = Packed(numbers, weights, addresses, versions, native)
        return made


def _is_counted(weight: Any) -> bool:
    """Whether PyTorch counts writes to a tensor; it does not in inference mode."""
    return isinstance(weight, torch.Tensor) and not weight.is_inference()
