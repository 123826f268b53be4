"""Proofs that an output of a kernel may use the memory of an input.

An output may overwrite an input if each element of the input is read for the last time before the
output element at the same address is written.  Two forms are proved.  They cover elementwise
kernels:

- The input is read in the loops in which the output is written.  Each iteration reads the input at
  the indices at which it writes, and not after the store.  No two iterations write the same
  element.
- The input is read in loops that end before the first store.

An input that is not read imposes no condition.  The output may then also be longer than the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilesmith.ir.affine import affine_form
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Binary, Const, Expr, Load, post_order
from tilesmith.ir.simplify import EMPTY, interval

from .nodes import Buffer, For, Func, Stmt, Store
from .visit import children, own_exprs


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or store of a parameter: the loops around it, the position of its statement in the
    text, and its indices.
    """

    loops: tuple[For, ...]
    position: int
    indices: tuple[Expr, ...]


def shareable(func: Func) -> dict[Buffer, tuple[Buffer, ...]]:
    """Output of a kernel in stage "nest" -> the inputs whose memory it may use."""
    loads: dict[Buffer, list[_Access]] = {}
    stores: dict[Buffer, list[_Access]] = {}
    params = set(func.buffers)
    for loops, position, stmt in _statements(func.body):
        for top in own_exprs(stmt):
            for e in post_order(top):
                if isinstance(e, Load) and isinstance(e.buffer, Buffer) and e.buffer in params:
                    loads.setdefault(e.buffer, []).append(_Access(loops, position, e.indices))
        if isinstance(stmt, Store) and stmt.buffer in params:
            stores.setdefault(stmt.buffer, []).append(_Access(loops, position, stmt.indices))
    homes_of: dict[Buffer, tuple[Buffer, ...]] = {}
    for out in func.outputs:
        written = stores.get(out, [])
        once = len(written) == 1 and out not in loads and _writes_each_once(written[0])
        homes = tuple(
            b
            for b in func.buffers
            if b not in stores
            and _same_extent(b, out)
            and (b not in loads or (once and all(_is_before(x, written[0]) for x in loads[b])))
        )
        if once or homes:
            homes_of[out] = homes
    return homes_of


def may_lie_over(func: Func, out: int, operand: int) -> bool:
    """Whether output number `out` of a kernel may begin at the address of parameter number
    `operand`.
    """
    home, result = func.buffers[operand], func.outputs[out]
    if home in shareable(func).get(result, ()):
        return True
    return _is_beginning(home, result) and not _is_used(func, home)


def _is_used(func: Func, buffer: Buffer) -> bool:
    return any(
        (isinstance(s, Store) and s.buffer is buffer)
        or any(
            isinstance(e, Load) and e.buffer is buffer for x in own_exprs(s) for e in post_order(x)
        )
        for _, _, s in _statements(func.body)
    )


def _is_beginning(a: Buffer, b: Buffer) -> bool:
    """Whether equal indices have equal offsets in `a` and `b`.  Their extents may differ
    only in the first axis whose extent is above 1.
    """
    first = next((i for i, d in enumerate(b.shape) if not _is_same(d, 1)), 0)
    return (
        a.dtype.bytes == b.dtype.bytes
        and len(a.shape) == len(b.shape)
        and all(_is_same(x, 1) for x in a.shape[:first])
        and all(_is_same(x, y) for x, y in zip(a.shape[first + 1 :], b.shape[first + 1 :]))
    )


def _statements(
    body: Stmt, loops: tuple[For, ...] = ()
) -> Iterator[tuple[tuple[For, ...], int, Stmt]]:
    """For each statement: the loops around it, its position, and the statement itself."""
    stack = [(body, loops)]
    position = 0
    while stack:
        stmt, around = stack.pop()
        yield around, position, stmt
        position += 1
        inside = (*around, stmt) if isinstance(stmt, For) else around
        stack.extend((s, inside) for s in reversed(children(stmt)))


def _same_extent(a: Buffer, b: Buffer) -> bool:
    """Whether elements at equal indices have equal offsets in both buffers."""
    return (
        a.dtype.bytes == b.dtype.bytes
        and len(a.shape) == len(b.shape)
        and all(_is_same(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    )


def _is_same(a: Expr | int, b: Expr | int) -> bool:
    return a == b if isinstance(a, int) and isinstance(b, int) else a is b


def _is_before(load: _Access, store: _Access) -> bool:
    if load.position > store.position:
        return False
    if not any(a is b for a, b in zip(load.loops, store.loops)):
        return True
    return load.loops == store.loops and all(
        a is b for a, b in zip(load.indices, store.indices, strict=True)
    )


def _writes_each_once(store: _Access) -> bool:
    """Whether the indices determine the iteration of the loops: no two iterations have the same
    indices.

    A sum determines its terms if the step of each term exceeds the total range of all terms with
    smaller steps.  A quotient and a remainder together determine the dividend.
    """
    context: Context = EMPTY
    for loop in store.loops:
        context = context.with_var(loop.var, loop.start, loop.start + loop.extent - 1)
    forms = [affine_form(i)[0] for i in store.indices]
    determined: set[Expr] = set()
    count = -1
    while count != len(determined):
        count = len(determined)
        for form in forms:
            rest = {a: c for a, c in form.items() if a not in determined}
            if _is_separable(rest, context):
                determined.update(rest)
        for q in [e for e in determined if isinstance(e, Binary) and e.op == "floordiv"]:
            if q.a not in determined and Binary("floormod", q.a, q.b) in determined:
                forms.append(affine_form(q.a)[0])
                determined.add(q.a)
    return all(
        loop.var in determined or (isinstance(loop.extent, Const) and loop.extent.value == 1)
        for loop in store.loops
    )


def _is_separable(terms: Mapping[Expr, int], context: Context) -> bool:
    """Whether the value of a sum of `terms` determines the value of each term."""
    reach: int | None = 0
    for atom, step in sorted(terms.items(), key=lambda term: abs(term[1])):
        if reach is None or abs(step) <= reach:
            return False
        values = interval(atom, context)
        if values.lo is None or values.hi is None:
            reach = None
        else:
            reach += abs(step) * (values.hi - values.lo)
    return True
