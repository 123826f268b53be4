"""A template: a schedule of one's own for kernels of models, searched together with ours.

    tilesmith tune model.onnx --seconds 30 --templates examples/row_blocks.py
    tilesmith tune model.onnx --templates examples/row_blocks.py --pin schedule=user:row_blocks
    tilesmith run model.onnx --templates examples/row_blocks.py

Records keep its name and its decisions, not its code: whoever is to use them loads it as well.
"""

from __future__ import annotations

import tilesmith as ts
from tilesmith import te
from tilesmith.strategy.group import Group
from tilesmith.te.knobs import Config


@ts.register_template("matmul")
def row_blocks(cfg: Config, s: te.Schedule, group: Group) -> None:
    """A matrix product with what follows it, in blocks of rows and columns."""
    last = s[group.stages[-1]]
    *_, row, column = last.axis
    outer, inner = cfg.split("rows", last, row, default=(4,))
    across, lanes = cfg.split("columns", last, column, default=(16,))
    last.reorder(outer, across, inner, lanes)
    for stage in (s[op] for op in reversed(group.stages[:-1])):  # readers first
        if not stage.reduce_axis:
            stage.compute_inline()
            continue
        stage.compute_at(last, across)
        stage.reorder(*stage.reduce_axis, *stage.axis)
        stage.vectorize(stage.axis[-1])
    last.vectorize(lanes)
    cfg.annotate("outer", last, outer, ("none", "parallel"))
