"""The rewriting rules of the simplifier, one table per kind of node.

A rule takes a node and the context (`ir.simplify.Context`), simplifies the children, and returns
the simplest form that it knows: the node itself when there is nothing to do.
"""

from __future__ import annotations

from .table import RULES

__all__ = ["RULES"]
