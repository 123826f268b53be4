"""The rewriting rules of the simplifier, one table per kind of node.

`ir.context` defines what a rule takes and returns.
"""

from __future__ import annotations

from .table import RULES

__all__ = ["RULES"]
