"""Interface to ncnn: its networks with layers of compiled code.

Importing this module does not import `ncnn`; its functions need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from tilesmith.engines.ncnn.layers import load

__all__ = ["load"]

__getattr__, __dir__ = exports(__name__, {"tilesmith.engines.ncnn.layers": "load"})
