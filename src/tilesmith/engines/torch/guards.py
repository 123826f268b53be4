"""The test whether weights still have the same contents: one call of native code for all weights.

PyTorch's counter does not count all writes: fused optimizers, statistics of batch norm and writes
through `weight.data` or NumPy leave it unchanged, and memory may be reused.  So contents are
compared by a digest, for which each call reads all weights.  After some calls without changes, the
operating system reports written pages instead, if it supports that.  With `freeze=True` the user
asserts that all writes are counted; then addresses and counters suffice.

Native code calls PyTorch's own functions: `aoti_torch_get_data_ptr` of its C interface, and the
function of `aten::_version`, which has a C++ name.  Both take a tensor's handle, which is stored in
the Python object.  The handle's offset is looked up once and checked on a tensor.  If a check
fails, Python does the comparison.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch

from tilesmith.runtime.native import Unchanged, digest
from tilesmith.support.options import watches_pages_from_environment

_VERSION = "_ZN2at6native8_versionERKNS_6TensorE"
"""`int64_t at::native::_version(const at::Tensor&)`."""

_PATIENCE = 4
"""Number of calls with unchanged weights after which the operating system watches the pages of the
weights.  Watching costs the time of a digest when it begins, and then a fault of 0.7 us for each
watched page that is written.
"""

_address = torch.Tensor.data_ptr


class _Interface(NamedTuple):
    """Addresses of PyTorch's functions, and the offset in bytes of the handle in a tensor's
    object.
    """

    address_of: int
    version_of: int
    offset: int


@dataclass(frozen=True, slots=True)
class State:
    """The state of weights at some time, for comparisons.

    addresses: addresses of the weights' memory.
    versions: PyTorch's counters of writes; 0 for weights of inference mode, which have none.
    strides: strides in elements.
    contents: digests; None for a weight whose counter of writes suffices.
    """

    addresses: tuple[int, ...]
    versions: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    contents: tuple[bytes | None, ...]

    @property
    def told(self) -> tuple[Any, ...]:
        """For each weight, a value that is equal as long as the weight's contents are unchanged."""
        return tuple(
            (address, version) if digest is None else digest
            for address, version, digest in zip(
                self.addresses, self.versions, self.contents, strict=True
            )
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """A key.  Sets of weights with equal keys share a packed copy."""
        return self.strides, self.told


def state(weights: Sequence[torch.Tensor], freeze: bool) -> State:
    """The state of the weights now.

    freeze: whether counters of writes suffice.  PyTorch counts no writes to tensors of inference
        mode, so digests of these are needed in any case.
    """
    return State(
        tuple(map(_address, weights)),
        tuple(0 if w.is_inference() else w._version for w in weights),
        tuple(map(torch.Tensor.stride, weights)),
        tuple(
            None if freeze and not w.is_inference() else digest(w.data_ptr(), span(w))
            for w in weights
        ),
    )


def span(x: torch.Tensor) -> int:
    """Number of bytes from a tensor's first element to the end of its last."""
    if not x.numel():
        return 0
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return (last + 1) * x.element_size()


def unchanged(
    numbers: Sequence[int], weights: Sequence[torch.Tensor], then: State, threads: int = 1
) -> Callable[[Any], bool]:
    """A function of a call's inputs (a list or a tuple) that tests whether the inputs with these
    `numbers` are `weights` in the state `then`.

    It may return False for other objects with the same contents.

    threads: number of threads that compute digests.
    """
    interface = _interface()
    if interface is None:
        freeze = None in then.contents

        def is_in(args: Sequence[Any]) -> bool:
            return state([args[i] for i in numbers], freeze).key == then.key

        return is_in
    sizes = tuple(-1 if d is None else span(w) for w, d in zip(weights, then.contents, strict=True))
    held = tuple(weights)
    state_of_each = then.addresses, then.versions, sizes
    patience = _PATIENCE if watches_pages_from_environment() else -1

    # A device may write pinned memory without the operating system noticing.
    def may_watch() -> bool:
        return not any(map(torch.Tensor.is_pinned, held))

    return Unchanged(
        *interface, tuple(numbers), held, *state_of_each, threads, patience, may_watch
    ).is_in


@cache
def _interface() -> _Interface | None:
    """The functions and offsets for native code; None if this PyTorch fails a check."""
    try:
        # Look-ups in a library also find the symbols of its dependencies.
        library = ctypes.CDLL(torch._C.__file__)
        address_of, version_of = library.aoti_torch_get_data_ptr, library[_VERSION]
    except (OSError, AttributeError):
        return None
    version_of.restype = ctypes.c_int64
    offset = object.__basicsize__
    # Tensors made in inference mode have no version counter.
    with torch.inference_mode(False), torch.no_grad():
        tensors = torch.zeros(3), torch.nn.Parameter(torch.zeros(2), requires_grad=False)[1:]
        for made in tensors:
            made.add_(1)
    for made in tensors:
        if ctypes.c_void_p.from_address(id(made) + offset).value != made._cdata:
            return None
        handle, address = ctypes.c_void_p(id(made) + offset), ctypes.c_void_p()
        if address_of(handle, ctypes.byref(address)) != 0 or address.value != made.data_ptr():
            return None
        if version_of(handle) != made._version:
            return None
    places = (ctypes.cast(f, ctypes.c_void_p).value for f in (address_of, version_of))
    first, second = (p or 0 for p in places)
    return _Interface(first, second, offset)
