"""A fast path for the common call of a compiled piece of a graph: unchanged weights, constant
sizes, row-major tensors.

A call through several objects costs more than a small model's kernels.  The quick call does only
three things: it tests whether weights have changed, allocates the results, and passes addresses to
native code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import torch

from .results import Results
from .weights import Packed

Call: TypeAlias = Callable[[Sequence[Any]], Any]
"""A function from the inputs of a compiled piece of a graph to its results.  It returns None if the
slower, general call is needed.
"""

_address = torch.Tensor.data_ptr
_is_row_major = torch.Tensor.is_contiguous


def quick_call(packed: Packed, results: Results) -> Call:
    """The quick call for the weights of `packed`.  It always returns None if the code needs more
    than addresses (`Native.is_plain`), or if Python computes a part of the results.
    """
    native, order = packed.native, results.computed_only
    if order is None or not native.is_plain:
        return lambda _: None
    tensors = _picked(native.inputs)
    are_fit = native.are_fit
    is_same = packed.is_same
    allocators, call, check = native.allocators, native.exe.call_at, native.exe.check
    in_order = order == list(range(len(allocators)))
    is_single = results.is_single

    def run(args: Sequence[Any]) -> Any:
        if not is_same(args):
            return None
        inputs = tensors(args)
        if not all(map(_is_row_major, inputs)) or not are_fit(inputs):
            return None
        results = [make() for make in allocators]
        status = call(tuple(map(_address, inputs)), tuple(map(_address, results)))
        if status != 0:
            check(status)
        if is_single:
            return results[order[0]]
        return results if in_order else [results[i] for i in order]

    return run


def _picked(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes the items with these numbers."""
    if not numbers:
        return lambda _: ()
    if len(numbers) == 1:
        (only,) = numbers
        return lambda items: (items[only],)
    return itemgetter(*numbers)
