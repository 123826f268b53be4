"""Operators written as loops on a device: a thread for each iteration of the outermost loops."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.nodes import Graph
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import For, Func, Stmt
from tilesmith.loop.visit import map_stmt, rebuild
from tilesmith.strategy.irregular import irregular_nest, is_mapped

from .blocks import block_size
from .parallel import is_sequential, launch_parallel


def lower_irregular(body: Graph, target: Target, name: str) -> Func:
    """The kernel of an operator written as loops."""
    return launch_parallel(_nest(body, name), block_size(target))


def has_few_lines(body: Graph, target: Target) -> bool:
    """Whether an operator written as loops has too few independent iterations for a device."""
    assert target.device is not None
    return is_sequential(_nest(body, "k"), target.device.wave)


def _nest(body: Graph, name: str) -> Func:
    func = irregular_nest(body, name)
    return func if is_mapped(body) else replace(func, body=_on_device(func.body))


def _on_device(stmt: Stmt) -> Stmt:
    """`stmt` in which only the outermost independent loops, and the independent loops directly
    inside them, are parallel.  Each iteration is a thread, which runs inner loops sequentially.
    """
    if not isinstance(stmt, For):
        return rebuild(stmt, _on_device, lambda e: e)
    if stmt.kind != "parallel":
        return map_stmt(stmt, f_stmt=_in_sequence)
    inner = stmt.body
    is_nest = isinstance(inner, For) and inner.kind == "parallel"
    return replace(
        stmt, body=_on_device(inner) if is_nest else map_stmt(inner, f_stmt=_in_sequence)
    )


def _in_sequence(stmt: Stmt) -> Stmt:
    is_independent = isinstance(stmt, For) and stmt.kind == "parallel"
    return replace(stmt, kind="serial") if is_independent else stmt
