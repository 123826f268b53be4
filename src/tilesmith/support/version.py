"""The version of the installed package."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """`0.1.0`; "unknown" when run from a source tree that was never installed."""
    try:
        return importlib.metadata.version("tilesmith")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
