"""Objects of PyTorch, recognised by the names of their classes; nothing is imported for it."""

from __future__ import annotations

from typing import Any


def is_module(model: Any) -> bool:
    """Whether a model is a `torch.nn.Module`."""
    return _is_a(model, "torch.nn.modules.module", "Module")


def is_exported_program(model: Any) -> bool:
    """Whether a model is a `torch.export.ExportedProgram`."""
    return _is_a(model, "torch.export.exported_program", "ExportedProgram")


def _is_a(model: Any, module: str, name: str) -> bool:
    return any(c.__module__ == module and c.__name__ == name for c in type(model).__mro__)
