"""MXNet's symbols: the json of a network's nodes, in the form of each version from 0.8 on.

A node without an operator is an input or a weight.  Attributes are Python literals as texts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilesmith.support.errors import DAMAGED, ModelError

_NUMBER = re.compile(r"[-+]?\d+L?$")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?f?$|[-+]?(inf|nan)$", re.IGNORECASE)
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False}

_LABELLED = (
    *("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"),
    *("SVMOutput", "Softmax", "SoftmaxOutput"),
)
"""Operators whose second input, the labels, is used in training only."""

_STATISTICS = ("moving_mean", "moving_var")
"""Inputs of BatchNorm that files before 0.9 leave out."""


@dataclass(frozen=True, slots=True)
class SymbolNode:
    """A node.

    kind: its operator; "null" for an input or weight.
    name: its name, made unique.
    inputs: for each input the number of a node, and the number of that node's output.
    attributes: attributes by name, as numbers, bools, texts and tuples of these.
    """

    kind: str
    name: str
    inputs: tuple[tuple[int, int], ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A network.

    nodes: its nodes; a node's inputs come before it.
    heads: for each result the number of a node, and the number of that node's output.
    version: MXNet's version; empty if the file does not state it.
    """

    nodes: tuple[SymbolNode, ...]
    heads: tuple[tuple[int, int], ...]
    version: str


def read_symbol(content: bytes | memoryview) -> Symbol:
    """The nodes of a symbol.  Raises ModelError for a damaged file."""
    try:
        root = json.loads(bytes(content))
        stored = root["nodes"]
        names = Counter(str(n["name"]) for n in stored)
        nodes = [_node(i, n, names) for i, n in enumerate(stored)]
        heads = tuple(_entry(e, len(nodes)) for e in root["heads"])
        version = root.get("attrs", {}).get("mxnet_version", ["int", 0])[1]
        number = int(version)
    except DAMAGED as e:
        reason = " ".join(f"{type(e).__name__}: {e}".split())
        raise ModelError(f"not a sound MXNet symbol: {reason}") from None
    shown = f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else ""
    return Symbol(tuple(_completed(nodes)), heads, shown)


def _node(number: int, stored: Any, names: Counter[str]) -> SymbolNode:
    name = str(stored["name"])
    texts: dict[str, Any] = {}
    for key in ("attr", "param", "attrs"):  # the entry's names in different versions
        texts |= stored.get(key) or {}
    attributes = {k: literal(str(t)) for k, t in texts.items()}
    return SymbolNode(
        str(stored["op"]),
        name if names[name] == 1 and name else f"{name}_{number}",
        tuple(_entry(e, number) for e in stored["inputs"]),
        {k: v for k, v in attributes.items() if v is not None},
    )


def _entry(entry: Any, nodes: int) -> tuple[int, int]:
    node, output = int(entry[0]), int(entry[1])
    if not 0 <= node < nodes or not 0 <= output < 1 << 16:
        raise ValueError(f"expected an output of one of {nodes} nodes before, found {entry}")
    return node, output


def _completed(nodes: list[SymbolNode]) -> list[SymbolNode]:
    """The nodes without inputs for labels.  Inputs that old files leave out are added."""
    completed = list(nodes)
    for i, n in enumerate(nodes):
        inputs = n.inputs[:1] if n.kind in _LABELLED else n.inputs
        if n.kind == "BatchNorm" and len(inputs) == 3:
            for name in _STATISTICS:
                inputs = (*inputs, (len(completed), 0))
                completed.append(SymbolNode("null", f"{n.name}_{name}", (), {}))
        if inputs != n.inputs:
            completed[i] = SymbolNode(n.kind, n.name, inputs, n.attributes)
    return completed


def literal(text: str) -> Any:
    """An attribute's text as a number, bool, None or tuple of these; any other text stays."""
    text = text.strip()
    if text[:1] in ("(", "[") and text[-1:] in (")", "]"):
        items = [t for t in text[1:-1].split(",") if t.strip()]
        return text if "(" in text[1:] or "[" in text[1:] else tuple(map(literal, items))
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.match(text):
        return int(text.rstrip("L"))
    return float(text.rstrip("f")) if _FLOAT.match(text) else text
