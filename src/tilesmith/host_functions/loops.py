"""ONNX's Loop over objects of the host, by the reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.ops.op_loop import Loop as ReferenceLoop


class Loop(ReferenceLoop):
    """The reference evaluator's Loop, with collected results stacked along a new axis, even if
    there are none.

    The evaluator itself joins results along their first axis, raises an error if there are none,
    and takes an omitted condition for false.
    """

    op_domain = ""

    def _run(
        self,
        M: Any,
        cond: Any,
        *state: Any,
        context: Mapping[str, Any] | None = None,
        body: Any = None,
        **settings: Any,
    ) -> tuple[Any, ...]:
        graph: Any = self.body  # type: ignore[attr-defined]  (the base class sets it)
        run: Any = self._run_body  # type: ignore[attr-defined]
        going, step, carried = cond is None or bool(cond), 0, state
        rows: list[list[np.ndarray]] = [[] for _ in range(self.K)]
        while going and (M is None or step < M):
            arguments = (np.array(step, np.int64), np.array(going), *carried)
            inputs = {**(context or {}), **dict(zip(graph.input_names, arguments, strict=True))}
            again, *results = run(inputs, **settings)
            going, step, carried = bool(again), step + 1, tuple(results[: self.N])
            for own, row in zip(rows, results[self.N :], strict=True):
                own.append(row)
        types = graph.output_types[1 + self.N :]
        collected = (np.stack(own) if own else _none(t) for own, t in zip(rows, types, strict=True))
        return (*carried, *collected)


def _none(type: Any) -> np.ndarray:
    """An empty stack of results.  Undeclared extents are 0; the default element type is string."""
    row = type.tensor_type
    shape = [d.dim_value for d in row.shape.dim]
    dtype = tensor_dtype_to_np_dtype(row.elem_type) if row.elem_type else object
    return np.empty((0, *shape), dtype)
