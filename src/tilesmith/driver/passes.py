"""The passes over graphs and over loops, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.backend import LoopPass
from tilesmith.codegen.math import expand_functions
from tilesmith.graph.control import everywhere
from tilesmith.graph.left import counted
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.graph.passes.algebra import algebra
from tilesmith.graph.passes.append import append
from tilesmith.graph.passes.byte_tables import byte_tables
from tilesmith.graph.passes.choices import preferred
from tilesmith.graph.passes.columns import columns
from tilesmith.graph.passes.control_flow import control_flow
from tilesmith.graph.passes.cse import cse
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.divide_lines import divide_lines
from tilesmith.graph.passes.fold import fold
from tilesmith.graph.passes.fold_batch_norm import fold_batch_norm
from tilesmith.graph.passes.fuse import fuse
from tilesmith.graph.passes.halo import add_halos
from tilesmith.graph.passes.integer_products import integer_products, narrow_products
from tilesmith.graph.passes.layout import assign_layouts
from tilesmith.graph.passes.merge_branches import merge_branches
from tilesmith.graph.passes.move_transposes import move_transposes
from tilesmith.graph.passes.overwrite import overwrite
from tilesmith.graph.passes.packed_weights import packed_weights
from tilesmith.graph.passes.place import place
from tilesmith.graph.passes.rematerialise import rematerialise
from tilesmith.graph.passes.requantise import requantise
from tilesmith.graph.passes.split_taps import split_taps
from tilesmith.graph.passes.sub_pixel import sub_pixel
from tilesmith.graph.passes.winograd import winograd
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify as verify_graph
from tilesmith.ir.dtypes import f32, i8
from tilesmith.ir.intrinsics import without_checks
from tilesmith.loop.in_place import may_lie_over
from tilesmith.loop.nodes import Func
from tilesmith.loop.passes.order_reductions import order_reductions
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify as verify_loops
from tilesmith.loop.visit import map_stmt
from tilesmith.ops.base import Op
from tilesmith.perf.cost import Place
from tilesmith.runtime.threads import thread_count
from tilesmith.strategy.windows import windows
from tilesmith.support.errors import UnsupportedError

from .precision import precision_pass
from .session import Session

GraphPass = Callable[[Graph], Graph]


GRAPH_PASSES: tuple[tuple[str, GraphPass], ...] = (
    ("sub-pixel", sub_pixel),
    ("fold", fold),
    ("control-flow", control_flow),
    ("append", append),
    ("algebra", algebra),
    ("fold-again", fold),
    ("byte-tables", byte_tables),
    ("requantise", requantise),
    ("fold-batch-norm", fold_batch_norm),
    ("merge-branches", merge_branches),
    ("fold-biases", fold_batch_norm),
    ("cse", cse),
    ("dce", dce),
)


ROUNDING_PASSES = frozenset(
    (
        "int-products",
        "packed-weights",
        "requantise",
        "fold-batch-norm",
        "merge-branches",
        "fold-biases",
    )
)
"""Graph passes that reassociate outside of a declared reduction; not run if results are strict."""

STRICT_LOOP_PASSES = (
    LoopPass("expand-functions", expand_functions, "nest"),
    LoopPass("order-reductions", order_reductions, "nest"),
)
"""Passes that make the meaning of a loop nest exact, down to the bits, for strict results."""


def graph_passes(session: Session) -> tuple[tuple[str, GraphPass], ...]:
    """All graph passes in order, the target's own passes last.  They also run on bodies of control
    flow.
    """
    policy = session.backend.layout_policy(session.target)
    options = session.options
    bound = options.algorithm_bound
    choice = session.backend.winograd(session.target, bound, session.choose, f32)
    on_floats = session.backend.winograd(session.target, bound, preferred, i8)
    factors = session.backend.factors(session.target)
    packing = session.backend.packing(session.target, session.choose)
    anywhere = (
        ("decompose", decompose),
        ("move-transposes", move_transposes),
        ("int-products", lambda g: integer_products(g, on_floats, factors)),
        ("narrow-products", lambda g: narrow_products(g, factors)),
        ("packed-weights", lambda g: packed_weights(g, packing)),
        *GRAPH_PASSES,
    )
    exact = [(name, run) for name, run in anywhere if name not in ROUNDING_PASSES]

    def layout(graph: Graph, is_body: bool = False) -> Graph:
        return assign_layouts(graph, policy, session.choose, session.allowed, is_body)

    def lies_over(body: Graph, out: int, operand: int) -> bool:
        return may_lie_over(session.group(body).lower("k"), out, operand)

    low: tuple[tuple[str, GraphPass], ...] = ()
    if options.precision != "f32":
        low = ("low-precision", precision_pass(session)), ("cse-again", cse)
    halos: tuple[tuple[str, GraphPass], ...] = ()
    if session.backend.has_halos:
        halos = (("halo", lambda g: add_halos(g, session.choose)),)
    offload: tuple[tuple[str, GraphPass], ...] = ()
    if session.backend.offload is not None:
        offload = (("offload", lambda g: offloaded(g, session)), ("dce-again", dce))
    lines: tuple[tuple[str, GraphPass], ...] = ()
    if session.backend.lines is not None:
        lines = (("divide-lines", lambda g: divide_long_lines(g, session)),)
    products: tuple[tuple[str, GraphPass], ...] = ()
    if not options.is_strict:  # strict arithmetic adds the terms of a sum in their order
        are_products = session.backend.columns(session.target)
        products = (("columns", lambda g: columns(g, are_products)),)
    memory: tuple[tuple[str, GraphPass], ...] = ()
    limit = options.memory_limit
    if limit is not None:
        memory = (("rematerialise", lambda g: rematerialise(g, limit, kernel_seconds(session))),)
    passes: tuple[tuple[str, GraphPass], ...] = (
        *(exact if options.is_strict else anywhere),
        *low,
        *offload,
        ("split-taps", split_taps),
        *lines,
        ("winograd", lambda g: winograd(g, choice)),
        *products,
        ("layout", layout),
        *halos,
        ("fuse", lambda g: fuse(g, session.choose, join_attention=not options.is_strict)),
        *memory,
        ("place", lambda g: place(g, windows, session.choose)),
        ("overwrite", lambda g: overwrite(g, lies_over)),
    )
    of_bodies = {"layout": lambda g: layout(g, is_body=True), "rematerialise": lambda g: g}
    return tuple((name, everywhere(run, of_bodies.get(name))) for name, run in passes)


def kernel_seconds(session: Session) -> Callable[[Node], float]:
    """The times of fused nodes in the performance model, with schedules by rule and all operands in
    memory.
    """
    quiet = Session(session.options, session.target)
    threads = thread_count(session.options.threads)
    known: dict[Op, float] = {}

    def seconds(node: Node) -> float:
        assert isinstance(node.op, Fused)
        if node.op not in known:
            final = lower_loops(session.group(node.op.body).lower("k"), quiet)
            places: list[Place] = ["dram"] * len(node.inputs)
            known[node.op] = session.backend.predict(final, session.target, threads, places)
        return known[node.op]

    return seconds


def before_target(graph: Graph, session: Session) -> Graph:
    """The folded graph, from which layouts, algorithms and groups for the target are chosen."""
    passes = dict(graph_passes(replace(session, options=replace(session.options, precision="f32"))))
    for name, run in passes.items():
        if name == "split-taps":
            break
        graph = run(graph)
    return graph


def before_parts(graph: Graph, session: Session) -> Graph:
    """The folded graph of primitive and irregular operators, which is divided into parts for
    several targets.  So none of its passes depends on the target.
    """
    strict = session.options.is_strict
    for name, run in (("decompose", decompose), *GRAPH_PASSES):
        if not (strict and name in ROUNDING_PASSES):
            graph = everywhere(run)(graph)
    return graph


def divide_long_lines(
    graph: Graph, session: Session, may_divide: Callable[[Node], bool] = lambda node: True
) -> Graph:
    """Divide the lines of operators with few long lines, such as scans, among the device's threads.

    may_divide: whether the device can compute a node, so that its lines may be divided.
    """
    device, lines = session.target.device, session.backend.lines
    assert device is not None and lines is not None
    return divide_lines(graph, device, lines.longest, may_divide, session.options.is_strict)


def offloaded(graph: Graph, session: Session) -> Graph:
    """The graph with layers on another machine.  The session gets those that stay on the CPU.

    Raises UnsupportedError if some stay and options refuse that.
    """
    assert session.backend.offload is not None
    graph, left = session.backend.offload(graph)
    if left and session.options.fallback == "error":
        raise UnsupportedError(
            f"target {session.target.name!r} can't run {counted(left)}; "
            'fallback="warn" runs them on the CPU'
        )
    session.left.extend(left)
    return graph


def optimise(graph: Graph, session: Session) -> Graph:
    """The graph as fused groups with layouts."""
    session.left.clear()
    for name, run in graph_passes(session):
        with session.timings.stage("graph"), session.timings.stage(name):
            graph = run(graph)
        if session.options.verify_each:
            verify_graph(graph, after=name)
        session.dumper(name, graph, print_graph)
    verify_graph(graph, after="graph passes")
    return graph


def loop_passes(session: Session) -> tuple[LoopPass, ...]:
    """All loop passes in order."""
    strict = STRICT_LOOP_PASSES if session.options.is_strict else ()
    return (*strict, *session.backend.loop_passes)


def run_loop_passes(func: Func, session: Session, under: tuple[str, ...] = ()) -> Func:
    """Run the loop passes: from a loop nest to the form that code generation takes."""
    verify_loops(func, "nest", after="lower")
    session.dumper("lower", func, print_func, unit=func.name)
    for p in loop_passes(session):
        with session.timings.stage(p.name, under=under):
            func = p.run(func)
        if session.options.verify_each:
            verify_loops(func, p.stage, after=p.name)
        session.dumper(p.name, func, print_func, unit=func.name)
    verify_loops(func, "final", after="loop passes")
    return func


def lower_loops(func: Func, session: Session, under: tuple[str, ...] = ()) -> Func:
    """Run the loop passes and lower intrinsics, so that the backend can write code."""
    if session.options.unsafe:
        func = replace(func, body=map_stmt(func.body, f_expr=without_checks))
    return session.backend.lower_intrinsics(run_loop_passes(func, session, under), session.target)
