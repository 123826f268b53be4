"""Models for a device with parts that run on the CPU, and the reasons why they run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tilesmith.graph.control import Control, Host, If, Loop
from tilesmith.graph.left import LeftLayer, counted
from tilesmith.graph.measure import Measure
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.graph.parts import Download, Part, Upload, verify_places
from tilesmith.graph.passes.partition import partition
from tilesmith.graph.text import print_graph
from tilesmith.ir.dtypes import f64
from tilesmith.ir.symbols import symbols_of
from tilesmith.ir.text import Names
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.program.nodes import PartCall, Results, Step, Transfer
from tilesmith.program.verify import verify
from tilesmith.runtime.program import Program, Symbol
from tilesmith.support.errors import TilesmithError, UnsupportedError, UsageError
from tilesmith.support.logs import logger

from .assembly.program import pack_defaults, spec_of
from .kernels import canonical
from .passes import before_parts, divide_long_lines, lower_loops
from .session import Session

_log = logger("device")


def parts_of(graph: Graph, session: Session) -> tuple[Graph | None, Mapping[Node, str]]:
    """The division of a graph into parts for the target, which is a device, and parts for the CPU.
    None if the whole graph can run on the device.  The second result has the nodes that the device
    can't run, with the reasons.

    Raises UnsupportedError for such nodes if the options have fallback="error".
    """
    if session.target.device is None:
        return None, {}
    whole = before_parts(graph, session)
    graph = divide_long_lines(whole, session, lambda n: not _shown_refusal(n, session))
    reasons = _refused(graph, session)
    if not reasons:
        return None, {}
    if session.options.fallback == "error":
        raise UnsupportedError(
            f"target {session.target.name!r} can't run {_counted(reasons)}; "
            'fallback="warn" runs these on the CPU'
        )
    divided = partition(graph, reasons.keys(), _is_light)
    if divided is None:
        divided = partition(whole, whole.nodes, _is_light)
        measured = dict.fromkeys(whole.nodes, "sizes that other parts measure")
        reasons = {**measured, **_refused(whole, session)}
    assert divided is not None  # a single part needs no size from another one
    verify_places(divided)
    session.dumper("parts", divided, print_graph)
    return divided, reasons


def check_runs_alone(graph: Graph, session: Session) -> None:
    """Raises UsageError if parts of a graph must run on the CPU instead of the target, a device."""
    _, reasons = parts_of(graph, session)
    if reasons:
        raise UsageError(
            f"tuning for {session.target.name!r}: expected a model that the device runs alone, "
            f"found {_counted(reasons)}; compile the model without tuning, or tune for 'native'"
        )


def _refused(graph: Graph, session: Session) -> dict[Node, str]:
    """Nodes that the device can't run, with the reasons."""
    refusals: dict[Node, str] = {}
    tried: dict[tuple[Op, tuple[TensorType, ...]], str] = {}
    for node in graph.nodes:
        reason = _shown_refusal(node, session)
        if not reason and node.op.is_irregular():
            key = (node.op, tuple(v.type for v in node.inputs))
            if key not in tried:
                tried[key] = _tried(node, session)
            reason = tried[key]
        if reason:
            refusals[node] = reason
    return refusals


def _shown_refusal(node: Node, session: Session) -> str:
    """The reason why the device can't run a node, as far as the node's operator and types show it.
    Empty if they show no reason.
    """
    op, device = node.op, session.target.device
    assert device is not None
    if isinstance(op, Measure):
        return "sizes that depend on data"
    if isinstance(op, Host):
        return "a function of the host"
    if isinstance(op, (If, Loop)):
        return "control flow"
    values = (*node.inputs, *node.outputs)
    if node.symbols or not all(v.type.is_static for v in values):
        return "sizes that only a run knows"
    if any(v.dtype.is_host for v in values):
        return "values of the host"
    if any(v.dtype is f64 for v in values) and not device.has_f64:
        return "f64, which the device has not"
    return ""


def _tried(node: Node, session: Session) -> str:
    """Reason why the device can't run an operator that is written as loops; empty if it can."""
    inputs = dict.fromkeys(node.inputs)
    names = {v: replace(v, name=f"in{i}") for i, v in enumerate(inputs)}
    outputs = tuple(replace(v, name=f"out{i}") for i, v in enumerate(node.outputs))
    inside = Node(node.op, tuple(names[v] for v in node.inputs), outputs)
    labels = tuple(v.name for v in outputs)
    body = canonical(Graph("k", tuple(names.values()), (), (inside,), outputs, labels))
    lines = session.backend.lines
    assert lines is not None
    try:
        if lines.are_few(body, session.target):
            return "too few independent iterations"
        func = session.group(body).lower("k")
        session.backend.emit(lower_loops(func, session), session.target)
    except TilesmithError as e:
        _log.debug("%s is not for the device: %s", node.op.name, e)
        return "no code for the device"
    return ""


def _is_light(node: Node) -> bool:
    """True for an operator whose elements each depend on few others: no reduction and no loops."""
    if isinstance(node.op, (Control, Fused)) or not node.op.is_primitive():
        return False
    tensors = node.op.tensors(*(v.type for v in node.inputs))
    return not any(getattr(t.op, "reduce_axis", ()) for t in tensors.outputs)


def _counted(reasons: Mapping[Node, str]) -> str:
    """Operators with their reasons, for a message."""
    return counted(LeftLayer(n.loc, n.op.name, why) for n, why in reasons.items())


def on_cpu(session: Session) -> Session:
    """The session that compiles the CPU's parts."""
    cpu = Session.of(session.options, target="native")
    return replace(
        cpu,
        timings=session.timings,
        dumper=session.dumper,
        constraints=session.constraints,
        outside=session.outside,
    )


def joined(
    outer: Graph, parts: Mapping[Node, Program], reasons: Mapping[Node, str], session: Session
) -> Program:
    """The program that calls the programs of the parts."""
    number = {v: i for i, v in enumerate(outer.inputs)}
    steps: list[Step] = []
    programs: list[Program] = []
    for node in outer.nodes:
        for v in node.outputs:
            number[v] = len(number)
        operands, made = (tuple(number[v] for v in vs) for vs in (node.inputs, node.outputs))
        if isinstance(node.op, Part):
            steps.append(PartCall(len(programs), operands, made))
            programs.append(parts[node])
        else:
            assert isinstance(node.op, (Upload, Download))
            (source,), (to,) = operands, made
            steps.append(Transfer(source, to, isinstance(node.op, Upload)))
    steps.append(Results(tuple(number[v] for v in outer.outputs)))
    names = Names()
    symbols = symbols_of(d for v in outer.inputs for d in v.shape)
    for symbol in symbols:  # the symbols that callers use come first
        names(symbol)
    outputs = zip(outer.outputs, outer.output_names, strict=True)
    blob, defaults = pack_defaults(outer)
    counts = Counter((n.op.name, why) for n, why in reasons.items())
    told = [[name, why, count] for (name, why), count in sorted(counts.items())]
    program = Program(
        tuple(spec_of(v, v.name, names) for v in outer.inputs),
        tuple(spec_of(v, name, names) for v, name in outputs),
        tuple(steps),
        0,
        0,
        blob,
        {},
        session.target,
        {"name": outer.name, "on_cpu": told},
        {symbol: info for p in programs for symbol, info in p.kernels.items()},
        tuple(Symbol.of(names(v), v.sizes) for v in symbols if v.sizes is not None),
        in_place=outer.in_place,
        parts=tuple(programs),
        defaults=defaults,
    )
    verify(program.main)
    return program
