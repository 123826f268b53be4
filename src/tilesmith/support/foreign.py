"""Recognition of PyTorch's models without an import of PyTorch: by names of classes, and by the
first bytes of files.
"""

from __future__ import annotations

import os
from typing import Any

from .folders import open_regular

_ZIP = b"PK\x03\x04"


def is_module(model: Any) -> bool:
    """Whether a model is a `torch.nn.Module`."""
    return _is_a(model, "torch.nn.modules.module", "Module")


def is_script(model: Any) -> bool:
    """Whether a model is a module or a function of TorchScript."""
    return _is_a(model, "torch.jit._script", "ScriptModule") or _is_a(
        model, "torch.jit", "ScriptFunction"
    )


def is_exported_program(model: Any) -> bool:
    """Whether a model is a `torch.export.ExportedProgram`."""
    return _is_a(model, "torch.export.exported_program", "ExportedProgram")


def is_zip(content: bytes | memoryview) -> bool:
    """Whether these are the bytes of a ZIP file, the format of PyTorch's archives."""
    return bytes(content[: len(_ZIP)]) == _ZIP


def is_archive(model: Any) -> bool:
    """Whether a model is the path of a ZIP file, or its bytes."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return is_zip(memoryview(model))
    if not isinstance(model, (str, os.PathLike)):
        return False
    try:
        with open_regular(model) as f:
            return is_zip(f.read(len(_ZIP)) or b"")
    except (OSError, ValueError, TypeError):
        return False  # the next reader reports the error


def _is_a(model: Any, module: str, name: str) -> bool:
    return any(c.__module__ == module and c.__name__ == name for c in type(model).__mro__)
