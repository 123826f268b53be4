"""Arguments that share memory, one of which is written.

AOTAutograd makes graphs that write nothing, and copies new contents into arguments afterwards.  It
tests whether arguments share memory in the example, and Dynamo guards the arguments that do.
The other arguments have no guard: a later call may pass overlapping parts of one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from tilesmith.runtime.overlaps import Place, shared

_ORIGIN = 64
"""A substitute for the address of a storage: fake tensors have none, and NumPy treats 0 as no
address.
"""


def with_sharing(
    compiled: Callable[..., Any],
    graph: Callable[..., Any],
    example_inputs: Sequence[Any],
    written: Collection[int],
) -> Callable[..., Any]:
    """A function that calls `compiled`.  If a written argument shares memory with another argument
    and did not in the example, it calls `graph` instead, which runs operator by operator.

    example_inputs: the inputs for which `compiled` was made, possibly fake tensors.
    written: indices of the arguments that are written.
    """
    if not written:
        return compiled
    known = _sharing(example_inputs, written)

    def allowed(i: int, j: int) -> bool:
        return (i, j) in known

    def call(*args: Any) -> Any:
        return (compiled if shared(args, written, allowed) is None else graph)(*args)

    return call


def _sharing(inputs: Sequence[Any], written: Collection[int]) -> set[tuple[int, int]]:
    """Pairs of indices of inputs that share memory.  The first input of each pair is written."""
    places = {
        i: (x.untyped_storage()._cdata, _place(x))
        for i, x in enumerate(inputs)
        if isinstance(x, torch.Tensor) and x.layout is torch.strided
    }
    return {
        (i, j)
        for i in set(written) & set(places)
        for j in places
        if i != j and places[i][0] == places[j][0] and places[i][1].meets(places[j][1])
    }


def _place(x: torch.Tensor) -> Place:
    """The memory layout of a tensor in its storage.  Symbolic sizes are replaced by their
    values in the example.
    """
    size = x.element_size()
    strides = tuple(_known(s) * size for s in x.stride())
    address = _ORIGIN + _known(x.storage_offset()) * size
    return Place(address, tuple(map(_known, x.shape)), strides, size)


def _known(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size
