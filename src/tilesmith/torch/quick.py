"""The common call of a piece without detours: the same weights, fixed sizes, row-major tensors.

A call through several objects costs more than a small model.  This one does only what can't be left
out: it looks whether weights have changed, makes the results, and hands addresses to native code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import torch

from .results import Results
from .weights import Packed

Call: TypeAlias = Callable[[Sequence[Any]], Any]
"""From the inputs of a piece to its results; None where they have to be computed the other way."""

_address = torch.Tensor.data_ptr
_is_row_major = torch.Tensor.is_contiguous


def quick_call(packed: Packed, results: Results) -> Call:
    """A call with the weights of `packed`.  It never computes anything if the code needs more than
    addresses of tensors as they are, or if Python makes a part of the results.
    """
    native, order = packed.native, results.computed_only
    if order is None or not native.is_plain:
        return lambda _: None
    tensors = _picked(native.inputs)
    are_fit = native.are_fit
    is_same = packed.is_same
    rooms, call, check = native.rooms, native.exe.call_at, native.exe.check
    in_order = order == list(range(len(rooms)))
    is_single = results.is_single

    def run(args: Sequence[Any]) -> Any:
        if not is_same(args):
            return None
        given = tensors(args)
        if not all(map(_is_row_major, given)) or not are_fit(given):
            return None
        found = [make() for make in rooms]
        status = call(tuple(map(_address, given)), tuple(map(_address, found)))
        if status != 0:
            check(status)
        if is_single:
            return found[order[0]]
        return found if in_order else [found[i] for i in order]

    return run


def _picked(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Takes the items of these numbers."""
    if not numbers:
        return lambda _: ()
    if len(numbers) == 1:
        (only,) = numbers
        return lambda items: (items[only],)
    return itemgetter(*numbers)
