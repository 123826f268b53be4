"""Integer expressions as affine sums: `sum(coefficient * atom) + constant`.

An atom is any integer expression that is not itself a sum, a difference, a negation or a product
with a constant.  `from_affine` builds the canonical form:

- terms with positive coefficients first;
- large coefficients before small ones, so that the slowly changing part of an index stands left and
  can be hoisted;
- ties by a structural text;
- the constant last.

Both directions are exact modulo 2**bits, so they also hold for integers that wrap around.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from . import expr as ir
from .dtypes import DType, i64
from .expr import Binary, Const, Expr, Unary, Var, const, post_order
from .grammar import Slot

Affine = tuple[dict[Expr, int], int]

_CACHE_LIMIT = 1 << 18  # entries of a cache; a full cache is emptied: it keeps expressions alive
_forms: dict[Expr, Affine] = {}
_keys: dict[Expr, str] = {}


def as_affine(e: Expr) -> Affine | None:
    """The affine sum of `e`: its atoms with nonzero coefficients, and the constant.  None unless
    `e` is a scalar integer.

    The dictionary is a copy, which the caller may change.
    """
    if e.lanes != 1 or not e.dtype.is_int:
        return None
    terms, constant = affine_form(e)
    return dict(terms), constant


def affine_form(e: Expr) -> Affine:
    """The cached affine sum of a scalar integer.  The caller must not change the dictionary."""
    known = _forms.get(e)
    if known is not None:
        return known
    form: Affine
    if type(e) is Const:
        form = ({}, int(e.value))
    elif type(e) is Binary and e.op in _COMBINE:
        try:
            form = _COMBINE[e.op](e)
        # The expression is deeper than Python's stack: cache the forms of its operands first.
        except RecursionError:
            for node in post_order(e):
                if node is not e and node.dtype.is_int:
                    affine_form(node)
            form = _COMBINE[e.op](e)
    elif type(e) is Unary and e.op == "neg":
        form = scaled(affine_form(e.a), -1)
    else:
        form = ({e: 1}, 0)
    if len(_forms) > _CACHE_LIMIT:
        _forms.clear()
    _forms[e] = form
    return form


def combined(a: Affine, b: Affine, k: int = 1) -> Affine:
    """`a + k * b`."""
    if not b[0]:
        return (a[0], a[1] + k * b[1])
    if not a[0] and k == 1:
        return (b[0], a[1] + b[1])
    terms = dict(a[0])
    for atom, coefficient in b[0].items():
        total = terms.get(atom, 0) + k * coefficient
        if total:
            terms[atom] = total
        else:
            del terms[atom]
    return terms, a[1] + k * b[1]


def scaled(a: Affine, k: int) -> Affine:
    """`k * a`."""
    if k == 1:
        return a
    if k == 0:
        return {}, 0
    return {atom: k * c for atom, c in a[0].items()}, k * a[1]


def _product(e: Binary) -> Affine:
    if type(e.b) is Const:
        return scaled(affine_form(e.a), int(e.b.value))
    if type(e.a) is Const:
        return scaled(affine_form(e.b), int(e.a.value))
    a, b = affine_form(e.a), affine_form(e.b)
    if not a[0]:
        return scaled(b, a[1])
    if not b[0]:
        return scaled(a, b[1])
    return {e: 1}, 0


_COMBINE = {
    "add": lambda e: combined(affine_form(e.a), affine_form(e.b)),
    "sub": lambda e: combined(affine_form(e.a), affine_form(e.b), -1),
    "mul": _product,
}


@lru_cache(maxsize=1 << 14)
def _literal(value: int, dtype: DType) -> Const:
    return const(value, dtype)


def from_affine(terms: Mapping[Expr, int], constant: int = 0, dtype: DType = i64) -> Expr:
    """The canonical expression for an affine sum of scalars of type `dtype`."""
    if len(terms) > 1:
        items = sorted(
            ((a, k) for a, k in terms.items() if k),
            key=lambda t: (t[1] < 0, -abs(t[1]), sort_key(t[0])),
        )
    else:
        items = [(a, k) for a, k in terms.items() if k]
    if not items:
        return _literal(constant, dtype)
    atom, coefficient = items[0]
    if coefficient > 0:
        result = atom if coefficient == 1 else Binary("mul", atom, _literal(coefficient, dtype))
        items = items[1:]
    elif constant:
        result, constant = _literal(constant, dtype), 0
    else:
        result = Unary("neg", atom)
        if coefficient != -1:
            result = Binary("mul", atom, _literal(coefficient, dtype))
        items = items[1:]
    for atom, coefficient in items:
        op, size = ("add", coefficient) if coefficient > 0 else ("sub", -coefficient)
        term = atom if size == 1 else Binary("mul", atom, _literal(size, dtype))
        result = Binary(op, result, term)
    if constant:
        op, size = ("add", constant) if constant > 0 else ("sub", -constant)
        result = Binary(op, result, _literal(size, dtype))
    return result


def product(a: Expr, b: Expr) -> Expr:
    """The product of two atoms, its factors in canonical order."""
    factors = sorted((*factors_of(a), *factors_of(b)), key=sort_key)
    result = factors[0]
    for f in factors[1:]:
        result = Binary("mul", result, f)
    return result


_MOST_FACTORS = 64


def factors_of(e: Expr) -> tuple[Expr, ...]:
    """The factors of a chain of products.  A chain of more than `_MOST_FACTORS` is a single factor,
    since repeated squares would double its length each time.
    """
    factors: list[Expr] = []
    left = [e]
    while left:
        x = left.pop()
        if type(x) is Binary and x.op == "mul":
            left += (x.b, x.a)
        else:
            factors.append(x)
        if len(factors) + len(left) > _MOST_FACTORS:
            return (e,)
    return tuple(factors)


def sort_key(e: Expr) -> str:
    """Sort key: a text of names, not addresses, so that every process sorts alike."""
    key = _keys.get(e)
    if key is None:
        if type(e) is Var:
            key = e.name
        else:
            head = _head(e)
            # The key is cut to 200 characters.  Longer keys don't order better, and a key could
            # double at each level if a node has the same operand twice.
            try:
                inner = [sort_key(c) for c in e.children]
            except RecursionError:  # too deep for Python's stack: compute the operands' keys first
                for node in post_order(e):
                    if node is not e:
                        sort_key(node)
                inner = [sort_key(c) for c in e.children]
            key = f"{head}({','.join(inner)})"[:200]
        if len(_keys) > _CACHE_LIMIT:
            _keys.clear()
        _keys[e] = key
    return key


def _head(e: Expr) -> str:
    """The operation of a node: its symbol, or the beginning of its text and its lanes."""
    if isinstance(e, Const):
        return f"#{e.value}"
    if isinstance(e, (Unary, Binary, ir.Compare)):
        return f"~{e.op}"
    if isinstance(e, ir.Broadcast):
        return f"~x{e.size}"
    parts = [p if isinstance(p, str) else _label(e, p.field) for p in _shown(type(e))]
    return f"~{''.join(parts)}" if parts else type(e).__name__


def _label(e: Expr, field: str) -> str:
    value = getattr(e, field)
    return str(getattr(value, "name", value))


@cache
def _shown(kind: type[Expr]) -> list[str | Slot]:
    """The items of the syntax of `kind` before the operands, and the slots for lanes.  Empty if no
    slot is among them.
    """
    word: list[str | Slot] = []
    for item in kind.items:
        if isinstance(item, Slot) and item.form == "access":
            break
        before = item.partition("(")[0] if isinstance(item, str) else item
        word += [before] if before else []
        if before != item:
            break
    lanes = [i for i in kind.items if isinstance(i, Slot) and i.form == "lanes"]
    shown = [*word, *lanes]
    return shown if any(isinstance(i, Slot) for i in shown) else []
