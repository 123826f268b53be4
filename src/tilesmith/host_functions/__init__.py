"""Functions that Python runs instead of compiled nodes, on arrays of NumPy, strings, lists, dicts
and None.

A function maps the node's inputs to its result, or to a tuple of results.  It may keep its inputs,
but not change them.  `prepare` finds a function by its name and its settings, which are JSON
values.
"""

from .table import prepare

__all__ = ["prepare"]
