"""Share: compute a value that many branches of `Select`s use once, before the statement.

    y[i] = select(c, f(x[i]), select(d, g(x[i]), ...))
      ->
    let t = select(c or (not c and d) or ..., x[i], 0.0)
    y[i] = select(c, f(t), select(d, g(t), ...))

A `Select` whose branches read memory evaluates only the branch that it takes.  So a value that `n`
branches use is evaluated at `n` places, each with its own condition.  In a chain of operators that
use their input in several branches, the numbers of places multiply: the code would grow
exponentially with the length of the chain.

So a value with more than `PLACES` places gets a name, if otherwise selects would be copied.  (If
all conditions of the selects depend on indices only, `COPIES` copies per select are allowed on
average.)  The value is computed if one of the places needs it.  If both branches of a select need
the value, the condition of this select is left out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from tilesmith.ir.expr import (
    Const,
    Expr,
    Let,
    Select,
    Unary,
    Var,
    const,
    distinct,
    reached,
    substitute,
)
from tilesmith.ir.intrinsics import needs_guard

from ..nodes import Func, If, LetStmt, Stmt, Store
from ..visit import map_stmt

COPIES = 4
"""Upper bound on the average copies per select, if all conditions of the selects depend on indices
only.  With more copies, values get names.  Unrolling decides most of these selects; names would
prevent that.
"""

PLACES = 4
"""Upper bound on the places of a value that gets no name.  It applies to statements in which values
get names.
"""

Place = tuple[int, ...]
"""The place of a use: the conditions around it, outermost first.  A condition is encoded as
twice its number, plus 1 if it must be false.
"""


def share(func: Func) -> Func:
    """`func` (stage "nest") with names for values that many branches use; the same object if there
    are none.
    """
    return func.with_body(map_stmt(func.body, f_stmt=_shared))


def _shared(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Store):
        roots = (*stmt.indices, stmt.value)
        lets, new = named_values(roots, stmt.mask)
        if lets:
            stmt = Store(stmt.buffer, new[:-1], new[-1], stmt.mask)
    elif isinstance(stmt, LetStmt):
        lets, new = named_values((stmt.value,))
        if lets:
            stmt = LetStmt(stmt.var, new[0], stmt.body)
    elif isinstance(stmt, If):
        lets, new = named_values((stmt.cond,))
        if lets:
            stmt = If(new[0], stmt.then, stmt.otherwise, stmt.likely)
    else:
        return stmt
    for var, value in reversed(lets):
        stmt = LetStmt(var, value, stmt)
    return stmt


def named_values(
    roots: Sequence[Expr], mask: Expr | None = None
) -> tuple[list[tuple[Var, Expr]], tuple[Expr, ...]]:
    """The named values in `roots`, in the order in which they are computed, and the roots rewritten
    to use the names.

    mask: the condition under which all roots are evaluated; None for always.
    """
    order = distinct(roots)
    guarded: set[Expr] = set()
    for node in order:
        if isinstance(node, Let):
            return [], tuple(roots)  # values in a let may use the let's variable
        if needs_guard(node) or not guarded.isdisjoint(node.children):
            guarded.add(node)
    if not _are_copied([n for n in order if _protects(n, guarded)], guarded):
        return [], tuple(roots)
    guards = _Guards(guarded).of(roots, order, mask)
    return _placed(roots, guards) if guards else ([], tuple(roots))


def _protects(node: Expr, guarded: set[Expr]) -> bool:
    return isinstance(node, Select) and (node.if_true in guarded or node.if_false in guarded)


def _are_copied(selects: list[Expr], guarded: set[Expr]) -> bool:
    """Whether the code would contain too many copies of `selects`, which are sorted with inner ones
    first.
    """
    by_data = any(isinstance(s, Select) and s.cond in guarded for s in selects)
    most = len(selects) * (1 if by_data else COPIES)
    copies: dict[Expr, int] = {}
    for s in selects:
        inside = [other for c in s.children for other in _topmost(c, copies)]
        copies[s] = 1 + sum(copies[other] for other in inside)
        if copies[s] > most:
            return True
    return False


class _Guards:
    """Finds the values that get names, and the conditions under which they are needed.

    guarded: the expressions that must not be evaluated where they are not needed.
    """

    def __init__(self, guarded: set[Expr]) -> None:
        self.places: dict[Expr, dict[Place, None]] = {node: {} for node in guarded}
        self.conds: dict[Expr, int] = {}
        self.parts: dict[Expr, Expr] = {}
        """Conditions that get names too: those of named values, and the operands of these
        conditions.
        """

    def of(self, roots: Iterable[Expr], order: list[Expr], mask: Expr | None) -> dict[Expr, Expr]:
        """Value that gets a name -> the condition under which it is computed."""
        named: dict[Expr, Expr] = {}
        outside = () if mask is None else (self.number(mask),)
        for root in roots:
            self.use(root, (outside,))
        for node in reversed(order):  # users come first
            if node not in self.places:
                continue
            places = list(self.places.pop(node))
            if len(places) > PLACES:
                guard = named[node] = self.condition(places)
                places = [() if guard is const(True) else (self.number(guard),)]
            if isinstance(node, Select):
                yes = self.number(node.cond)
                self.use(node.cond, places)
                self.use(node.if_true, [(*p, yes) for p in places])
                self.use(node.if_false, [(*p, yes ^ 1) for p in places])
            else:
                for child in node.children:
                    self.use(child, places)
        return {e: c for e, c in self.parts.items() if not isinstance(e, (Var, Const))} | named

    def use(self, e: Expr, places: Iterable[Place]) -> None:
        if e in self.places:
            self.places[e].update(dict.fromkeys(places))

    def number(self, cond: Expr) -> int:
        return self.conds.setdefault(cond, 2 * len(self.conds))

    def condition(self, places: Iterable[Place]) -> Expr:
        """The condition that at least one of `places` is reached."""
        left = dict.fromkeys(places)
        # Inner places come first.  Two places that differ only in the value of the last condition
        # are replaced by the place without it.
        work = sorted(left, key=len, reverse=True)
        for n, place in enumerate(work):  # the loop appends to the list
            if any(place[:length] in left for length in range(len(place))):
                left.pop(place, None)
            elif place in left and place and (*place[:-1], place[-1] ^ 1) in left:
                del left[place], left[*place[:-1], place[-1] ^ 1]
                left[place[:-1]] = None
                work.insert(_first_shorter(work, n + 1, len(place) - 1), place[:-1])
        if () in left:
            return const(True)
        conds = list(self.conds)
        result: Expr = const(False)
        # Not `and`, which evaluates both operands: loads of an inner condition must run only where
        # needed.
        for place in left:
            holds: Expr = const(True)
            for c in place:
                cond = Unary("not", conds[c // 2]) if c % 2 else conds[c // 2]
                holds = cond if holds is const(True) else Select(holds, cond, const(False))
                self.parts[holds] = const(True)
            result = holds if result is const(False) else Select(result, const(True), holds)
        self.parts[result] = const(True)
        return result


def _first_shorter(work: list[Place], start: int, length: int) -> int:
    """The position, from `start` on, of the first place in `work` with at most `length` conditions.
    A place of `length` conditions is inserted there.
    """
    return next((i for i in range(start, len(work)) if len(work[i]) <= length), len(work))


def _placed(
    roots: Sequence[Expr], guards: dict[Expr, Expr]
) -> tuple[list[tuple[Var, Expr]], tuple[Expr, ...]]:
    """Names with their values, and the rewritten roots.  Each value uses only earlier names.

    A guard may need a value that in turn needs the guarded value.  Then the guard contains a copy
    of it.
    """
    lets: list[tuple[Var, Expr]] = []
    names: dict[Expr, Expr] = {}
    begun: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(node, False) for node in guards]
    while stack:
        node, ready = stack.pop()
        if ready:
            value = node.with_children(tuple(substitute(c, names) for c in node.children))
            guard = substitute(guards[node], names)
            if guard is not const(True):
                value = Select(guard, value, const(0.0 if node.dtype.is_float else 0, node.dtype))
            names[node] = var = Var(f"t{len(lets)}", node.dtype)
            lets.append((var, value))
        elif node not in begun:
            begun.add(node)
            stack.append((node, True))
            for part in (guards[node], *node.children):
                stack += [(n, False) for n in _topmost(part, guards)]
    return lets, tuple(substitute(r, names) for r in roots)


def _topmost(root: Expr, named: Container[Expr]) -> list[Expr]:
    """The named nodes in `root` that are not inside another named node."""
    return [n for n in reached([root], lambda n: () if n in named else n.children) if n in named]
