"""Facts about GGUF files."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.inputs import Given
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.source import Reader, Source
from tilesmith.runtime.gguf import read_gguf
from tilesmith.support.errors import ModelError

_MOST_SHOWN = 16
"""Upper bound on the length of a list in the metadata that is shown."""


def _load(source: Source, given: Given) -> NoReturn:
    del given
    with errors_name(source.name):
        raise ModelError(
            "expected a model, found a GGUF file, which has weights but no graph: give it to "
            "load_weights of the compiled model"
        )


def inspect(source: Source) -> Inspection:
    """Facts about a file: its metadata, and its tensors by their types."""
    assert source.content is not None  # `recognises` demands contents
    file = read_gguf(source.content)
    metadata = {
        name: f"{len(value)} elements" if _is_long(value) else _shown(value)
        for name, value in file.metadata.items()
    }
    tensors = {n: f"{t.kind}[{','.join(map(str, t.shape))}]" for n, t in file.tensors.items()}
    return Inspection(
        f"GGUF, version {file.version}",
        "",
        {},
        {},
        Counter(),
        weight_bytes=sum(len(t.stored) for t in file.tensors.values()),
        metadata=metadata | tensors,
    )


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > _MOST_SHOWN


def _shown(value: object) -> object:
    return list(map(str, value)) if isinstance(value, list) else value


READER = Reader(_load, inspect=inspect)
