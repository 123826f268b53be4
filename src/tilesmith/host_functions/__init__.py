"""Functions that Python runs in place of compiled nodes.  Values are NumPy arrays, strings, lists,
dicts and None.

A function maps the node's inputs to its result, or to a tuple of results.  It may keep its inputs,
but not change them.  `prepare` finds a function by its name and its settings, which are JSON
values.
"""

from .table import prepare

__all__ = ["prepare"]
