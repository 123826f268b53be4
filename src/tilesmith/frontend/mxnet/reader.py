"""Import of a Gluon or MXNet model, which is a symbol and its parameters, as a Graph."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, Network
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.mxnet.arrays import dtype_numbered, read_arrays
from tilesmith.frontend.mxnet.symbols import Symbol, SymbolNode, read_symbol
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.dtypes import f32


def read(source: Source) -> Network:
    """A model's files as a network.  Raises ModelError for damaged files."""
    assert source.content is not None  # `recognises` demands contents
    return network_of(read_symbol(source.content), _parameters(source))


def network_of(symbol: Symbol, stored: Mapping[str, np.ndarray]) -> Network:
    """A symbol and its parameters as a network.

    stored: the parameters by name; a prefix `arg:` or `aux:` is ignored.
    """
    weights = {re.sub("^(arg|aux):", "", name): array for name, array in stored.items()}
    counts: dict[int, int] = {}
    used = (*symbol.heads, *(e for n in symbol.nodes for e in n.inputs))
    for node, output in used:
        counts[node] = max(counts.get(node, 1), output + 1)
    inputs, layers = [], []
    for i, node in enumerate(symbol.nodes):
        if node.kind != "null":
            names = tuple(_value(symbol, i, o) for o in range(counts.get(i, 1)))
            of = tuple(_value(symbol, *e) for e in node.inputs)
            layers.append(Layer(node.kind, node.name, of, names, node.attributes))
        elif node.name not in weights and i in counts:
            inputs.append(_declared(symbol, i, node, weights))
    return Network(
        f"MXNet symbol, version {symbol.version}" if symbol.version else "MXNet symbol",
        tuple(inputs),
        {_output(symbol, e, counts): _value(symbol, *e) for e in symbol.heads},
        tuple(layers),
        weights,
    )


def _value(symbol: Symbol, node: int, output: int) -> str:
    name = symbol.nodes[node].name
    return f"{name}:{output}" if output else name


def _output(symbol: Symbol, entry: tuple[int, int], counts: Mapping[int, int]) -> str:
    """MXNet's name for the result `entry` of a symbol."""
    node = symbol.nodes[entry[0]]
    if node.kind == "null":
        return node.name
    return f"{node.name}_output{entry[1] if counts[entry[0]] > 1 else ''}"


_KEEPING = ("Activation", "BatchNorm", "BlockGrad", "Dropout", "LeakyReLU", "_copy", "identity")
"""Operators whose result has the shape and type of their first input."""


def _declared(
    symbol: Symbol, number: int, node: SymbolNode, weights: Mapping[str, np.ndarray]
) -> Declared:
    """An input.  If a convolution reads it, its element type is that of the weights, and its rank
    and channels follow from them if the file states no shape.
    """
    dims: tuple[Any, ...] | None = None
    code = node.attributes.get("__dtype__", 0)
    dtype = dtype_numbered(code) if isinstance(code, int) else f32
    shape = node.attributes.get("__shape__")
    if isinstance(shape, tuple) and shape:
        dims = tuple("" if d in (0, -1) else d for d in shape)
    of = {number}
    for i, user in enumerate(symbol.nodes):
        if not user.inputs or user.inputs[0][0] not in of:
            continue
        if user.kind in _KEEPING:
            of.add(i)
        elif user.kind in ("Convolution", "_npx_convolution") and len(user.inputs) > 1:
            weight = weights.get(symbol.nodes[user.inputs[1][0]].name)
            if weight is not None and weight.ndim > 2:
                groups = user.attributes.get("num_group", 1)
                dims = dims or ("", weight.shape[1] * groups, *[""] * (weight.ndim - 2))
                dtype = to_dtype(weight.dtype)
                break
    return Declared(node.name, dtype, dims)


def _parameters(source: Source) -> dict[str, np.ndarray]:
    """A symbol's parameters by name, from the file that the caller gave.

    Without such a file they come from the last epoch's file beside the symbol; empty if there is
    none.
    """
    if source.second is None and source.folder is not None:
        stem = Path(source.name).stem.removesuffix("-symbol")
        names = f"{glob.escape(stem)}-[0-9][0-9][0-9][0-9].params"
        files = sorted(source.folder.glob(names)) or [source.folder / f"{stem}.params"]
        source = replace(source, second=files[-1] if os.path.isfile(files[-1]) else None)
    content = source.companion()
    return {} if content is None else read_arrays(content)
