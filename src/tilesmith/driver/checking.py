"""Comparison of every kernel of a model with the graph evaluator, and of every composite operator's
expansion with its own reference.

Kernels are made from expansions, so their reference can't tell whether the expansions are right.

An operator that rounds can turn a small difference into a large one: an element almost halfway
between two integers may round to either of them.  So a kernel with such an operator (a rounding
step) has a range as its reference.  The step is also evaluated with its operand lowered and raised
by the error that the accuracy policy allows, and any result in between is right.  Thus a quantised
value may be one quantum off, but only if its unrounded value is that near to a boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import KernelCode
from tilesmith.graph.bind import bind, expected_graph
from tilesmith.graph.control import Host, If, Loop, kernels_in
from tilesmith.graph.evaluate import (
    as_value,
    checked_inputs,
    evaluate,
    evaluate_op,
    extents_behind,
    first_iteration,
    logical_array,
)
from tilesmith.graph.indices import index_limits
from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Fused, Graph, Node, Value
from tilesmith.graph.parts import Part
from tilesmith.graph.passes.localise import localise
from tilesmith.host_functions.values import sample
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.symbols import bound
from tilesmith.ir.types import Dim, same_dim
from tilesmith.ops import eager
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Cast
from tilesmith.support.arguments import checked
from tilesmith.support.arrays import difference, least_difference, nearest
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

from .assembly.program import assemble
from .compiler import load_graph
from .kernels import compile_kernels
from .partitioned import on_cpu, parts_of
from .passes import optimise
from .places import placed
from .request import Request
from .session import Session


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Comparison of one output of a kernel with the graph evaluator.

    dtype: its element type.
    error: largest difference from the reference's range, relative to the reference's largest
        magnitude.
    bound: the error that the accuracy policy allows for the element type; 0 if it is exact.
    stepped: number of elements that differ from the reference by more than `bound`, but not from
        the reference's range, because of a rounding step.
    """

    dtype: str
    error: float
    bound: float
    stepped: int = 0

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """Comparison of one kernel, or of a composite operator's expansion, with its reference on the
    same inputs.

    index: number of the kernel in the program; None for an operator.
    loc: the source model's node.
    operators: operators of the fused group, or the composite operator.
    outputs: comparisons in the kernel's order.
    """

    index: int | None
    loc: str
    operators: tuple[str, ...]
    outputs: tuple[OutputCheck, ...]

    @property
    def passed(self) -> bool:
        return all(o.passed for o in self.outputs)

    @property
    def worst(self) -> OutputCheck:
        """The output with the largest error relative to its bound."""
        return max(self.outputs, key=lambda o: (not o.passed, o.error / (o.bound or 1.0)))


@checked(UsageError)
def check(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    target: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> list[KernelCheck]:
    """Compare the expansion of every composite operator of a model with its reference.  Then
    compare every kernel, run by itself on inputs that the reference computes.

    inputs: arrays by name; default: random arrays of the right types and expected sizes.

    The reference is `graph.evaluate`.

    Raises ModelError if an input is missing, unknown, or of another type than the model's.
    """
    request = Request.of(model, options, target=target, shapes=shapes)
    session = Session.of_request(request)
    graph = load_graph(request, session)
    arrays_by_name = inputs if inputs is not None else random_inputs(expected_graph(graph))
    arrays = checked_inputs(graph, arrays_by_name)
    arrays_by_name = {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}
    expansions = _expansions(graph, arrays_by_name, _sizes(graph, arrays_by_name), session.options)
    return [*expansions, *_checked(graph, arrays_by_name, session)]


def _checked(graph: Graph, given: Mapping[str, np.ndarray], session: Session) -> list[KernelCheck]:
    """The comparisons of a program's kernels, in order.  If parts of the program run on a device
    and on the CPU, the list has the comparisons of all parts.
    """
    outer, _ = parts_of(graph, session)
    if outer is None:
        return _checked_alone(graph, [as_value(given[v.name]) for v in graph.inputs], session)
    known = {v: as_value(given[v.name]) for v in outer.inputs}
    checks_so_far: list[KernelCheck] = []
    for node in outer.nodes:
        arrays = [known[v] for v in node.inputs]
        known |= zip(node.outputs, evaluate_op(node.op, *arrays), strict=True)
        if isinstance(node.op, Part):
            own = session if node.op.on_device else on_cpu(session)
            checks = _checked_alone(node.op.body, arrays, own)
            checks_so_far += [
                replace(c, index=len(checks_so_far) + i) for i, c in enumerate(checks)
            ]
    return checks_so_far


def _checked_alone(
    graph: Graph, arrays: Sequence[np.ndarray], session: Session
) -> list[KernelCheck]:
    """The comparisons for all kernels of a program, in order.  The program has a single target."""
    fused = optimise(graph, session)
    kernels = compile_kernels(fused, session)
    numbers = {n: i for i, (_, n) in enumerate(kernels_in(fused))}
    checks = _Checks(session, kernels, numbers, _extents_of(graph, arrays), {})
    checks.graph(fused, arrays)
    return [checks.found[i] for i in sorted(checks.found)]


@dataclass(frozen=True, slots=True)
class _Checks:
    """The comparisons made so far.

    session: the session that compiled the model.
    kernels: the code of each kernel.
    numbers: the number of each kernel in the program.
    sizes: sizes of the symbols that are known so far.
    found: the comparisons, by number.
    """

    session: Session
    kernels: Mapping[Node, KernelCode]
    numbers: Mapping[Node, int]
    sizes: dict[Var, int]
    found: dict[int, KernelCheck]

    def graph(self, graph: Graph, inputs: Sequence[np.ndarray]) -> None:
        """Check the kernels of a graph and of its bodies of control flow, for logical inputs."""
        known: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
        known |= {c.value: logical_array(c) for c in graph.constants}
        last_use = {v: i for i, n in enumerate(graph.nodes) for v in n.inputs}
        for i, node in enumerate(graph.nodes):
            arrays = [known[v] for v in node.inputs]
            known |= zip(node.outputs, self.node(node, arrays), strict=True)
            for v in node.inputs:
                if last_use.get(v) == i:
                    known.pop(v, None)

    def node(self, node: Node, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results of a node, whose kernels are checked.  For control flow, the kernels of both
        branches or of a loop's first iteration are checked.
        """
        if isinstance(node.op, Measure):
            self.sizes.update(node.op.measured(arrays[0], self.sizes))
            return ()
        if isinstance(node.op, (If, Loop)):
            results = evaluate_op(_bound(node, self.sizes).op, *arrays)
            for body, inputs in self.bodies(node, arrays):
                inside = {**self.sizes, **_extents_of(body, inputs)}
                replace(self, sizes=inside).graph(body, inputs)
            self.sizes.update(extents_behind(node.op, results, self.sizes))
            return results
        if isinstance(node.op, Host):
            return evaluate_op(_bound(node, self.sizes).op, *arrays)
        assert isinstance(node.op, Fused)
        options = self.session.options
        expected, *near = references(bind(node.op.body, self.sizes), arrays, options)
        if node in self.numbers:
            number = self.numbers[node]
            computed = _run_alone(node, self.kernels[node], arrays, self.session, self.sizes)
            outputs = tuple(
                _compared(f, e, others, options.bound(str(v.dtype)), str(v.dtype))
                for v, f, e, *others in zip(node.outputs, computed, expected, *near, strict=True)
            )
            ops = tuple(n.op.name for n in node.op.body.nodes)
            self.found[number] = KernelCheck(number, node.loc, ops, outputs)
        return expected

    def bodies(
        self, node: Node, arrays: Sequence[np.ndarray]
    ) -> Iterator[tuple[Graph, Sequence[np.ndarray]]]:
        """The bodies of control flow that are checked, and their inputs."""
        op = node.op
        if isinstance(op, If):
            yield from ((body, arrays[1:]) for body in op.bodies)
            return
        assert isinstance(op, Loop)
        if op.steps is None or not same_dim(bound(op.steps, {**self.sizes}), 0):
            yield op.body, first_iteration(op, arrays)


def _extents_of(body: Graph, inputs: Sequence[np.ndarray]) -> dict[Var, int]:
    """The sizes of the symbols that are extents of inputs."""
    pairs = ((d, n) for v, a in zip(body.inputs, inputs) for d, n in zip(v.shape, np.shape(a)))
    return {d: n for d, n in pairs if isinstance(d, Var)}


def _sizes(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[Var, int]:
    """The sizes of the symbols of `graph` for these inputs."""
    return _extents_of(graph, [inputs[v.name] for v in graph.inputs])


def _expansions(
    graph: Graph, given: Mapping[str, np.ndarray], sizes: Mapping[Var, int], options: Options
) -> Iterator[KernelCheck]:
    """The checks of a model's composite operators, on inputs that the references compute.

    sizes: sizes of the symbols of inputs.
    """
    composite = [
        n.op.is_composite() and type(n.op).reference is not Op.reference for n in graph.nodes
    ]
    if not any(composite):
        return
    nodes = graph.nodes[: len(composite) - composite[::-1].index(True)]
    last_use = {v: i for i, n in enumerate(nodes) for v in (*n.inputs, *n.outputs)}
    known: dict[Value, np.ndarray] = {v: np.asarray(given[v.name]) for v in graph.inputs}
    known |= {c.value: logical_array(c) for c in graph.constants}
    sizes = {**sizes}
    for i, node in enumerate(nodes):
        arrays = [known[v] for v in node.inputs]
        if isinstance(node.op, Measure):
            sizes |= node.op.measured(arrays[0], sizes)
            continue
        op = _bound(node, sizes).op
        expected = evaluate_op(op, *arrays)
        sizes |= extents_behind(node.op, expected, sizes)
        known |= zip(node.outputs, expected, strict=True)
        if composite[i]:
            with np.errstate(all="ignore"):
                results = eager.evaluate(op, *arrays)
            for f, e in zip(results, expected, strict=True):
                if (f.shape, f.dtype) != (e.shape, e.dtype):
                    raise UsageError(
                        f"{op.name} node {node.loc!r}: its expansion gives {f.dtype} of shape "
                        f"{f.shape}, its reference {e.dtype} of shape {e.shape}"
                    )
            outputs = tuple(
                _compared(f, e, (), options.bound(str(v.dtype)), str(v.dtype))
                for v, f, e in zip(node.outputs, results, expected, strict=True)
            )
            yield KernelCheck(None, node.loc, (op.name,), outputs)
        for v in (*node.inputs, *node.outputs):
            if last_use[v] == i:
                known.pop(v, None)


def references(
    body: Graph, arrays: Sequence[np.ndarray], options: Options
) -> list[tuple[np.ndarray, ...]]:
    """The reference outputs of a group for logical inputs.  If the group rounds, also the outputs
    for lower and for higher operands of the rounding steps.
    """
    if not any(n.op.has_steps for n in body.nodes):
        return [tuple(evaluate(body, arrays).values())]
    known: dict[Value, Sequence[np.ndarray]] = {c.value: [logical_array(c)] for c in body.constants}
    known |= {v: [a] for v, a in zip(body.inputs, arrays, strict=True)}
    for node in body.nodes:
        operands = [known[v] for v in node.inputs]
        if node.op.has_steps and not (isinstance(node.op, Cast) and node.op.to.is_float):
            operands[0] = _around(operands[0], options)
        results = [
            evaluate_op(node.op, *(o[min(i, len(o) - 1)] for o in operands))
            for i in range(max(map(len, operands), default=1))
        ]
        known |= zip(node.outputs, zip(*results, strict=True), strict=True)
    count = max(len(known[v]) for v in body.outputs)
    return [tuple(known[v][min(i, len(known[v]) - 1)] for v in body.outputs) for i in range(count)]


def _around(operand: Sequence[np.ndarray], options: Options) -> Sequence[np.ndarray]:
    """The operand of a rounding step, and its lower and upper bound.  If all elements of the
    operand are whole numbers, they are exact results of earlier steps, and there are no bounds.
    """
    x = operand[0]
    dtype = to_dtype(x.dtype)
    wide = x.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not dtype.is_float or (finite == np.rint(finite)).all():
        return operand
    by = min(options.bound(str(dtype)) * float(np.abs(finite).max()), _MOST)
    low, high = operand[-2:] if len(operand) > 1 else (x, x)
    return x, (low - by).astype(x.dtype), (high + by).astype(x.dtype)


_MOST = 0.5
"""Upper bound on the amount by which the operand of a rounding step is lowered or raised.  So the
step's result changes by at most 1.
"""


def _compared(
    found: np.ndarray, expected: np.ndarray, near: Sequence[np.ndarray], bound: float, dtype: str
) -> OutputCheck:
    """Comparison of a result with its reference, and with the lowest and highest references if
    there are any.
    """
    spanned = (expected, *near)
    error = least_difference(found, spanned, bound)
    if not near or difference(found, expected) <= bound:
        return OutputCheck(dtype, error, bound)
    wide, plain = (np.asarray(a, np.float64) for a in (found, expected))
    scale = float(np.abs(plain[np.isfinite(plain)]).max(initial=0.0)) or 1.0
    off, rest = np.abs(wide - plain), np.abs(wide - nearest(found, spanned))
    stepped = int(((off > bound * scale) & (rest <= bound * scale)).sum())
    return OutputCheck(dtype, error, bound, stepped)


def _bound(node: Node, sizes: Mapping[Var, int]) -> Node:
    """The node with its symbols replaced by sizes."""
    return bind(Graph("", node.inputs, (), (node,), node.outputs, ()), sizes).nodes[0]


def _run_alone(
    node: Node,
    kernel: KernelCode,
    arrays: Sequence[np.ndarray],
    session: Session,
    sizes: Mapping[Var, int],
) -> list[np.ndarray]:
    """The results of one kernel for logical input arrays, as logical arrays.

    sizes: sizes of the symbols.
    """
    assert isinstance(node.op, Fused)
    in_place = node.op.body.in_place
    known: dict[Expr, Dim] = {**sizes}
    extents = tuple(bound(d, known) for d in localise(node.op.body)[1])
    node = _bound(node, sizes)
    renamed = {v: replace(v, name=f"in{i}") for i, v in enumerate(dict.fromkeys(node.inputs))}
    names = tuple(f"out{i}" for i in range(len(node.outputs)))
    # An input that shares memory with a longer output gets the type of the output, so that the
    # memory is large enough.
    for o, i in in_place:
        renamed[node.inputs[i]] = replace(renamed[node.inputs[i]], type=node.outputs[o].type)
    single = replace(node, inputs=tuple(renamed[v] for v in node.inputs))
    order = {v: i for i, v in enumerate(renamed)}
    over = tuple((o, order[node.inputs[i]]) for o, i in in_place)
    alone = Graph("check", tuple(renamed.values()), (), (single,), node.outputs, names, over)
    program = assemble(alone, {single: kernel}, session, extents={single: extents})
    exe = placed(program, session.options)
    by_value = dict(zip(node.inputs, arrays, strict=True))
    physical = [
        np.array(v.layout.pack(by_value[v]) if v.layout else by_value[v], order="C")
        for v in renamed
    ]
    for number, v in enumerate(renamed.values()):
        if v.layout is None and physical[number].size < v.type.size:
            physical[number] = np.resize(physical[number], v.type.static_shape)
    out = exe.run({f"in{i}": a for i, a in enumerate(physical)})
    return [
        v.layout.unpack(a, v.type.static_shape) if v.layout else a
        for v, a in zip(node.outputs, out.values(), strict=True)
    ]


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of the right types: standard normal floats, integers 0 and 1, random bools; integers
    that are indices are inside the axes that they index.
    """
    rng = np.random.default_rng(seed)
    result: dict[str, Any] = {}
    limits = index_limits(graph)
    for v in graph.inputs:
        shape = v.type.static_shape
        if v.dtype.is_host:
            result[v.name] = sample(v.dtype, shape, rng)
        elif v.dtype.is_float:
            result[v.name] = rng.standard_normal(shape).astype(v.dtype.numpy)
        else:
            result[v.name] = rng.integers(0, limits.get(v.name, 2), shape).astype(v.dtype.numpy)
    return result
