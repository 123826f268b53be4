"""Facts about a source model's file, read without importing its operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesmith.support.described import Described

Function: TypeAlias = dict[str, dict[str, str]]
"""A function of a model: its "inputs" and its "outputs", by name with their declared types."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Facts about a model's file.

    format: the format with its version, such as "ONNX, opset 17".
    producer: the program that wrote the file; empty if the file does not say.
    inputs: name -> type, as the file declares it.
    outputs: name -> type.
    operators: how often each operator occurs, in sub-graphs too.
    unsupported: the operators that can't be imported at all.
    weight_bytes: size of the stored tensors.
    metadata: further entries of the file, by name.
    described: what the file says about inputs and outputs, by name.
    """

    format: str
    producer: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    operators: Counter[str]
    unsupported: frozenset[str] = frozenset()
    weight_bytes: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, Described] = field(default_factory=dict)
