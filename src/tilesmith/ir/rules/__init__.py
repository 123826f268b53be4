"""The rewriting rules of the simplifier, one table per kind of node.

`ir.context` defines the arguments and the result of a rule.
"""

from __future__ import annotations

from .table import RULES

__all__ = ["RULES"]
