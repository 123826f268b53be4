"""The rewriting rules of the simplifier, one table per kind of node.

See `ir.context` for what a rule takes and gives.
"""

from __future__ import annotations

from .table import RULES

__all__ = ["RULES"]
