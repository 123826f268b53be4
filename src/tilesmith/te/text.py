"""Text of tensor expressions: for people (`print_ops`) and for hashing (`canonical`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesmith.ir.expr import Expr, Load, Var, count_uses, post_order
from tilesmith.ir.operations import ATOM, UNARY
from tilesmith.ir.text import parts_of
from tilesmith.ir.types import Dim
from tilesmith.loop.text import print_func
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ScheduleError

from .tensor import Compute, Extern, Operation, Placeholder, Reduce, Tensor, producers_first


class _Names:
    """Labels for variables and tensors: their own names, made unique, or numbers."""

    def __init__(self, canonical: bool) -> None:
        self.canonical = canonical
        self.given: dict[object, str] = {}
        self.taken: set[str] = set()

    def of(self, thing: Var | Operation, prefix: str) -> str:
        name = self.given.get(thing)
        if name is None:
            base = prefix if self.canonical else thing.name or prefix
            name, n = (f"{prefix}{len(self.given)}" if self.canonical else base), 0
            while name in self.taken:
                n += 1
                name = f"{base}_{n}"
            self.given[thing] = name
            self.taken.add(name)
        return name

    def __call__(self, item: Var | Tensor) -> str:
        return self.of(item, "v") if isinstance(item, Var) else self.tensor(item)

    def tensor(self, t: Tensor) -> str:
        return self.of(t.op, "t") + (f".{t.index}" if t.index else "")


def _shared(roots: Iterable[Expr]) -> set[Expr]:
    """The inner nodes that are used more than once.  Such a node is printed once, under a label, so
    that the size of the text is linear in the size of the DAG.
    """
    uses: dict[Expr, int] = {}
    count_uses(roots, uses)
    return {n for n, count in uses.items() if count > 1 and n.children and not isinstance(n, Load)}


def _lines(op: Compute, names: _Names) -> list[str]:
    if isinstance(op, Extern):
        reads = ", ".join(names.tensor(t) for t in op.sources)
        return [f"{names.of(op, 't')} of ({reads}):", *print_func(op.func).splitlines()]
    axes = [f"{names.of(a.var, 'i')} < {_dim(a.extent, names)}" for a in op.axis]
    reduced = [f"{names.of(a.var, 'k')} < {_dim(a.extent, names)}" for a in op.reduce_axis]
    carried = op.recurrence.states if op.recurrence is not None else ()
    lines = [
        f"{names.of(op, 't')}({', '.join(axes)})"
        + (f" over ({', '.join(reduced)}):" if reduced else ":")
    ]
    lines += [f"  {names.tensor(s)} is {names.of(op, 't')}.{n}" for n, s in enumerate(carried)]
    done: dict[Expr, str] = {}
    shared = _shared(op.body)
    for body in op.body:
        for node in post_order(body):
            if node in done:
                continue
            shown = _node(node, done, names)
            if node in shared:
                label = f"%{sum(s.startswith('%') for s in done.values())}"
                lines.append(f"  {label} = {shown}")
                shown = label
            done[node] = shown
    lines += [f"  {b.dtype} {done[b]}" for b in op.body]
    return lines


def _node(node: Expr, done: dict[Expr, str], names: _Names) -> str:
    """The text of a node, given the texts of its operands.  It has the syntax of `ir.text`, with
    parentheses around every operation.
    """
    if isinstance(node, Reduce):
        return _reduce(node, [done[c] for c in node.children], names)
    parts, precedence = parts_of(node, names)
    # a literal under a sign is in parentheses: -(5) is not the literal -5
    shown = [p if isinstance(p, str) else _closed(done[p[0]], p[1] <= ATOM) for p in parts]
    return _closed("".join(shown), precedence >= UNARY)


def _closed(text: str, is_atom: bool) -> str:
    return text if is_atom else f"({text})"


def _reduce(node: Reduce, args: Sequence[str], names: _Names) -> str:
    """The text of a reduction with its reducer's definition, because names are just labels."""
    axes = ", ".join(names.of(a.var, "k") for a in node.axes)
    dtypes = tuple(s.dtype for s in node.sources)
    a = tuple(Var(f"a{n}", d) for n, d in enumerate(dtypes))
    b = tuple(Var(f"b{n}", d) for n, d in enumerate(dtypes))
    inner = _Names(canonical=True)
    for v in (*a, *b):
        inner.of(v, "v")
    done: dict[Expr, str] = {}
    shown: list[str] = []
    for e in (*node.reducer.combine(a, b), *node.reducer.identity(dtypes)):
        for n in post_order(e):
            done.setdefault(n, _node(n, done, inner))
        shown.append(done[e])
    known = names.canonical and node.reducer.operation is None
    label = "reduce" if known else node.reducer.name
    return f"{label}.{node.index}({', '.join(args)}; {axes}; {', '.join(shown)})"


def _dim(n: Dim, names: _Names) -> str:
    if isinstance(n, int):
        return str(n)
    done: dict[Expr, str] = {}
    for node in post_order(n):
        done[node] = _node(node, done, names)
    return done[n]


def _print(outputs: Sequence[Operation], canonical: bool) -> str:
    names = _Names(canonical)
    lines: list[str] = []
    for op in producers_first(outputs):
        if isinstance(op, Placeholder):
            shape = ", ".join(_dim(d, names) for d in op.shape)
            lines.append(f"{names.of(op, 't')}: {op.dtype}[{shape}]")
        else:
            lines += _lines(op, names)
    lines.append("return " + ", ".join(names.of(op, "t") for op in outputs))
    return "\n".join(lines) + "\n"


@checked(ScheduleError)
def print_ops(outputs: Sequence[Operation]) -> str:
    """The definitions of `outputs` and of everything they need, producers first."""
    return _print(outputs, canonical=False)


def canonical(outputs: Sequence[Operation]) -> str:
    """Like `print_ops` with numbers for names: equal for expressions of equal structure."""
    return _print(outputs, canonical=True)
