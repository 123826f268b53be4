"""Nodes that run on the host, for operators without native code, such as on strings.

The main function calls them in their place (`program.nodes.HostCall`).  Values of host types
(`ir.dtypes`) live on the host; compiled code moves the numbers of objects.

    %words: string[4] = host(%text) {function="string_normalizer", settings="{...}",
      results=(string[4],), operator="StringNormalizer"}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.graph.control import Control
from tilesmith.host_functions import prepare
from tilesmith.ir.grammar import Label
from tilesmith.ir.types import TensorType


@dataclass(frozen=True)
class Host(Control):
    """A function of the host, which has no state.

    function: its name in the table of `tilesmith.host_functions`.
    settings: the constant arguments of the function: an object in JSON, or "" for nothing.
    results: types of the results.  Symbols in them are known before the node runs.
    operator: its name in the source model.
    is_fallback: whether it runs here for want of native code.
    """

    function: Label[str]
    settings: Label[str]
    results: Label[tuple[TensorType, ...]]
    operator: Label[str] = ""
    is_fallback: Label[bool] = False

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return self.results

    def reference(self, *inputs: Any) -> Any:
        return prepare(self.function, self.settings)(*inputs)


def conform(value: Any, type: TensorType) -> Any:
    """A result of a host function, converted to its type: an array, unless it is no tensor."""
    if type.dtype.is_host and type.dtype.name != "string":
        return value
    if type.dtype.is_host:
        return np.asarray(value, object)
    return np.asarray(value, type.dtype.numpy)
