"""Decoding of a model's bytes to a protobuf message, and of text in it.  Neither is trusted.

Only the pure message classes of the `onnx` package are used.  Its checker, shape inference and
version converter are never called here: they are native code, and a small hostile file can make
them abort the process.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from typing import Any

import numpy as np

from tilesmith.frontend.common.source import Source
from tilesmith.frontend.onnx.wire import split
from tilesmith.support.errors import ModelError

_LARGEST_MESSAGE = (1 << 31) - 1
"""Upper bound on a protobuf message in bytes; larger models keep weights in external data."""


def recognises(source: Source) -> bool:
    """True for an `onnx.ModelProto` and for any file, since ONNX files have no signature."""
    if source.content is not None:
        return True
    descriptor = getattr(type(source.model), "DESCRIPTOR", None)
    return getattr(descriptor, "full_name", None) == "onnx.ModelProto"


def read_model(source: Source) -> tuple[Any, dict[int, np.ndarray]]:
    """The decoded model without its large weights, and the bytes of the large weights by number
    of the initializer.

    Raises ModelError for bytes that are not an ONNX model.
    """
    content, name = source.content, source.name
    if content is None:
        return source.model, {}
    from google.protobuf.message import DecodeError  # imported here: others don't need protobuf

    if not content:
        raise ModelError(f"expected an ONNX model in {name}, found nothing (0 bytes)")
    if len(content) > _LARGEST_MESSAGE:
        raise ModelError(
            f"{name!r} has {len(content)} bytes; an ONNX file holds at most {_LARGEST_MESSAGE}: "
            "save the model with its weights as external data"
        )
    parts = split(content)
    try:
        model = messages().ModelProto.FromString(bytes(parts.message))
    except (DecodeError, ValueError, RecursionError) as e:
        reason = " ".join(str(e).split())
        if isinstance(e, RecursionError) or "MaxDepth" in reason:
            raise ModelError(
                f"{name}: expected messages at most 100 deep, as Protocol Buffers reads them, "
                "found deeper ones; a branch or body in another one takes three levels, so that "
                "about 32 may nest: move inner ones into functions of the model, or join conditions"
            ) from None
        raise ModelError(
            f"expected an ONNX model in {name}, found {len(content)} bytes that do not decode "
            "as one "
            f"(truncated, or another kind of file): {reason}"
        ) from None

    whole = np.frombuffer(content, np.uint8)
    weights = {i: whole[start : start + size] for i, (start, size) in parts.weights.items()}
    return model, weights


def messages() -> Any:
    """The module of message classes of the `onnx` package.

    The package itself is not imported, because that takes a tenth of a second, mostly for native
    code that is never called here.  A later import of the package uses the same classes.
    """
    name = "onnx.onnx_ml_pb2"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec("onnx")
    locations = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec(name, locations)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)  # the import's error names the missing package
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return sys.modules.setdefault(name, module)


def text(value: str | bytes, what: str) -> str:
    """A string of the model.

    Raises ModelError for a string that is not UTF-8, which protobuf returns as `bytes`.
    """
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ModelError(f"expected UTF-8 text as {what}, found bytes {value[:16]!r}") from None


def newest_opset() -> int:
    """The newest opset of the default domain that the installed onnx package knows."""
    import onnx

    return int(onnx.defs.onnx_opset_version())
