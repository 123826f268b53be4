"""Interface to TensorFlow Lite and LiteRT: compiled models as delegates of their interpreters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from tilesmith.engines.tflite.delegate import export_delegate

__all__ = ["export_delegate"]

__getattr__, __dir__ = exports(__name__, {"tilesmith.engines.tflite.delegate": "export_delegate"})
