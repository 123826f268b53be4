"""Carried values that iterations append to: which ones are, and what they hold, against the
evaluator.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from changing_shapes import built, compared

from tilesmith import driver
from tilesmith.driver.passes import optimise
from tilesmith.graph.control import Loop
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.append import append
from tilesmith.graph.verify import verify
from tilesmith.ops.slicing import Append
from tilesmith.program.nodes import Carried, Grow, Repeat
from tilesmith.program.visit import steps_in
from tilesmith.runtime.executable import Executable
from tilesmith.support.options import Options

LOOP = """\
graph main<n 0..64~8, m 0..2147483647~8, k 0..2147483647~8>(%t: i64[], %x: TYPE_n) {
  %y: TYPE_m = loop(%t, %x) {body=graph step(%i: i64[], %a: TYPE_k) {
    const %w: ROWS = [VALUES]
    %h: f32[] = cast(%i) {to=f32}
    %e: ROWS = mul(%w, %h)
BODY
    return %y as "out"
  }, carried=1, results=(TYPE_m,), symbols=(`m`,), bounds=(2147483647,), inside=(`k`,)}
  %z: TYPE_m = AFTER
  return RESULTS
}
"""


def loop(
    shape: tuple[int, ...],
    axis: int,
    rows: int = 1,
    body: str = "%y: TYPE_new = concat(%a, %e) {axis=AXIS}",
    result: bool = True,
) -> str:
    """The text of a loop whose carried value grows along an axis.

    shape: its extents, of which that of `axis` is another one in each iteration.
    rows: by how many the default body lengthens it.
    result: whether it is a result of the program.
    """

    def type_of(extent: str | int) -> str:
        dims = (*map(str, shape[:axis]), str(extent), *map(str, shape[axis + 1 :]))
        return f"f32[{','.join(dims)}]"

    count = int(np.prod([rows if i == axis else d for i, d in enumerate(shape)]))
    values = ", ".join(str(round(0.1 * i - 1, 1)) for i in range(count))
    text = LOOP.replace("BODY", f"    {body}").replace("AXIS", str(axis))
    text = text.replace("ROWS", type_of(rows)).replace("VALUES", values)
    for extent, name in ((f"k + {rows}", "new"), ("n", "n"), ("m", "m"), ("k", "k")):
        text = text.replace(f"TYPE_{name}", type_of(extent))
    text = text.replace("AFTER", "exp(%y)")
    return text.replace("RESULTS", '%y as "y", %z as "z"' if result else '%z as "z"')


def appends(graph: Graph) -> int:
    """How many appends the pass makes in the graph's loops."""
    found = append(graph)
    verify(found)
    bodies = [n.op.body for n in found.nodes if isinstance(n.op, Loop)]
    return sum(isinstance(n.op, Append) for b in bodies for n in b.nodes)


def stays(exe: Executable) -> bool:
    """Whether the carried value stays in one memory that grows."""
    steps = [*steps_in(exe.program.steps)]
    kept = any(isinstance(s, Grow) and s.keep != 0 for s in steps)
    turning = any(
        isinstance(s, Repeat) and any(isinstance(c, Carried) for c in s.carried) for s in steps
    )
    return kept and not turning


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("result", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "rows"),
    [
        ((0,), 0, 3),
        ((0, 5), 0, 1),
        ((1, 0, 2), 1, 2),
        ((2, 0, 3), 1, 1),
        ((3, 2, 0), 2, 4),
        ((1, 1, 0), 2, 1),
    ],
)
def test_appended_values_stay_where_they_are(
    shape: tuple[int, ...], axis: int, rows: int, result: bool, target: str
) -> None:
    graph, exe = built(loop(shape, axis, rows, result=result), target)
    assert appends(graph) == 1 and stays(exe)
    rng = np.random.default_rng(seed := random.randrange(1 << 30))
    print("seed", seed)
    for steps in (0, 1, 2, 7, int(rng.integers(8, 200))):
        for n in (0, 1, int(rng.integers(2, 64))):
            sizes = (*shape[:axis], n, *shape[axis + 1 :])
            compared(graph, exe, steps, rng.standard_normal(sizes).astype(np.float32))


@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("result", [True, False])
def test_parts_of_the_longer_value_outlive_its_memory(result: bool, target: str) -> None:
    """The next iteration reads a row of it, and its memory moves when it grows."""
    text = loop((0, 4), 0, result=result)
    text = text.replace("%t: i64[], %x", "%t: i64[], %h: f32[1,4], %x")
    text = text.replace("loop(%t, %x) {", "loop(%t, %x, %h) {").replace(
        "%y: f32[m,4] =", "%y: f32[m,4], %last: f32[1,4] ="
    )
    text = text.replace("(%i: i64[], %a: f32[k,4])", "(%i: i64[], %a: f32[k,4], %g: f32[1,4])")
    text = text.replace("concat(%a, %e)", "concat(%a, %f)").replace(
        "    %y: f32[k + 1,4]", "    %f: f32[1,4] = add(%e, %g)\n    %y: f32[k + 1,4]"
    )
    text = text.replace(
        '    return %y as "out"\n',
        "    %next: f32[1,4] = slice(%y) {starts=(0,), ends=(1,), axes=(0,), steps=(1,)}\n"
        '    return %y as "out", %next as "next"\n',
    )
    text = text.replace("carried=1, results=(f32[m,4],)", "carried=2, results=(f32[m,4],f32[1,4])")
    text = text.replace('%z as "z"', '%z as "z", %last as "last"')
    graph, exe = built(text, target)
    assert appends(graph) == 1
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    for steps in (0, 1, 2, 9, 150):
        compared(graph, exe, steps, x[:1] * 3, x)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("%y: TYPE_new = concat(%a, %e) {axis=-2}", 1),
        # the longer value is read in the body, too
        ("%y: TYPE_new = concat(%a, %e) {axis=0}\n"
         "    %s: f32[] = reduce_sum(%y) {keepdims=False}", 1),
        # several pieces
        ("%y: f32[k + 2,3] = concat(%a, %e, %e) {axis=0}", 1),
        # what was there is behind
        ("%y: TYPE_new = concat(%e, %a) {axis=0}", 0),
        # or read by others, which may run later
        ("%b: TYPE_k = exp(%a)\n    %c: TYPE_new = concat(%a, %e) {axis=0}\n"
         "    %d: TYPE_new = concat(%b, %e) {axis=0}\n    %y: TYPE_new = add(%c, %d)", 0),
        ("%b: TYPE_k = exp(%a)\n    %r: TYPE_k = mul(%a, %b)\n"
         "    %y: TYPE_new = concat(%r, %e) {axis=0}", 0),
    ],
)  # fmt: skip
def test_only_what_nothing_else_reads_is_appended_to(body: str, count: int) -> None:
    text = loop((0, 3), 0, body=body)
    graph = parse_graph(text)
    verify(graph)
    assert appends(graph) == count
    if not count:
        assert append(graph) is graph
    _, exe = built(text)
    for steps in (0, 1, 5):
        compared(graph, exe, steps, np.ones((2, 3), np.float32))


def test_a_fused_append_writes_its_rows_only() -> None:
    session = driver.Session.of(Options.from_environment().with_(target="x86-64-v3"))
    fused = optimise(parse_graph(loop((2, 0, 3), 1)), session)
    (body,) = (n.op.body for n in fused.nodes if isinstance(n.op, Loop))
    (node,) = (n for n in body.nodes if isinstance(n.op, Fused) and n.op.body.in_place)
    assert isinstance(node.op, Fused) and node.op.body.in_place == ((0, 0),)
    nest = session.group(node.op.body).lower("k")
    assert "in0[" not in str(nest)
