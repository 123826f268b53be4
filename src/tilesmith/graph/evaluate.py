"""The meaning of a graph, in NumPy: the reference for compiled code.

Values are evaluated in order through each operator's `reference`.  A user's composite without
`reference` is evaluated by its expansion, a fused group by its body.  All arrays have logical axes.
A layout only describes how a constant is stored, so constants are unpacked first.  Symbols are
bound as they become known: first by the shapes of inputs, then by measures.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilesmith.graph.bind import Binding
from tilesmith.graph.builder import array_type, expansion
from tilesmith.graph.control import Host, If, Loop, conform, matched
from tilesmith.graph.measure import Measure, check_extents
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Value
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import value_of
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.support.arguments import shown
from tilesmith.support.errors import InternalError, ModelError, UsageError

Seen: TypeAlias = Callable[[Node, Sequence[np.ndarray], Sequence[np.ndarray]], None]
"""A function of a node, its operands and its results."""


def evaluate(
    graph: Graph,
    inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    seen: Seen | None = None,
) -> dict[str, np.ndarray]:
    """The outputs of a graph by name.  `inputs` are given by name or in the graph's order.

    seen: called after each node of the graph that has results, but not for nodes of bodies.

    Raises ModelError if an input is missing, unknown or of the wrong type, or if an extent measured
    by the graph is out of its range.
    """
    arrays = checked_inputs(graph, inputs)
    with np.errstate(all="ignore"):  # inf and nan are ordinary results here
        results = _run(graph, arrays, seen)
    return dict(zip(graph.output_names, results))


def checked_inputs(
    graph: Graph, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The inputs in the graph's order.  `inputs` has them by name or in this order.

    Raises ModelError if an input is missing, unknown or of the wrong type.
    """
    arrays = _by_position(graph, inputs)
    for value, array in zip(graph.inputs, arrays):
        _check_input(value, array)
    return arrays


def evaluate_op(op: Op, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """The outputs of one operator.  Raises ModelError if `inputs` do not fit the operator."""
    with np.errstate(all="ignore"):
        return _apply(op, [as_value(a) for a in inputs])


def as_value(given: Any) -> Any:
    """`given` as an array; a host value that is not a tensor stays unchanged."""
    return given if given is None or isinstance(given, (list, dict)) else np.asarray(given)


def logical_array(constant: Constant) -> np.ndarray:
    """The contents of a constant in logical axes."""
    layout = constant.value.layout
    if layout is None or layout.is_row_major:
        return constant.data.array
    return layout.unpack(constant.data.array, constant.value.type.static_shape)


def _run(
    graph: Graph, inputs: Sequence[np.ndarray], seen: Seen | None = None
) -> tuple[np.ndarray, ...]:
    env: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
    sizes = _sizes_of_inputs(graph, inputs)
    last = _last_uses(graph)
    for number, node in enumerate(graph.nodes):
        args = [_lookup(graph, env, v) for v in node.inputs]
        where = f"{node.op.name} node {node.loc!r}" if node.loc else f"{node.op.name} node"
        if isinstance(node.op, Measure):
            sizes |= _extents(node, args, sizes, where)
            continue
        results = _apply(Binding({**sizes}).op(node.op) if sizes else node.op, args)
        fault = UsageError if node.op.custom else InternalError
        if len(results) != len(node.outputs):
            raise fault(
                f"{where}: expected {len(node.outputs)} results, its reference gave {len(results)}"
            )
        for value, array in zip(node.outputs, results):
            if value.dtype.is_host:
                env[value] = array
                continue
            if array.dtype != value.dtype.numpy or not _fits(value.type, array.shape):
                raise fault(
                    f"{where}: expected a result of type {value.type}, its reference gave "
                    f"{_shown(array)}"
                )
            env[value] = array
        sizes |= _extents(node, results, sizes, where)
        if seen is not None:
            seen(node, args, results)
        del args, results
        for value in last.get(number, ()):
            env.pop(value, None)
    return tuple(_lookup(graph, env, v) for v in graph.outputs)


def _sizes_of_inputs(graph: Graph, inputs: Sequence[np.ndarray]) -> dict[Var, int]:
    """The values of the symbols that are extents of inputs."""
    dims = ((d, n) for v, a in zip(graph.inputs, inputs) for d, n in zip(v.shape, a.shape))
    return {d: n for d, n in dims if isinstance(d, Var)}


def _extents(
    node: Node, arrays: Sequence[np.ndarray], known: Mapping[Var, int], where: str
) -> dict[Var, int]:
    """The values of the symbols that a node defines."""
    try:
        return extents_behind(node.op, arrays, known)
    except ModelError as e:
        raise ModelError(f"{where}: {e}") from None


def extents_behind(
    op: Op, arrays: Sequence[np.ndarray], known: Mapping[Var, int]
) -> dict[Var, int]:
    """The values of the symbols that an operator defines.

    arrays: the operand of a `Measure`, or the results of another operator.
    known: the values of earlier symbols.

    Raises ModelError for an extent out of its range.
    """
    if isinstance(op, Measure):
        return op.measured(arrays[0], known)
    if not isinstance(op, (If, Loop)) or not op.symbols:
        return {}
    types = [
        t if t.dtype.is_host else TensorType(t.dtype, a.shape)
        for t, a in zip(op.results, arrays, strict=True)
    ]
    known_results = [Binding({**known}).type(t) for t in op.results]
    values = matched(op.symbols, known_results, types, "results")
    numbers = [value_of(values[s], {}) for s in op.symbols]
    return check_extents(op.symbols, op.bounds, numbers, known)


def _lookup(graph: Graph, env: dict[Value, np.ndarray], value: Value) -> np.ndarray:
    # `env` holds no constants, since their `Data` holds the arrays.
    return env[value] if value in env else logical_array(graph.constant[value])


def _apply(op: Op, inputs: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    if isinstance(op, Fused):
        return _run(op.body, inputs)
    if isinstance(op, If):
        return _run(op.then if inputs[0] else op.otherwise, inputs[1:])
    if isinstance(op, Loop):
        return _loop(op, inputs)
    if op.is_composite() and type(op).reference is Op.reference:
        return _run(expansion(op, tuple(map(array_type, inputs))), inputs)
    result = op.reference(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    if isinstance(op, Host):
        return tuple(conform(r, t) for r, t in zip(results, op.results, strict=True))
    return tuple(np.asarray(r) for r in results)


def _loop(op: Loop, inputs: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    carried, sliced, same = op.split(inputs)
    steps = int(inputs[0]) if op.steps is None else value_of(op.steps, {})
    going = bool(inputs[op.leading - 1]) if op.conditional else True
    types = _element_types(op)
    rows = 0 if op.ran is not None else steps
    stacked = [np.zeros((rows, *t.static_shape), t.dtype.numpy) for t in types]
    i = 0
    while i < steps and going:
        elements = [a[i if way > 0 else steps - 1 - i] for a, way in zip(sliced, op.sliced)]
        number = np.asarray(i, np.int64)
        results = _run(op.body, [number, *carried, *map(np.asarray, elements), *same])
        if op.conditional:
            going, results = bool(results[0]), results[1:]
        carried = results[: op.carried]
        elements = results[op.carried :]
        if op.ran is not None:
            stacked = [np.concatenate([w, e[None]]) for w, e in zip(stacked, elements, strict=True)]
        else:
            for whole, way, array in zip(stacked, op.collected, elements, strict=True):
                whole[i if way > 0 else steps - 1 - i] = array
        i += 1
    return (*carried, *stacked)


def first_iteration(op: Loop, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The body's inputs in the first iteration of a loop with at least one iteration."""
    carried, sliced, same = op.split(inputs)
    elements = (a[0 if way > 0 else -1] for a, way in zip(sliced, op.sliced))
    return [np.asarray(0, np.int64), *carried, *map(np.asarray, elements), *same]


def _element_types(op: Loop) -> list[TensorType]:
    """Types of one element of each collected result."""
    return [v.type for v in op.body.outputs[op.conditional + op.carried :]]


def _last_uses(graph: Graph) -> dict[int, list[Value]]:
    """Node number -> the values that no later node reads.  Outputs of the graph are left out."""
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
        return [as_value(a) for a in inputs]
    for name in inputs:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ModelError(f"no input is named {name!r}; inputs are {', '.join(names)}{hint}")
    missing = [n for n in names if n not in inputs]
    if missing:
        raise ModelError(f"expected inputs {', '.join(names)}; missing {', '.join(missing)}")
    return [as_value(inputs[n]) for n in names]


def _check_input(value: Value, array: np.ndarray) -> None:
    if value.dtype.is_host:
        return  # any object can be a value of a host type
    if not isinstance(array, np.ndarray):
        raise ModelError(f"input {value.name!r}: expected {value.type}, found {shown(array)}")
    if array.dtype != value.dtype.numpy or not _fits(value.type, array.shape):
        raise ModelError(f"input {value.name!r}: expected {value.type}, found {_shown(array)}")
