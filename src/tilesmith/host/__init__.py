"""Functions that run on the host in the place of a node: on NumPy arrays, strings, lists, dicts and
None.

A function gets the node's inputs and gives its result, or a tuple of results.  What it gets it does
not change, and may keep.  `prepare` finds a function by its name and its settings, which are JSON
values.
"""

from .functions import prepare

__all__ = ["prepare"]
