"""The samples for calibration: from files or from memory, checked one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilesmith.graph.nodes import Graph, Value
from tilesmith.support.arguments import each, shown
from tilesmith.support.array_files import read_arrays
from tilesmith.support.arrays import bare
from tilesmith.support.errors import ModelError, UsageError

Sample: TypeAlias = "dict[str, np.ndarray]"
"""One sample: an array for each of the model's inputs, by name."""


class Samples:
    """Samples of a model's inputs, read again for each pass over them.

    data: a folder of .npz files (or of .npy files, for a model with one input), one sample in each;
        or an .npz or .npy file whose arrays contain samples along axis 0; or a sequence of samples
        in memory, each a mapping from names to arrays (or an array, for a model with one input).

    Arrays in files have the names of the model's inputs, with or without the prefix `in_`.  Other
    arrays are ignored.  A file whose arrays have the inputs' own shapes is one sample.  If axis 0
    of the arrays is a multiple of the inputs' axis 0, or an additional axis, it is cut into
    samples.

    Raises UsageError if there are no samples.  Raises ModelError for the first sample that does not
    match the model's inputs or that contains a NaN or an infinity.  Samples in memory are checked
    at once, and samples in files in each pass.
    """

    def __init__(self, data: Any, graph: Graph) -> None:
        self._inputs = graph.inputs
        self._parts: Sequence[Any]
        if isinstance(data, (str, os.PathLike)):
            try:
                place = Path(data)
            except TypeError:  # `__fspath__` does not return text
                raise UsageError(f"expected a path, found {shown(data)}") from None
            self._parts = _files(place)
        elif isinstance(data, Iterable):
            parts = [data] if isinstance(data, Mapping) else each(data, "samples")
            # each sample is checked before the next is requested: a generator may be endless
            self._parts = [self._whole(part, f"sample {i}") for i, part in enumerate(parts)]
        else:
            raise UsageError(
                "expected samples: a folder, a file, or a sequence of arrays or of mappings from "
                f"input names to arrays; found {type(data).__name__}"
            )
        if not self._parts:
            raise UsageError("expected samples to calibrate on, found an empty sequence")

    def __iter__(self) -> Iterator[Sample]:
        count = 0
        for part in self._parts:
            samples = [part]
            if isinstance(part, Path):
                where = repr(str(part))
                samples = self._cut(self._named(read_arrays(part), where, exact=False), where)
            for sample in samples:
                count += 1
                yield sample
        if not count:
            raise UsageError("expected samples to calibrate on, found arrays without any")

    def _whole(self, part: Any, where: str) -> Sample:
        """A sample in memory, examined."""
        return self._checked(self._named(part, where, exact=True), where)

    def _named(self, arrays: Any, where: str, *, exact: bool) -> Sample:
        """The arrays by the names of the inputs.

        exact: whether additional arrays are an error.
        """
        names = [v.name for v in self._inputs]
        if not isinstance(arrays, Mapping):
            arrays = {"": arrays}
        if set(arrays) == {""} and len(names) == 1:
            return {names[0]: _array(arrays[""], where)}
        taken = {n: k for n in names for k in (f"in_{n}", n) if k in arrays}
        missing = [n for n in names if n not in taken]
        more = [k for k in arrays if k not in taken.values()]
        if missing or (exact and more):
            has = ", ".join(repr(k) if k else "one unnamed array" for k in arrays) or "nothing"
            wanted = ", ".join(map(repr, names))
            raise ModelError(f"{where}: expected arrays for the inputs {wanted}, found {has}")
        return {n: _array(arrays[k], where) for n, k in taken.items()}

    def _cut(self, arrays: Sample, where: str) -> Iterator[Sample]:
        """The samples in the arrays of a file."""
        counts = {v.name: _count(v, arrays[v.name].shape) for v in self._inputs}
        if None in counts.values() or len(set(counts.values())) != 1:
            yield self._checked(arrays, where)
            return
        for i in range(next(iter(counts.values())) or 0):
            sample = {}
            for v in self._inputs:
                array = arrays[v.name]
                if array.ndim > v.type.rank:
                    sample[v.name] = array[i]
                elif v.type.rank:
                    batch = v.type.shape[0] if isinstance(v.type.shape[0], int) else len(array)
                    sample[v.name] = array[i * batch : (i + 1) * batch]
                else:
                    sample[v.name] = array
            yield self._checked(sample, f"{where}, sample {i}")

    def _checked(self, sample: Sample, where: str) -> Sample:
        for v in self._inputs:
            array = sample[v.name]
            fits = array.ndim == v.type.rank and all(
                n == d for n, d in zip(array.shape, v.shape) if isinstance(d, int)
            )
            if array.dtype != v.dtype.numpy or not fits:
                shape = ",".join(map(str, array.shape))
                raise ModelError(
                    f"{where}: expected {v.type} for input {v.name!r}, found {array.dtype}[{shape}]"
                )
            if v.dtype.is_float and not np.isfinite(array).all():
                kind = "a NaN" if np.isnan(array).any() else "an infinity"
                raise ModelError(f"{where}: input {v.name!r} holds {kind}; calibrate without it")
        return sample


def _array(value: Any, where: str) -> np.ndarray:
    try:
        return bare(value, where)
    except (TypeError, ValueError, RuntimeError) as e:  # errors of NumPy and PyTorch
        raise ModelError(f"{where}: expected an array, found {shown(value)}: {e}") from e


def _files(path: Path) -> list[Path]:
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError) as e:  # the operating system can't look up such a name
        raise UsageError(f"samples: {shown(str(path))} can't be a path: {e}") from None
    if is_folder:
        files = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy"))
        if not files:
            raise UsageError(
                f"the folder {str(path)!r} has no samples: expected .npz or .npy files in it"
            )
        return files
    if not is_there:
        raise UsageError(f"there is no file or folder {str(path)!r} of samples")
    return [path]


def _count(v: Value, shape: tuple[int, ...]) -> int | None:
    """Number of samples in an array of this shape; None if the shape does not match input `v`."""
    own = v.type.shape
    if len(shape) == len(own) + 1:
        return shape[0] if _fit(own, shape[1:]) else None
    if len(shape) != len(own):
        return None
    if not own or not isinstance(own[0], int):
        return 1 if _fit(own, shape) else None
    return (
        shape[0] // own[0]
        if own[0] and shape[0] % own[0] == 0 and _fit(own[1:], shape[1:])
        else None
    )


def _fit(own: Sequence[Any], shape: Sequence[int]) -> bool:
    return all(n == d for d, n in zip(own, shape, strict=True) if isinstance(d, int))
