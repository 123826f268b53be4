"""Interfaces to PyTorch: the backend of `torch.compile(model, backend="tilesmith")`, and operators
of users (`register`), and packages that PyTorch loads (`export_aot`).

Importing this package does not import `torch`; using one of its names does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from tilesmith.engines.torch.compiling import backend
    from tilesmith.engines.torch.operators import register
    from tilesmith.engines.torch.packages import export_aot
    from tilesmith.engines.torch.pieces import FallbackWarning

__all__ = ["FallbackWarning", "backend", "export_aot", "register"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.engines.torch.compiling": "backend",
        "tilesmith.engines.torch.pieces": "FallbackWarning",
        "tilesmith.engines.torch.operators": "register",
        "tilesmith.engines.torch.packages": "export_aot",
    },
)
