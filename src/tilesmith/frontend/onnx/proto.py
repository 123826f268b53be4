"""Reading a model's bytes into a protobuf, and text out of it, without trusting either.

Only the pure message classes of the `onnx` package are used. Its checker, shape inference and
version converter are native code that a small hostile file can make abort the process, so they are
never called here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilesmith.frontend.onnx.wire import Buffer, split
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.mapped import map_model

if TYPE_CHECKING:
    import onnx

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"


@dataclass(frozen=True, slots=True)
class Source:
    """A decoded model, a name for messages, and the folder that external data may be in (None:

    nowhere).  `weights`: the bytes of large initializers by position, which `model` is without.
    """

    model: Any
    name: str
    folder: Path | None
    weights: dict[int, np.ndarray] = field(default_factory=dict)


def read_model(source: ModelSource) -> Source:
    """The model in a file, in bytes or already decoded.

    Raises ModelError for whatever is not an ONNX model.
    """
    import onnx  # delayed: a tenth of a second that only those who read ONNX pay

    if isinstance(source, onnx.ModelProto):
        found = Source(
            source, source.graph.name if isinstance(source.graph.name, str) else "", None
        )
    elif isinstance(source, (bytes, bytearray, memoryview)):
        found = _decode(bytes(source), "the given bytes", None)
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        found = _decode(map_model(path), str(path), path.parent)
    else:
        raise UsageError(
            "expected a path, bytes or an onnx.ModelProto as the model, found "
            f"{type(source).__name__}"
        )
    model = found.model
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(
            f"{found.name or 'the model'}: expected an ONNX model, found one without a graph"
        )
    if model.ir_version < 1:
        raise ModelError(
            f"{found.name or 'the model'}: expected ir_version >= 1, found {model.ir_version}"
        )
    return found


def _decode(content: Buffer, name: str, folder: Path | None) -> Source:
    import onnx
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
    return Source(model, name, folder, weights)


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
