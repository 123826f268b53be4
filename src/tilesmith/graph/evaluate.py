"""The meaning of a graph, in NumPy: what compiled code is tested against.

Values are evaluated in order through each operator's `reference`.  A user's composite without one
runs its expansion, a fused group its body.  Arrays have logical axes everywhere.  A layout only
says how a constant's contents are stored, so those are unpacked first.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import numpy as np

from tilesmith.graph.builder import array_type, expansion
from tilesmith.graph.nodes import Constant, Fused, Graph, Value
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.support.errors import InternalError, ModelError, UsageError


def evaluate(
    graph: Graph, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs by name, for `inputs` by name or in the graph's order.

    Raises ModelError if an input is missing, unknown, or of another type than the graph's.
    """
    arrays = _by_position(graph, inputs)
    for value, array in zip(graph.inputs, arrays):
        _check_input(value, array)
    with np.errstate(all="ignore"):  # inf and nan are answers here, not accidents
        results = _run(graph, arrays)
    return dict(zip(graph.output_names, results))


def evaluate_op(op: Op, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """The outputs of one operator on arrays.  Raises ModelError if they do not fit it."""
    with np.errstate(all="ignore"):
        return _apply(op, [np.asarray(a) for a in inputs])


def logical_array(constant: Constant) -> np.ndarray:
    """The contents of a constant in logical axes."""
    layout = constant.value.layout
    if layout is None or layout.is_row_major:
        return constant.data.array
    return layout.unpack(constant.data.array, constant.value.type.static_shape)


def _run(graph: Graph, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    env: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
    last = _last_uses(graph)
    for number, node in enumerate(graph.nodes):
        args = [_lookup(graph, env, v) for v in node.inputs]
        results = _apply(node.op, args)
        where = f"{node.op.name} node {node.loc!r}" if node.loc else f"{node.op.name} node"
        fault = UsageError if node.op.custom else InternalError
        if len(results) != len(node.outputs):
            raise fault(
                f"{where}: expected {len(node.outputs)} results, its reference gave {len(results)}"
            )
        for value, array in zip(node.outputs, results):
            if array.dtype != value.dtype.numpy or not _fits(value.type, array.shape):
                raise fault(
                    f"{where}: expected a result of type {value.type}, its reference gave "
                    f"{_shown(array)}"
                )
            env[value] = array
        del args, results
        for value in last.get(number, ()):
            env.pop(value, None)
    return tuple(_lookup(graph, env, v) for v in graph.outputs)


def _lookup(graph: Graph, env: dict[Value, np.ndarray], value: Value) -> np.ndarray:
    found = env.get(value)
    # Constants are not kept in `env`: what holds them already is their `Data`.
    return logical_array(graph.constant[value]) if found is None else found


def _apply(op: Op, inputs: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    if isinstance(op, Fused):
        return _run(op.body, inputs)
    if op.is_composite() and type(op).reference is Op.reference:
        return _run(expansion(op, tuple(map(array_type, inputs))), inputs)
    result = op.reference(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    return tuple(np.asarray(r) for r in results)


def _last_uses(graph: Graph) -> dict[int, list[Value]]:
    """For each node's number, the values that are not read after it (outputs live to the end)."""
    last: dict[Value, int] = {}
    for number, node in enumerate(graph.nodes):
        for v in (*node.inputs, *node.outputs):
            last[v] = number
    for v in graph.outputs:
        last.pop(v, None)
    dead: dict[int, list[Value]] = {}
    for v, number in last.items():
        dead.setdefault(number, []).append(v)
    return dead


def _fits(type: TensorType, shape: tuple[int, ...]) -> bool:
    """True if an array of `shape` fits `type`; a symbolic dimension fits any extent."""
    return len(shape) == type.rank and all(
        d == n for d, n in zip(type.shape, shape) if isinstance(d, int)
    )


def _shown(array: np.ndarray) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _by_position(
    graph: Graph, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]
) -> list[np.ndarray]:
    names = [v.name for v in graph.inputs]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise ModelError(
                f"expected {len(names)} inputs ({', '.join(names)}), found {len(inputs)}"
            )
        return [np.asarray(a) for a in inputs]
    for name in inputs:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ModelError(f"no input is named {name!r}; inputs are {', '.join(names)}{hint}")
    missing = [n for n in names if n not in inputs]
    if missing:
        raise ModelError(f"expected inputs {', '.join(names)}; missing {', '.join(missing)}")
    return [np.asarray(inputs[n]) for n in names]


def _check_input(value: Value, array: np.ndarray) -> None:
    if array.dtype != value.dtype.numpy or not _fits(value.type, array.shape):
        raise ModelError(f"input {value.name!r}: expected {value.type}, found {_shown(array)}")
