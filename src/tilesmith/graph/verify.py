"""The verifier of graphs: the invariants of every graph, at every stage of compilation.

- Values are defined once and before they are used.
- Names of inputs and of outputs are unique.
- A result that lives in an input has the input's type and layout; no other result lives there.
- Every node's results have the types that its operator gives for its inputs.
- Layouts fit the ranks.
- Contents of constants have the physical shape and element type.  Only contents that were already
  read are checked: verifying loads no weights.
- Inputs and outputs of a fused group's body have the types and layouts of the node's.
- Inputs and results of control flow are row-major.
- A symbol that a node defines is used only after the node, in the same graph or in bodies inside
  this graph.  Symbols of a loop's body are used only in the body.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.graph.builder import infer
from tilesmith.graph.control import Control
from tilesmith.graph.measure import bounds_of, stages_in, symbols_defined, symbols_inside
from tilesmith.graph.nodes import Constant, Fused, Graph, Node, Structure, Value
from tilesmith.graph.text import node_text
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import symbols_of
from tilesmith.ops.slicing import Append
from tilesmith.support.errors import ModelError, VerifyError


def verify(graph: Graph, after: str = "") -> None:
    """Raises VerifyError if an invariant is broken.  The message names `after`, the preceding stage
    or pass.
    """
    try:
        _check_graph(graph)
        _check_measured(graph, {s for stage in stages_in(graph) for s in stage.symbols})
    except _Broken as e:
        stage = f"after {after}: " if after else ""
        raise VerifyError(f"{stage}graph '{graph.name}': {e}") from None


class _Broken(Exception):
    """An invariant does not hold.  The message names the invariant and the place."""


def _check_graph(graph: Graph) -> None:
    _check_names("input", [v.name for v in graph.inputs])
    _check_names("output", list(graph.output_names))
    if len(graph.outputs) != len(graph.output_names):
        raise _Broken(
            f"expected a name per output, found {len(graph.outputs)} outputs and "
            f"{len(graph.output_names)} names"
        )
    defined: set[Value] = set()
    for v in graph.inputs:
        _define(v, defined, "an input")
    for i, _ in graph.defaults:
        if not 0 <= i < len(graph.inputs) or not graph.inputs[i].type.is_static:
            raise _Broken(f"input {i} has a default: expected an input of static type")
    for c in graph.constants:
        _define(c.value, defined, "a constant")
        _check_constant(c)
    for node in graph.nodes:
        try:
            _check_node(node, defined)
        except _Broken as e:
            raise _Broken(f"{e}, in\n  {node_text(node)}") from None
    for name, v in zip(graph.output_names, graph.outputs):
        if v not in defined:
            raise _Broken(f"output {name!r} is value {v!r}, which is not defined")
    for o, i in graph.in_place:
        v, home = graph.outputs[o], graph.inputs[i]
        is_same = v.type == home.type and v.layout == home.layout
        if not is_same and not _is_appended(graph.producer.get(v), home):
            raise _Broken(f"output {graph.output_names[o]!r} can't live in {home!r}: it is {v!r}")
    if any(len(set(numbers)) != len(numbers) for numbers in zip(*graph.in_place)):
        raise _Broken(f"two outputs live in one input, or one in two: {graph.in_place}")


def _is_appended(node: Node | None, home: Value) -> bool:
    """Whether a node appends to `home` in the memory of `home`."""
    if node is None or not isinstance(node.op, Append):
        return False
    return node.op.in_place and node.inputs[0] is home


def _check_names(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            problem = f"is named {name!r} like another one" if name else "has no name"
            raise _Broken(f"an {what} {problem}; names of {what}s must be unique and not empty")
        seen.add(name)


def _define(value: Value, defined: set[Value], what: str) -> None:
    if value in defined:
        raise _Broken(f"{value!r} is defined again as {what}")
    defined.add(value)
    if value.layout is not None and value.layout.rank != value.type.rank:
        raise _Broken(
            f"{value!r} has rank {value.type.rank}, but its layout '{value.layout}' is for rank "
            f"{value.layout.rank}"
        )


def _check_constant(constant: Constant) -> None:
    value = constant.value
    if not value.type.is_static:
        raise _Broken(f"constant {value!r} has a symbolic dimension")
    if "array" not in constant.data.__dict__:
        return  # the contents have not been read yet
    array = constant.data.array
    shape = value.type.static_shape
    if value.layout is not None:
        shape = value.layout.physical_shape(shape)
    if array.shape != shape or array.dtype != value.dtype.numpy:
        raise _Broken(
            f"constant {value!r}: expected contents of type {value.dtype.numpy}{list(shape)}, "
            f"found {array.dtype}{list(array.shape)}"
        )


def _check_node(node: Node, defined: set[Value]) -> None:
    for v in node.inputs:
        if v not in defined:
            raise _Broken(f"input {v!r} is used before it is defined")
    try:
        expected = infer(node.op, tuple(v.type for v in node.inputs))
    except ModelError as e:
        raise _Broken(f"the inputs do not fit the operator: {e}") from None
    types = tuple(v.type for v in node.outputs)
    if expected != types:
        raise _Broken(f"expected results of type {_shown(expected)}, found {_shown(types)}")
    if isinstance(node.op, Fused):
        _check_body(node.op.body, node)
    elif isinstance(node.op, Structure):
        for body in node.op.bodies:
            _check_graph(body)
        _check_borders(node.op, node)
    for v in node.outputs:
        _define(v, defined, "a result")


def _check_body(body: Graph, node: Node) -> None:
    _check_graph(body)
    for what, inner, outer in (
        ("inputs", body.inputs, node.inputs),
        ("outputs", body.outputs, node.outputs),
    ):
        if len(inner) != len(outer):
            raise _Broken(f"the body has {len(inner)} {what}, the node {len(outer)}")
        for a, b in zip(inner, outer):
            if a.type != b.type or a.layout != b.layout:
                raise _Broken(
                    f"{what} of body and node differ: {a.type} '{a.layout or ''}' in the body, "
                    f"{b.type} '{b.layout or ''}' outside"
                )


def _check_borders(op: Structure, node: Node) -> None:
    inner = (v for body in op.bodies for v in (*body.inputs, *body.outputs))
    for v in (*node.inputs, *node.outputs, *inner):
        if v.layout is not None:
            raise _Broken(f"{v!r} is at the border of control flow, but has layout '{v.layout}'")


def _check_measured(graph: Graph, hidden: set[Var]) -> None:
    """Checks that symbols are defined once, and before they are used."""
    if not hidden:
        return
    inputs = symbols_of(d for v in graph.inputs for d in v.shape)
    own: set[Var] = set()
    for node, used in ((None, inputs), *((n, n.symbols) for n in graph.nodes)):
        op = None if node is None else node.op
        defined = () if node is None else symbols_defined(node)
        if isinstance(op, Control) and node is not None:
            for body in op.bodies:
                inner = {*symbols_inside(node)}
                hidden -= inner
                _check_measured(body, hidden)
                hidden |= inner
            results = symbols_of(d for v in node.outputs for d in v.shape)
            used = (*symbols_of(bounds_of(node)), *(s for s in results if s not in {*defined}))
        unknown = next((s for s in used if s in hidden), None)
        if unknown is not None:
            where = "inputs" if node is None else f"\n  {node_text(node)}"
            raise _Broken(f"symbol {unknown.name!r} is used before it is measured, in {where}")
        twice = next((s for s in defined if s not in hidden), None)
        if twice is not None:
            raise _Broken(f"symbol {twice.name!r} is measured twice")
        own.update(defined)
        hidden.difference_update(defined)
    hidden |= own


def _shown(types: Sequence[object]) -> str:
    return f"({', '.join(map(str, types))})"
