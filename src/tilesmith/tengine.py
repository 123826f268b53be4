"""Interface to Tengine: layers of its models as plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from tilesmith.engines.tengine.plugin import export_plugin

__all__ = ["export_plugin"]

__getattr__, __dir__ = exports(__name__, {"tilesmith.engines.tengine.plugin": "export_plugin"})
