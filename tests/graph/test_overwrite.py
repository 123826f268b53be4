"""Who may write over whose memory, read from texts of fused graphs."""

from __future__ import annotations

import pytest

from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.memory_plan import homes_of, plan
from tilesmith.graph.passes.overwrite import overwrite
from tilesmith.graph.text import print_graph
from tilesmith.graph.verify import verify
from tilesmith.ir.types import same_dim
from tilesmith.support.errors import VerifyError

SCATTER = """fused(%{data}, %i, %u) {{body=graph s(%a: f32[8,4], %b: i64[2,4], %c: f32[2,4]) {{
    %s: f32[8,4] = scatter_elements(%a, %b, %c)
    return %s as "out0"
  }}}}"""
UNARY = """fused(%{data}) {{body=graph e(%a: f32[8,4]) {{
    %e: f32[8,4] = exp(%a)
    return %e as "out0"
  }}}}"""
EXP, WRITE = UNARY.format, SCATTER.format


def _graph(body: str, returned: str) -> Graph:
    text = f"graph g(%x: f32[8,4], %i: i64[2,4], %u: f32[2,4]) {{\n{body}\nreturn {returned}\n}}"
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    return graph


def _overwritten(graph: Graph, allowed: bool = True) -> tuple[Graph, list[tuple[int, ...]]]:
    """The result of the pass, and the operands that its nodes write over."""
    found = overwrite(graph, lambda *_: allowed)
    verify(found)
    bodies = [n.op.body for n in found.nodes if isinstance(n.op, Fused)]
    return found, [tuple(i for _, i in b.in_place) for b in bodies]


def test_data_that_die_are_overwritten() -> None:
    body = f"%e: f32[8,4] = {EXP(data='x')}\n%s: f32[8,4] = {WRITE(data='e')}\n"
    graph = _graph(body + f"%y: f32[8,4] = {EXP(data='s')}", '%y as "y"')
    found, over = _overwritten(graph)
    assert over == [(), (0,), ()]
    names = {v.name: home.name for v, (home, _) in homes_of(found).items()}
    assert names == {"s": "e"} and same_dim(plan(found).arena_bytes, 8 * 4 * 4)


def test_the_memory_of_a_result_holds_the_data_too() -> None:
    body = f"%e: f32[8,4] = {EXP(data='x')}\n%s: f32[8,4] = {WRITE(data='e')}"
    found, over = _overwritten(_graph(body, '%s as "y"'))
    assert over == [(), (0,)] and same_dim(plan(found).arena_bytes, 0)
    assert [home.name for home, _ in homes_of(found).values()] == ["s"]


def test_sorted_updates_are_written_over_their_data() -> None:
    found, over = _overwritten(
        parse_graph(f"""
graph g(%x: f32[8,4], %u: f32[2,4], %at: i64[2], %order: i64[2]) {{
  %e: f32[8,4] = {EXP(data="x")}
  %s: f32[8,4] = fused(%e, %u, %at, %order) {{body=graph s(
    %a: f32[8,4], %b: f32[2,4], %c: i64[2], %d: i64[2]) {{
      %s: f32[8,4] = scatter_sorted(%a, %b, %c, %d) {{depth=1, reduction="add"}}
      return %s as "out0"
    }}}}
  return %s as "y"
}}""")
    )
    assert over == [(), (0,)] and [home.name for home, _ in homes_of(found).values()] == ["s"]


@pytest.mark.parametrize("last", ["e", "x"])
def test_data_that_are_needed_are_copied(last: str) -> None:
    body = f"%e: f32[8,4] = {EXP(data='x')}\n%s: f32[8,4] = {WRITE(data=last)}\n"
    graph = _graph(body + f"%y: f32[8,4] = {EXP(data=last)}", '%s as "s", %y as "y"')
    assert overwrite(graph, lambda *_: True) is graph


def test_results_live_in_inputs() -> None:
    written = _graph(f"%s: f32[8,4] = {WRITE(data='x')}", '%s as "y" in %x')
    assert _overwritten(written, allowed=False)[1] == [(0,)]
    computed = _graph(f"%e: f32[8,4] = {EXP(data='x')}", '%e as "y" in %x')
    assert _overwritten(computed)[1] == [(0,)]
    refused, over = _overwritten(computed, allowed=False)
    assert over == [(), ()] and refused.nodes[1].inputs == computed.outputs
    read_before = f"%e: f32[8,4] = {EXP(data='x')}\n%y: f32[8,4] = {EXP(data='e')}"
    direct = _graph(read_before, '%y as "y" in %x')
    assert overwrite(direct, lambda *_: False) is direct
    read_later = f"%s: f32[8,4] = {WRITE(data='x')}\n%y: f32[8,4] = {EXP(data='x')}"
    copied, over = _overwritten(_graph(read_later, '%s as "s" in %x, %y as "y"'))
    assert over == [(), (), ()] and copied.outputs[0] is copied.nodes[2].outputs[0]


def test_types_of_results_and_inputs_agree() -> None:
    with pytest.raises(VerifyError, match="output 'y' can't live in"):
        _graph(f"%e: f32[8,4] = {EXP(data='x')}", '%e as "y" in %u')
    both = f"%e: f32[8,4] = {EXP(data='x')}\n%s: f32[8,4] = {WRITE(data='e')}"
    with pytest.raises(VerifyError, match="two outputs live in one input"):
        _graph(both, '%e as "e" in %x, %s as "s" in %x')
