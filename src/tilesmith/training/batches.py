"""Batches of arrays, and their comparison with what a training step takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilesmith.graph.bind import bind
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.expr import Var
from tilesmith.ir.types import TensorType
from tilesmith.support.arguments import checked, shown
from tilesmith.support.arrays import bare
from tilesmith.support.errors import ModelError, UsageError

Arrays: TypeAlias = "list[np.ndarray]"
"""The arrays of one batch: the model's inputs in order, then the labels."""


class Batches:
    """Batches of arrays, in another order in each epoch.

    arrays: inputs in the order of the model's, then the labels; samples along axis 0.
    size: samples in a batch.
    seed: of the order; None keeps the arrays' order.  An epoch's order depends on nothing else, so
        a resumed training sees the same batches.
    drop_last: leave out a last batch with fewer samples.

    Raises UsageError for arrays of different lengths or without a whole batch.
    """

    @checked(UsageError)
    def __init__(
        self,
        arrays: Sequence[Any],
        size: int = 32,
        seed: int | None = 0,
        drop_last: bool = True,
    ) -> None:
        self.arrays = [_array(a, f"array {i}") for i, a in enumerate(arrays)]
        counts = [len(a) if a.ndim else -1 for a in self.arrays]
        if len(self.arrays) < 2 or len({*counts}) != 1 or -1 in counts:
            found = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.arrays) or "none"
            raise UsageError(
                "batches: expected arrays for inputs and labels, with as many samples along axis "
                f"0, found {found}"
            )
        if seed is not None and seed < 0:
            raise UsageError(f"batches: seed: expected 0 or more, found {seed}")
        self.size, self.seed, self.drop_last = size, seed, drop_last
        least = size if drop_last else 1
        if size < 1 or counts[0] < least:
            raise UsageError(
                f"batches: expected a size from 1 to {counts[0]}, the number of samples, found "
                f"{shown(size)}"
            )

    def __len__(self) -> int:
        count = len(self.arrays[0])
        return count // self.size if self.drop_last else -(-count // self.size)

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        return self.epoch(0)

    @checked(UsageError)
    def epoch(self, number: int) -> Iterator[tuple[np.ndarray, ...]]:
        """The batches of an epoch, by its number from 0."""
        if number < 0:
            raise UsageError(f"epoch: expected 0 or more, found {number}")
        order = np.arange(len(self.arrays[0]))
        if self.seed is not None:
            order = np.random.default_rng((self.seed, number)).permutation(order)
        parts = (order[i * self.size : (i + 1) * self.size] for i in range(len(self)))
        return (tuple(a[part] for a in self.arrays) for part in parts)


def as_arrays(batch: Any, names: Sequence[str], where: str) -> Arrays:
    """The arrays of a batch in order.

    batch: a sequence in order, or a mapping by name.
    names: of the model's inputs, then of the labels.

    Raises ModelError for other counts or names, and for what is no array.
    """
    if isinstance(batch, Mapping):
        if {*batch} != {*names}:
            raise ModelError(
                f"{where}: expected arrays named {', '.join(names)}, found {shown([*batch])}"
            )
        batch = [batch[n] for n in names]
    if not isinstance(batch, (tuple, list)) or len(batch) != len(names):
        found = f"{len(batch)} arrays" if isinstance(batch, (tuple, list)) else shown(batch)
        raise ModelError(
            f"{where}: expected {len(names)} arrays, for {', '.join(names)}, found {found}"
        )
    return [_array(a, f"{where}: {n}") for n, a in zip(names, batch, strict=True)]


def _array(value: Any, where: str) -> np.ndarray:
    try:
        return bare(value, where)
    except (TypeError, ValueError, RuntimeError) as e:  # errors of NumPy and PyTorch
        raise ModelError(f"{where}: expected an array, found {shown(value)}: {e}") from e


def sized(model: Graph, arrays: Sequence[np.ndarray], where: str) -> Graph:
    """The model for the sizes of a batch.

    Raises ModelError if an array does not fit its input.
    """
    sizes: dict[Var, int] = {}
    for v, a in zip(model.inputs, arrays, strict=False):
        if a.ndim == v.type.rank:
            sizes.update({d: n for d, n in zip(v.shape, a.shape) if isinstance(d, Var)})
    for v, a in zip(model.inputs, arrays, strict=False):
        shape = tuple(sizes.get(d, d) if isinstance(d, Var) else d for d in v.shape)
        expect(v.name, TensorType(v.dtype, shape), a, where)
    for symbol, size in sizes.items():
        allowed = symbol.sizes
        if allowed is not None and not allowed.low <= size <= allowed.high:
            raise ModelError(
                f"{where}: expected {symbol} from {allowed.low} to {allowed.high}, found {size}"
            )
    return bind(model, sizes)


def expect(name: str, wanted: TensorType, array: np.ndarray, where: str) -> None:
    """Raises ModelError unless the array has a type."""
    fits = array.ndim == wanted.rank and all(
        n == d for n, d in zip(array.shape, wanted.shape) if isinstance(d, int)
    )
    if array.dtype != wanted.dtype.numpy or not fits:
        found = f"{array.dtype}{list(array.shape)}"
        raise ModelError(f"{where}: {name}: expected {wanted}, found {found}")


def inputs_of(model: Graph) -> list[Value]:
    """The inputs that callers give: all but the values that the model keeps."""
    held = {i for i, _ in model.defaults}
    return [v for i, v in enumerate(model.inputs) if i not in held]
