"""Layers of ncnn that run compiled code, for unchanged models in ncnn's own Python package."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import ncnn
import numpy as np

from tilesmith.driver.entry import compiled
from tilesmith.driver.request import Request
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.threads import thread_count
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ModelError, TilesmithError, UsageError
from tilesmith.support.logs import logger
from tilesmith.support.options import Options

from .segments import Segment, segments

_log = logger("engines")
_NCNN: Any = ncnn  # a module in C++ without types
_TYPE = "Tilesmith"
"""The type of our layers in the network's text."""

_MAGIC = b"7767517"
"""The beginning of a network's text."""

_FAILED = -1
"""A status of ncnn's functions: not 0, which stands for success."""

_ALIVE: set[Any] = set()
"""Our layers that networks use; a network says when it needs a layer no more."""


class _Compiled(_NCNN.Layer):
    """A layer that runs a segment of the network."""

    def __init__(self, parts: Mapping[str, tuple[Segment, Executable]]) -> None:
        super().__init__()
        self.one_blob_only = True
        self._parts = parts

    def load_param(self, _: Any) -> int:
        self._segment, self._run = self._parts[self.name]
        return 0

    def load_model(self, weights: Any) -> int:
        """Skip the segment's weights, which the program has already."""
        words = self._segment.weights // 4
        if words and weights.load(words, 1).empty():
            _log.error("%s: the file of weights ends before those of %s", _TYPE, self.name)
            return _FAILED
        return 0

    def create_pipeline(self, _: Any) -> int:
        return 0

    def destroy_pipeline(self, _: Any) -> int:
        return 0

    def forward(self, bottom: Any, top: Any, opt: Any) -> int:
        """Compute `top`.  No exception may pass through ncnn, so errors are logged."""
        expected, made = self._segment.shapes
        x = np.asarray(bottom)
        if x.shape != expected:
            _log.error(
                "%s: blob %s: expected shape %s, found %s; give ts.ncnn.load this shape",
                self.name, self._segment.bottom, expected, x.shape,
            )  # fmt: skip
            return _FAILED
        top.create(made[::-1], elemsize=4, allocator=opt.blob_allocator)
        if top.empty():
            return _FAILED
        y = np.asarray(top)
        try:
            if y.flags.c_contiguous:
                self._run(x, out=y)
            else:
                y[...] = self._run(x)
        except TilesmithError as e:
            _log.error("%s: %s", self.name, e)
            return _FAILED
        return 0


@checked(UsageError)
def load(
    param: str | os.PathLike[str],
    bin: str | os.PathLike[str],
    *,
    net: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    types: Collection[str] | None = None,
    keep: Collection[str] = (),
    threads: int | None = None,
    options: Options | None = None,
) -> Any:
    """Load an ncnn model into an `ncnn.Net`, in which compiled code runs the layers that we have.

    Consecutive layers with one input and one output become one layer.  The files are not changed.

    net: a new `ncnn.Net` (default: one is made, with as many threads as the compiled layers).
    shapes: shapes of inputs whose sizes the file leaves open, as NumPy has them: channels first,
        without a batch.  Compiled layers accept only these shapes.
    types: types of the layers that are replaced, such as "Convolution" (default: all that can be).
    keep: names of blobs that are extracted beside the network's outputs.
    threads: threads of the compiled layers (default: as `compile`).

    Raises ModelError for damaged files, and the errors of `compile`.
    """
    files = Path(param), Path(bin)
    _check_text(files[0])
    replaced = segments(files, shapes or {}, types, keep)
    request = Request.of(None, options, threads=threads)
    parts: dict[str, tuple[Segment, Executable]] = {}
    for s in replaced:
        whole = Request.of(s.graph, request.options)
        parts[f"{_TYPE}_{s.top}"] = s, compiled(whole)
    if net is None:
        net = _NCNN.Net()
        net.opt.num_threads = thread_count(request.options.threads)
    net.register_custom_layer(_TYPE, _maker(parts), _ALIVE.discard)
    if net.load_param_mem(_text(files[0], replaced)) or net.load_model(str(files[1])):
        raise ModelError(f"{files[0]}: ncnn can't load the model; it says why on standard error")
    return net


def _maker(parts: Mapping[str, tuple[Segment, Executable]]) -> Callable[[], _Compiled]:
    def make() -> _Compiled:
        layer = _Compiled(parts)
        _ALIVE.add(layer)
        return layer

    return make


def _check_text(param: Path) -> None:
    """Raises ModelError for a network that is not text."""
    try:
        with param.open("rb") as f:
            head = f.read(len(_MAGIC))
    except OSError as e:
        raise ModelError(f"{param}: {e.strerror or e}") from e
    if head != _MAGIC:
        raise ModelError(
            f"{param}: expected a .param file in text, which begins with {_MAGIC.decode()}, found "
            f"{head!r}; a .param.bin file has no names by which layers could be replaced"
        )


def _text(param: Path, replaced: Sequence[Segment]) -> str:
    """The network's text with one layer for each segment."""
    magic, _, *lines = param.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line.split()]
    inputs = [row for row in rows if row[0] == "Input"]
    layers = [row for row in rows if row[0] != "Input"]
    for s in reversed(replaced):
        layers[s.first : s.last] = [[_TYPE, f"{_TYPE}_{s.top}", "1", "1", s.bottom, s.top]]
    rows = inputs + layers
    blobs = sum(int(row[3]) for row in rows)
    return "\n".join([magic, f"{len(rows)} {blobs}", *map(" ".join, rows), ""])
