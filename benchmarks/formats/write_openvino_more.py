#!/usr/bin/env python3
"""Write OpenVINO models of recurrent layers, detection, transforms and control flow, and what
OpenVINO computes with them: `python benchmarks/formats/write_openvino_more.py FOLDER [PART]`, where
OpenVINO is.  PART is a part of the cases' names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import write_openvino as base
from openvino import opset15 as ops
from write_openvino import normal

PART = ""
RANDOM = np.random.default_rng(1)


def single(folder: Path, name: str, make: Callable[..., Any], *arrays: np.ndarray) -> None:
    """A model of one operator on these inputs, if its name has the wanted part."""
    if PART in name:
        base.single(folder, name, make, *arrays)


def recurrent(folder: Path) -> None:
    batch, steps, width, hidden = 3, 5, 4, 6
    gates = {"lstm": 4, "gru": 3, "rnn": 1}
    for kind, count in gates.items():
        for linear in (False, True) if kind == "gru" else (False,):
            mark = "_linear" if linear else ""
            more = {"linear_before_reset": True} if linear else {}
            wide = (count + linear) * hidden
            w, r, b = normal(count * hidden, width), normal(count * hidden, hidden), normal(wide)
            states = 2 if kind == "lstm" else 1
            cell, layer = getattr(ops, f"{kind}_cell"), getattr(ops, f"{kind}_sequence")
            first = [normal(batch, hidden) for _ in range(states)]
            functions = {"rnn": ["tanh"], "gru": ["sigmoid", "tanh"]}.get(kind, [])
            functions = functions or ["sigmoid", "tanh", "tanh"]

            def one(x, *s, cell=cell, w=w, r=r, b=b, functions=functions, more=more):
                return cell(x, *s, w, r, b, hidden, functions, [], [], 0.0, **more)

            single(folder, f"{kind}_cell{mark}", one, normal(batch, width), *first)
            if kind != "lstm":

                def clipped(x, *s, cell=cell, w=w, r=r, b=b, functions=functions, more=more):
                    names = ["relu", *functions[1:]]
                    return cell(x, *s, w, r, b, hidden, names, [], [], 0.5, **more)

                single(folder, f"{kind}_cell{mark}_clip", clipped, normal(batch, width), *first)
            for direction in ("forward", "reverse", "bidirectional"):
                ways = 2 if direction == "bidirectional" else 1
                ws, rs = normal(ways, *w.shape, scale=0.5), normal(ways, *r.shape, scale=0.5)
                bs = normal(ways, wide)
                for lengths in ([steps] * batch, [5, 2, 4]):

                    def run(x, *s, layer=layer, ws=ws, rs=rs, bs=bs, lengths=lengths,
                            direction=direction, functions=functions, more=more):  # fmt: skip
                        return layer(
                            x, *s, np.array(lengths, np.int32), ws, rs, bs, hidden, direction,
                            functions, [], [], 0.0, **more,
                        )  # fmt: skip

                    uneven = "" if lengths[1] == steps else "_lengths"
                    before = [normal(batch, ways, hidden) for _ in range(states)]
                    name = f"{kind}_{direction}{mark}{uneven}"
                    single(folder, name, run, normal(batch, steps, width), *before)


def main() -> None:
    global PART
    folder, PART = Path(sys.argv[1]), (sys.argv[2] if len(sys.argv) > 2 else "")
    for family in (recurrent,):
        family(folder)


if __name__ == "__main__":
    main()
