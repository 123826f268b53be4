"""Weights as constants of native code.  They are packed again only when they change.

A weight is unchanged if it holds the same bytes (`guards`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import Native
from .guards import State, state, unchanged

_PATIENCE = 2
"""Number of changes after which a weight becomes an input."""

_KEPT = 64
"""Upper bound on the sets of weights with code of their own: the layers of a model may share one
graph.
"""


@dataclass(slots=True, eq=False)
class Packed:
    """Native code in which some weights are constants.

    numbers: numbers of the inputs that are constants.
    weights: the tensors of these inputs.  This reference keeps their addresses from being reused.
    state: the weights' state when they were packed.
    native: the code.
    is_same: tests whether the inputs of a call are these weights with the same contents.
    quick: the call with little overhead (see `quick_call`); None until it is made.
    """

    numbers: tuple[int, ...]
    weights: tuple[torch.Tensor, ...]
    state: State
    native: Native
    is_same: Callable[[Sequence[Any]], bool]
    quick: Callable[[Sequence[Any]], Any] | None = None


class Weights:
    """The cache of native code, by the weights of a call."""

    def __init__(
        self,
        numbers: Collection[int],
        make: Callable[[Sequence[Any], Sequence[int]], Native | None],
        freeze: bool = False,
    ) -> None:
        """Cache code, at first with all weights as constants.

        numbers: numbers of the inputs that are weights.
        make: compiles code, given the inputs of a call and the numbers of the inputs that become
            constants.
        freeze: whether PyTorch counts all writes to weights.
        """
        self.numbers = list(numbers)
        self.freeze = freeze
        self._make = make
        self._constant = list(numbers)
        self._changes = dict.fromkeys(numbers, 0)
        self._packed: dict[tuple[Any, ...], Packed] = {}
        self._last: Packed | None = None

    def first(self, args: Sequence[Any]) -> Packed | None:
        """The code for the first call; None if it can't be made."""
        self._constant = [i for i in self.numbers if isinstance(args[i], torch.Tensor)]
        return self._new(args, self._now(args))

    def packed(self, args: Sequence[Any]) -> Packed | None:
        """The code for a call with these inputs; None if it can't be made."""
        if self._last is not None and self._last.is_same(args):
            return self._last
        now = self._now(args)
        packed = self._packed.get(now.key)
        if packed is None:
            if self._last is not None and self._changed(self._last, args, now):
                now = self._now(args)
            packed = self._new(args, now)
        self._last = packed
        return packed

    def _now(self, args: Sequence[Any]) -> State:
        return state([args[i] for i in self._constant], self.freeze)

    def _changed(self, last: Packed, args: Sequence[Any], now: State) -> bool:
        """Record which weights of the last call were written.  Returns whether one of them has
        become an input.
        """
        is_same = [args[i] is w for i, w in zip(last.numbers, last.weights, strict=True)]
        then, current = last.state.told, now.told
        for i, same, a, b in zip(last.numbers, is_same, then, current, strict=True):
            self._changes[i] += same and a != b
        left = [i for i in self._constant if self._changes[i] < _PATIENCE]
        if len(left) == len(self._constant):
            return False
        self._constant = left
        self._packed.clear()
        return True

    def _new(self, args: Sequence[Any], now: State) -> Packed | None:
        numbers = tuple(self._constant)
        native = self._make(args, numbers)
        if native is None:
            return None
        if len(self._packed) >= _KEPT:
            self._packed.pop(next(iter(self._packed)))
        weights = tuple(args[i] for i in numbers)
        is_same = unchanged(numbers, weights, now, native.exe.threads)
        self._last = self._packed[now.key] = Packed(numbers, weights, now, native, is_same)
        return self._last
