"""A user's model, and the interface of a frontend.

Paths are examined by `os.path`: the methods of `Path` raise OSError for a name that is too long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tilesmith.graph.nodes import Graph
from tilesmith.support.arguments import shown
from tilesmith.support.described import Described
from tilesmith.support.errors import ModelError
from tilesmith.support.mapped import map_model

from .inputs import Given
from .inspection import Function, Inspection


@dataclass(frozen=True, slots=True)
class Source:
    """A model as the user gave it.

    model: the path, bytes or object.
    content: the bytes, or the mapped file at the path; None for an object and for a folder.
    name: the model's name in messages; empty for an object (a frontend may find a name for it).
    folder: the folder with the files that the model may refer to; the model itself if it is a
        folder; None if it is neither a file nor a folder.
    opened: collects the names of the opened files in `folder`.
    home: the folder that contains the model's own file.  It differs from `folder` if the path is a
        link.
    second: the second file of a model in two files, if the caller gave both.
    """

    model: Any
    content: bytes | memoryview | None = None
    name: str = ""
    folder: Path | None = None
    opened: set[str] = field(default_factory=set)
    home: Path | None = None
    second: Path | None = None

    @staticmethod
    def of(model: Any, files: str, opened: set[str] | None = None) -> Source:
        """The opened source of `model`.

        files: the accepted kinds of files, for messages.

        Raises ModelError for a path that cannot be read.
        """
        opened = opened if opened is not None else set()
        if isinstance(model, (bytes, bytearray, memoryview)):
            return Source(model, bytes(model), "the given bytes", None, opened)
        if isinstance(model, (str, os.PathLike)):
            try:
                path = Path(model)
            except TypeError:  # `__fspath__` does not return text
                raise ModelError(f"expected a model's path, found {shown(model)}") from None
            if os.path.isdir(path):
                return Source(path, None, str(path), path, opened)
            content = map_model(path, files)
            home = Path(os.path.realpath(path)).parent
            return Source(model, content, str(path), path.parent, opened, home)
        if isinstance(model, (tuple, list)) and len(model) == 2 and all(map(_is_path, model)):
            return replace(Source.of(model[0], files, opened), second=Path(model[1]))
        return Source(model, opened=opened)

    @property
    def is_folder(self) -> bool:
        """Whether the model is a folder."""
        return self.content is None and self.folder is not None

    def companion(self, *endings: str, own: str = "") -> memoryview | None:
        """The mapped second file of a model in two files: the one that the caller gave, or the
        first file beside the model with its name and one of the endings.  None if there is none.

        own: the first file's ending if it has two dots.
        """
        second = self.second
        if second is None and self.folder is not None and not self.is_folder:
            path = Path(self.name)
            has_own = bool(own) and path.name.endswith(own)
            stem = path.name.removesuffix(own) if has_own else path.stem
            beside = (self.folder / (stem + e) for e in endings)
            second = next((p for p in beside if os.path.isfile(p)), None)
        if second is None:
            return None
        self.opened.add(second.name)
        if os.path.isfile(second) and not second.stat().st_size:
            return memoryview(b"")  # a model without weights
        return map_model(second, "the model's second file")

    def file(self, name: str) -> memoryview | None:
        """The mapped file `name`, such as "data/weights.bin", in the model's folder; None if it is
        not there.  Raises ModelError for a name that leads out of the folder.
        """
        assert self.folder is not None
        path, root = self.folder / name, os.path.realpath(self.folder)
        if os.path.commonpath((os.path.realpath(path), root)) != root:
            raise ModelError(f"expected a file in the model's folder, found the name {name!r}")
        if not os.path.isfile(path):
            return None
        self.opened.add(name)
        return map_model(path, "a file of the model")


def _is_path(part: Any) -> bool:
    return isinstance(part, (str, os.PathLike))


@dataclass(frozen=True, slots=True)
class Reader:
    """The functions that read one kind of source model.

    load: makes the graph.  Raises ModelError when the model is damaged or inconsistent;
        UnsupportedError, which lists every node that cannot be imported; UnequalDims when `load`
        must be called again with fewer symbols.
    nodes: the names and operators of a source's nodes, in order; none if they can't be listed.
    inspect: facts about a file, without importing it; None for a frontend that reads no files.
    signatures: by name, the functions that a model has; none if it has only one, without a name.
    described: what a source says about inputs and outputs of the named function, by name.
    """

    load: Callable[[Source, Given], Graph]
    nodes: Callable[[Source], list[tuple[str, str]]] = lambda source: []
    inspect: Callable[[Source], Inspection] | None = None
    signatures: Callable[[Source], dict[str, Function]] = lambda source: {}
    described: Callable[[Source, str | None], dict[str, Described]] = lambda source, name: {}


@dataclass(frozen=True, slots=True)
class Frontend:
    """One kind of source model.

    file: the name of the frontend's files in messages ("an ONNX file"); empty if it reads none.
    kinds: the sources that the frontend accepts, for messages ("a path to an ONNX model").
    recognises: whether a source is of this kind, by its content or the object's type.
    module: the module whose `READER` reads such sources.  It imports the functions of all
        operators, so it is imported when the first model of the kind is read.
    """

    file: str
    kinds: tuple[str, ...]
    recognises: Callable[[Source], bool]
    module: str

    @property
    def reader(self) -> Reader:
        """The functions that read such sources."""
        return import_module(self.module).READER
