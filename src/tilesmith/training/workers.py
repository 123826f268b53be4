"""Training by several processes, each on batches of its own (data parallel).

After each batch the gradients are averaged over the processes, and every process makes the same
step with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError

BUCKET = 1 << 24
"""Elements that are averaged in one message, so that its memory stays small."""


Average: TypeAlias = Callable[[np.ndarray], object]
"""Replaces the elements of an array by their averages over all processes, which call it with arrays
of one shape and type.
"""


@checked(UsageError)
def gloo() -> Average:
    """Averages over the processes of `torch.distributed`, whose process group the caller has made,
    for example by `torch.distributed.init_process_group("gloo")`.

    Raises UsageError without a process group.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        raise UsageError(
            'gloo: expected a process group: call torch.distributed.init_process_group("gloo")'
        )

    def average(flat: np.ndarray) -> None:
        tensor = torch.from_numpy(flat)
        torch.distributed.all_reduce(tensor)
        tensor /= torch.distributed.get_world_size()

    return average


def average_all(average: Average, arrays: Sequence[np.ndarray]) -> None:
    """Average arrays in place, those of a type together in messages of about `BUCKET` elements."""
    for dtype in dict.fromkeys(a.dtype for a in arrays):
        bucket: list[np.ndarray] = []
        for a in (*(a for a in arrays if a.dtype == dtype), None):
            if bucket and (a is None or sum(b.size for b in bucket) + a.size > BUCKET):
                flat = np.concatenate([b.reshape(-1) for b in bucket])
                average(flat)
                parts = np.split(flat, np.cumsum([b.size for b in bucket])[:-1])
                for b, part in zip(bucket, parts, strict=True):
                    b[...] = part.reshape(b.shape)
                bucket = []
            if a is not None:
                bucket.append(a)
