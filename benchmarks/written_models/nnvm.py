"""Writes a small graph of NNVM for tests."""

from __future__ import annotations

import json


def node(op, name, *inputs, **attributes):
    return {"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs], "attrs": attributes}


def network():
    nodes = [node("null", n) for n in ("data", "w", "b", "gamma", "beta", "mean", "var")]
    nodes += [
        node("conv2d", "conv", 0, 1, 2, channels="4", padding="(1, 1)", use_bias="True"),
        node("batch_norm", "bn", 7, 3, 4, 5, 6, epsilon="0.001"),
        node("relu", "relu", 8),
        node("max_pool2d", "pool", 9, pool_size="(2, 2)", strides="(2, 2)"),
        node("__add_scalar__", "plus", 10, scalar="0.5"),
        node("flatten", "flat", 11),
        node("null", "dw"),
        node("dense", "fc", 12, 13, units="3", use_bias="False"),
        node("softmax", "prob", 14),
    ]  # fmt: skip
    graph = {"nodes": nodes, "arg_nodes": [0], "heads": [[15, 0, 0]], "node_row_ptr": [0]}
    return json.dumps(graph).encode()
