"""Reading a model's bytes into a protobuf, and text out of it, without trusting either.

Only the pure message classes of the `onnx` package are used. Its checker, shape inference and
version converter are native code that a small hostile file can make abort the process, so they are
never called here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.frontend.common.source import Source
from tilesmith.frontend.onnx.wire import split
from tilesmith.support.errors import ModelError


def recognises(source: Source) -> bool:
    """True for an `onnx.ModelProto`, and for every file: those of ONNX have no signature."""
    if source.content is not None:
        return True
    descriptor = getattr(type(source.model), "DESCRIPTOR", None)
    return getattr(descriptor, "full_name", None) == "onnx.ModelProto"


def read_model(source: Source) -> tuple[Any, dict[int, np.ndarray]]:
    """The decoded model, and the bytes of large initializers by position, which it is without.

    Raises ModelError for bytes that are not an ONNX model.
    """
    content, name = source.content, source.name
    if content is None:
        return source.model, {}
    import onnx  # delayed: a tenth of a second that only those who read ONNX pay
    from google.protobuf.message import DecodeError

    if not content:
        raise ModelError(f"expected an ONNX model in {name}, found nothing (0 bytes)")
    found = split(content)
    try:
        model = onnx.ModelProto.FromString(bytes(found.message))
    except (DecodeError, ValueError, RecursionError) as e:
        reason = " ".join(str(e).split())
        raise ModelError(
            f"expected an ONNX model in {name}, found {len(content)} bytes that do not decode "
            "as one "
            f"(truncated, or another kind of file): {reason}"
        ) from None

    whole = np.frombuffer(content, np.uint8)
    weights = {i: whole[at : at + size] for i, (at, size) in found.weights.items()}
    return model, weights


def text(value: str | bytes, what: str) -> str:
    """A string of the model.

    Protobuf hands out `bytes` for strings that are not UTF-8: those are refused.
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
