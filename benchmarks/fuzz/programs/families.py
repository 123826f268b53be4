"""The modules that register recipes, imported."""

from . import indexing, movement, neural, pointwise, reductions, writes

LOADED = (indexing, movement, neural, pointwise, reductions, writes)
