"""Parts of TVM's `contrib`."""

from . import graph_executor, utils

__all__ = ["graph_executor", "utils"]
