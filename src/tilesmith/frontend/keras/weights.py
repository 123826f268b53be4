"""The weights of layers.

`.keras` archives have a group for each layer.  `.h5` files have a list of weights for each layer of
the outermost model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.limits import checked_shape
from tilesmith.support.errors import ModelError

_MOST_OBJECTS = 1 << 18
_RATIO = 1100
"""Upper bound on the ratio of a tensor's bytes to the bytes that are stored for it."""


def check_tree(file: Any, size: int) -> None:
    """Raises ModelError unless all tensors lie in the file, which has `size` bytes, and fit it."""
    import h5py
    from h5py import h5o  # type: ignore[reportAttributeAccessIssue]

    waiting, seen = [file], set[int]()
    while waiting:
        group = waiting.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise ModelError(
                    f"{group.name}/{name}: expected a tensor in the file, found a link"
                )
            item = group[name]
            address = h5o.get_info(item.id).addr
            if address in seen:
                raise ModelError(f"{group.name}/{name}: expected one name for each object")
            seen.add(address)
            if len(seen) > _MOST_OBJECTS:
                raise ModelError(f"expected at most {_MOST_OBJECTS} objects, found more")
            if isinstance(item, h5py.Group):
                waiting.append(item)
            elif isinstance(item, h5py.Dataset):
                _check_dataset(item, size)


def read_all(file: Any) -> None:
    """Read all attributes, and all tensors that are stored in chunks, as these are decoded."""

    def read(name: str, item: Any) -> None:
        for attribute in item.attrs:
            with suppress(OSError, RuntimeError, TypeError, ValueError):
                item.attrs[attribute]
        if getattr(item, "chunks", None):
            item[()]

    read("", file)
    file.visititems(read)


def _check_dataset(data: Any, size: int) -> None:
    if data.shape is None or data.is_virtual or data.external:
        raise ModelError(f"{data.name}: expected a tensor in the file, found none")
    checked_shape(data.shape, data.name)
    stored = data.id.get_storage_size()
    if data.nbytes > _RATIO * min(stored, size):
        raise ModelError(f"{data.name}: {data.nbytes} bytes, but the file has {stored} for them")


def names_of(file: Any) -> dict[str, str]:
    """The path of the group of each layer in an archive, by the layer's name."""
    names: dict[str, str] = {}

    def enter(path: str, item: Any) -> None:
        if path.endswith("/vars") and isinstance(item.attrs.get("name"), str):
            names.setdefault(item.attrs["name"], "/" + path.removesuffix("/vars"))

    file.visititems(enter)
    return names


def _array(data: Any) -> np.ndarray:
    array = np.asarray(data[()])
    kind = data.attrs.get("dtype")
    if kind in ("bfloat16", b"bfloat16") or array.dtype.kind == "V":
        import ml_dtypes

        if array.dtype.kind == "V" and array.dtype.itemsize != 2:
            raise ModelError(f"{data.name}: expected numbers, found {array.dtype}")
        bfloat16 = np.dtype(ml_dtypes.bfloat16)
        return array.view(bfloat16) if array.dtype.itemsize == 2 else array.astype(bfloat16)
    if array.dtype.kind not in "biuf":
        raise ModelError(f"{data.name}: expected numbers, found {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="))


class Weights(ABC):
    """The weights of a layer, or of a model."""

    @abstractmethod
    def stored_bytes(self) -> int:
        """The bytes of all weights."""

    @abstractmethod
    def layer(self, kind: str, name: str) -> Weights:
        """The weights of a model's layer.

        kind: the name of its group in an archive.
        name: the layer's name.
        """

    @abstractmethod
    def part(self, names: Sequence[str], index: int = 0, of: int = 1) -> Weights:
        """The weights of a layer inside this layer.

        names: possible names of the attribute that holds the inner layer.
        index, of: the number of the inner layer, and how many inner layers there are.  All must
            have equally many weights.
        """

    @abstractmethod
    def count(self) -> int:
        """The number of the layer's own weights."""

    @abstractmethod
    def array(self, index: int) -> np.ndarray:
        """Weight number `index`.  Raises ModelError if there is none."""


@dataclass(frozen=True)
class Grouped(Weights):
    """The weights in an archive.

    file: the archive's HDF5 file.
    path: the layer's group.
    names: the path of the group of each layer, by the layer's name.
    """

    file: Any
    path: str
    names: dict[str, str]

    def stored_bytes(self) -> int:
        return _stored_bytes(self.file)

    def _inner(self, names: Sequence[str]) -> Grouped:
        paths = [f"{self.path}/{name}" for name in names]
        path = next((p for p in paths if p in self.file), paths[0])
        return Grouped(self.file, path, self.names)

    def layer(self, kind: str, name: str) -> Weights:
        group = self._inner([f"layers/{kind}", f"_layer_checkpoint_dependencies/{kind}"])
        if group.path not in self.file and name in self.names:
            # a layer that several models share is stored only in the group of the first model
            return Grouped(self.file, self.names[name], self.names)
        return group

    def part(self, names: Sequence[str], index: int = 0, of: int = 1) -> Weights:
        return self._inner(names)

    def count(self) -> int:
        group = self.file.get(f"{self.path}/vars")
        return 0 if group is None else len(group)

    def array(self, index: int) -> np.ndarray:
        data = self.file.get(f"{self.path}/vars/{index}")
        if data is None or not hasattr(data, "nbytes"):
            raise ModelError(f"expected weight number {index} in {self.path!r}, found none")
        return _array(data)


@dataclass(frozen=True)
class Listed(Weights):
    """The weights in an HDF5 file.

    group: the group of a model's or a layer's weights.
    names: the names of the weights in it; None for the outermost model.
    """

    group: Any
    names: tuple[str, ...] | None

    def stored_bytes(self) -> int:
        return _stored_bytes(self.group)

    def layer(self, kind: str, name: str) -> Weights:
        if self.names is None:
            group = self.group.get(name)
            return Listed(group, () if group is None else _names(group, "weight_names"))
        own = tuple(w for w in self.names if name in w.split("/")[:-1])
        # in Keras 2 a weight's name has the layer's name, but not those of enclosing models
        is_model = kind.startswith(("functional", "model", "sequential"))
        return Listed(self.group, self.names if is_model and not own else own)

    def part(self, names: Sequence[str], index: int = 0, of: int = 1) -> Weights:
        own = self.names or ()
        each = len(own) // of
        return Listed(self.group, own[index * each : (index + 1) * each])

    def count(self) -> int:
        return len(self.names or ())

    def array(self, index: int) -> np.ndarray:
        names = self.names or ()
        data = self.group.get(names[index]) if index < len(names) else None
        if data is None or not hasattr(data, "nbytes"):
            raise ModelError(f"expected at least {index + 1} weights, found {list(names)}")
        return _array(data)


def _stored_bytes(group: Any) -> int:
    sizes: list[int] = []
    group.visititems(lambda name, item: sizes.append(getattr(item, "nbytes", 0)))
    return sum(sizes)


def _names(group: Any, attribute: str) -> tuple[str, ...]:
    """The names in an attribute, or in attributes `name0`, `name1` and so on for a long list."""
    parts = [group.attrs[attribute]] if attribute in group.attrs else []
    while not parts or f"{attribute}{len(parts)}" in group.attrs:
        if f"{attribute}{len(parts)}" not in group.attrs:
            raise ModelError(f"{group.name}: expected the attribute {attribute!r}, found none")
        parts.append(group.attrs[f"{attribute}{len(parts)}"])
    names = [n for part in parts for n in np.asarray(part).reshape(-1).tolist()]
    return tuple(n.decode() if isinstance(n, bytes) else str(n) for n in names)
