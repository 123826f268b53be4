"""A check that a TorchScript file contains as many elements as its tensors declare.

`torch.jit.load` trusts the counts of elements in `data.pkl` and `constants.pkl`.  If a file is
shorter, `torch.jit.load` reads beyond the end: it returns arbitrary memory or crashes.  Here the
pickles are read without a call of the classes in them.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

from tilesmith.support.errors import ModelError

_BYTES = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2,
          "Char": 1, "Byte": 1, "Bool": 1, "ComplexFloat": 8, "ComplexDouble": 16,
          "ComplexHalf": 4, "QInt8": 1, "QUInt8": 1, "QInt32": 4}  # fmt: skip
"""Bytes per element, by the name of the storage's class without `Storage`."""
_PARTS = ("data", "constants")


class _Nothing:
    """Replaces every class in a pickle.  Accepts any arguments and does nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...
    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    def __setstate__(self, state: object) -> None: ...
    def __setitem__(self, key: object, value: object) -> None: ...
    def append(self, item: object) -> None: ...
    def extend(self, items: object) -> None: ...


class _Storages(pickle.Unpickler):
    """Reads a pickle and collects the storages in it.

    named: the key, the bytes per element and the number of elements of each storage.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.named: list[tuple[str, int, int]] = []

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        del module
        return type(name, (_Nothing,), {})

    def persistent_load(self, pid: Any) -> _Nothing:
        if isinstance(pid, tuple) and len(pid) == 5 and isinstance(pid[1], type):
            _, kind, key, _, count = pid
            size = _BYTES.get(kind.__name__.removesuffix("Storage"), 1)
            if isinstance(key, str) and isinstance(count, int):
                self.named.append((key, size, count))
        return _Nothing()


def check_storages(model: str | bytes, name: str) -> None:
    """Raises ModelError if a tensor of a TorchScript file has fewer elements than declared.

    PyTorch itself reports other damage of the file.

    model: a path or the content.
    name: the model's name in messages.
    """
    try:
        source = model if isinstance(model, str) else io.BytesIO(model)
        with zipfile.ZipFile(source) as z:
            shorter = list(_shorter(z))
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
        return
    if shorter:
        file, wanted, size = shorter[0]
        raise ModelError(
            f"{name} is damaged: expected {wanted} bytes in its part {file}, found {size}; "
            "copy or save it again"
        )


def _shorter(z: zipfile.ZipFile) -> Iterator[tuple[str, int, int]]:
    """The files that have fewer bytes than tensors need: name, bytes needed, bytes present."""
    sizes = {i.filename: i.file_size for i in z.infolist()}
    top = next(iter(sizes), "").partition("/")[0]
    for part in _PARTS:
        if f"{top}/{part}.pkl" not in sizes:
            continue
        reader = _Storages(io.BytesIO(z.read(f"{top}/{part}.pkl")))
        # A damaged pickle may raise anything.  PyTorch reads the file later and reports the damage.
        with suppress(Exception):
            reader.load()
        for key, size, count in reader.named:
            file = f"{top}/{part}/{key}"
            if file in sizes and sizes[file] < size * count:
                yield file, size * count, sizes[file]
