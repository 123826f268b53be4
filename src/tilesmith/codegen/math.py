"""Mathematical functions expanded to arithmetic, so that they run in vector registers.

`expand_math` replaces the `Call`s that no instruction computes by polynomials over additions,
products, selects and bit casts.  The same expansion serves scalars and vectors of any width, and
f32 needs no C library.  The emitter handles the other calls:

- `sqrt abs floor ceil trunc round fma bitcast` on every target;
- functions of f64, as calls of the C library (devices have none, so `math_f64` expands them);
- `scalef` (x * 2^floor(y)) with AVX-512; only expansions create it, in place of the last eight
  instructions of an exponential.

NaN, infinities, signed zeros and denormals follow IEEE 754 and C99.  Tests check the errors for f32
over the whole range, with and without contraction of multiply-adds.  In units in the last place of
the correctly rounded result, these errors are at most:

    exp 1.5   exp2 1.5   log 1.5   log1p 2   tanh 3   erf 3.5   sin cos 2   tan 3.5   rsqrt 1.5
    asin acos atan sinh cosh asinh acosh atanh pow: 1 (computed in f64, rounded once; for
    exponents +-0.25, +-0.5, +-0.75 by square roots: 3.5)

f16 and bf16 are computed in f32 and rounded once.  The coefficients are our own minimax fits (Remez
exchange in 40 digits).  The argument reductions are the textbook ones: Cody and Waite's two-part
constant for exp and log, and Payne and Hanek's window of the bits of 2/pi for the trigonometric
functions.  With this window they are accurate for every argument.
"""

from __future__ import annotations

from collections import Counter

from tilesmith.ir import expr as ir
from tilesmith.ir.dtypes import bf16, bool_, f16, f32, f64
from tilesmith.ir.expr import Binary, Expr, const
from tilesmith.ir.target import Target
from tilesmith.ir.threefry import PARITY, threefry
from tilesmith.loop.nodes import Func
from tilesmith.loop.visit import map_stmt

from . import math_f32, math_f64, math_f64_angles, math_trig, math_wide
from .math_terms import (
    INF,
    Bindings,
    Expansion,
    equal,
    intrinsic,
    less,
    literal,
    pick,
    shift_left,
    shift_right,
)

KEPT = frozenset(("sqrt", "abs", "floor", "ceil", "trunc", "round", "fma", "bitcast", "scalef"))
"""Intrinsics that code generation maps to instructions, so that they are not expanded."""

MOST_EXPANDED = 128
"""Upper bound on the calls of one function, with one number of lanes, that a kernel expands in
place.  With more calls, the expansion becomes a separate function.  Unrolled loops have up to some
dozens of calls, for which calling a function and saving registers would cost time.
"""


def scales(target: Target) -> bool:
    """True if `scalef` is one machine instruction for every vector length."""
    return target.features >= {"avx512f", "avx512vl"}


def _constant_power(x: Expr, y: float, let: Bindings) -> Expr | None:
    """x^y for frequent exponents, exact or with few additional roundings; None for others."""
    if y == 1.0:
        return x
    if y == 0.0:
        return literal(1, x)
    x = let("x", x)
    if y == 2.0:
        return x * x
    if y == 3.0:
        return x * x * x
    if y == -1.0 and x.dtype.is_float:
        return literal(1.0, x) / x
    if x.dtype.is_float and abs(y) in (0.25, 0.5, 0.75):
        # pow(-0, 0.5) is +0 and pow(-inf, 0.5) is +inf, unlike sqrt
        root = let("s", pick(equal(x, -INF), INF, intrinsic("sqrt", x + literal(0.0, x)), x))
        if abs(y) != 0.5:
            fourth = let("q", intrinsic("sqrt", root))
            root = fourth if abs(y) == 0.25 else root * fourth
        return root if y > 0 else literal(1.0, x) / root
    return None


def _integer_power(x: Expr, y: Expr, let: Bindings) -> Expr:
    """x^y by repeated squaring.  The result wraps, as do all integer products.

    A negative y gives the result rounded toward zero: 0, or +-1 for x = +-1.
    """
    x, y = let("x", x), let("y", y)
    result, square = literal(1, x), x
    for bit in range(x.dtype.bits - (x.dtype.kind == "int")):
        taken = ir.Compare("ne", ir.Binary("and", y, literal(1 << bit, y)), literal(0, y))
        result = let("r", ir.Select(taken, result * square, result))
        square = let("s", square * square)
    if x.dtype.kind == "uint":
        return result
    odd = ir.Compare("ne", ir.Binary("and", y, literal(1, y)), literal(0, y))
    unit = pick(equal(x, -1), pick(odd, -1, 1, x), pick(equal(x, 1), 1, 0, x), x)
    return ir.Select(less(y, 0), unit, result)


_F32: dict[str, Expansion] = {**math_f32.FUNCTIONS, **math_trig.FUNCTIONS, **math_wide.FUNCTIONS}
"""Expansions of f32 functions of one argument; `pow` has its own."""

_F64: dict[str, Expansion] = {**math_f64.FUNCTIONS, **math_f64_angles.FUNCTIONS}

_ROUNDINGS = frozenset(("floor", "ceil", "trunc", "round"))


def _expanded(call: ir.Call, let: Bindings) -> Expr:
    name, args = call.name, call.args
    x = args[0]
    dtype = x.dtype
    # these need no expansion, or are themselves parts of expansions
    if name in ("bitcast", "prefetch", "scalef", "check_index"):
        return call
    if name == "threefry":
        c0, c1, k0, k1 = args
        return _threefry_word(c0, c1, k0, k1, let)
    if dtype.is_int or dtype.is_bool:
        return _expanded_integer(call, let)
    if name == "isnan":
        x = let("x", x)
        return ir.Compare("ne", x, x)
    if dtype is f16 or dtype is bf16:
        wide = tuple(ir.Cast(a, f32) for a in args)
        inner = ir.Call(name, wide, bool_ if call.type is bool_ else f32)
        result = expand(inner, let.scales)
        return result if call.type is bool_ else ir.Cast(result, dtype)
    if name == "isinf":
        return equal(intrinsic("abs", x), INF)
    if name == "rsqrt":
        return math_f32.rsqrt(x, let)
    if name == "pow":
        y = args[1].value if isinstance(args[1], ir.Broadcast) else args[1]
        simple = _constant_power(x, y.value, let) if isinstance(y, ir.Const) else None
        if simple is not None:
            return simple
        if dtype is f64 and let.alone:
            return math_f64.power(x, args[1], let)
        return math_wide.power(x, args[1], let) if dtype is f32 else call
    functions = _F64 if dtype is f64 and let.alone else _F32 if dtype is f32 else {}
    if name in functions:
        return functions[name](let("x", x), let)
    return call  # an instruction or, for f64, the C library computes it


def _expanded_integer(call: ir.Call, let: Bindings) -> Expr:
    name, x = call.name, call.args[0]
    if name == "abs":
        x = let("x", x)
        return x if x.dtype.kind != "int" else pick(less(x, 0), -x, x, x)
    if name in _ROUNDINGS:
        return x
    if name in ("isnan", "isinf"):
        return ir.Broadcast(const(False), x.lanes) if x.lanes > 1 else const(False)
    if name == "pow":
        y = call.args[1].value if isinstance(call.args[1], ir.Broadcast) else call.args[1]
        simple = _constant_power(x, y.value, let) if isinstance(y, ir.Const) else None
        return simple if simple is not None else _integer_power(x, call.args[1], let)
    if name == "fma":
        return x * call.args[1] + call.args[2]
    return call  # the rest is for floats only; the verifier has refused other types


def expand(call: ir.Call, scales: bool = False, alone: bool = False) -> Expr:
    """The arithmetic that computes `call`, with the errors stated above; `call` itself if it is not
    expanded.

    Expand the arguments first: this function does not.

    scales: whether the machine has `scalef`.
    alone: whether the machine has no C library.
    """
    let = Bindings(scales, alone)
    result = _expanded(call, let)
    return result if result is call else let.around(result)


def has_expansion(call: ir.Call) -> bool:
    """Whether `call` is an f32 function of one argument with an expansion.  The expansion may then
    be a separate function.
    """
    return call.name in _F32 and call.args[0].dtype is f32


def expand_math(func: Func, target: Target) -> Func:
    """`func` with every call expanded for which `target` has no instruction.  This is the last pass
    before code generation.

    If a kernel calls a function more than `MOST_EXPANDED` times, these calls stay, and code
    generation defines the function once, because LLVM's time grows faster than the length of a
    block.  Returns the same object if there is nothing to expand.
    """
    calls: Counter[tuple[str, int]] = Counter()
    alone = target.device is not None
    expanded = _with_expansions(func, scales(target), calls, alone)
    if max(calls.values(), default=0) <= MOST_EXPANDED:
        return expanded
    # The first pass counted all calls, so the second one knows from the start which functions are
    # called too often to be expanded.
    return _with_expansions(func, scales(target), calls, alone)


def expand_functions(func: Func) -> Func:
    """`func`, in any stage, with every call expanded as for a machine without `scalef`, so that all
    machines and the interpreter compute the same bits.
    """
    return _with_expansions(func, False)


def _with_expansions(
    func: Func,
    scaling: bool,
    calls: Counter[tuple[str, int]] | None = None,
    alone: bool = False,
) -> Func:
    """`func` with its calls expanded.

    calls: number of calls so far, by name and lanes.  Each call in `func` adds 1.  The call stays
        if the number is then above `MOST_EXPANDED`.  None: all calls are expanded.
    """
    done: dict[Expr, Expr] = {}

    def rewritten(node: Expr) -> Expr:
        result = ir.rebuilt(node, done)
        if not isinstance(result, ir.Call):
            return result
        if calls is not None and has_expansion(result):
            function = result.name, result.lanes
            calls[function] += 1
            if calls[function] > MOST_EXPANDED:
                return result
        return expand(result, scaling, alone)

    def rewrite(root: Expr) -> Expr:
        for node in ir.post_order(root, done):
            done[node] = rewritten(node)
        return done[root]

    body = map_stmt(func.body, f_expr=rewrite)
    return func.with_body(body)


def _threefry_word(c0: Expr, c1: Expr, k0: Expr, k1: Expr, let: Bindings) -> Expr:
    """The first word of the random block for a counter and a key."""

    def add(a: Expr, b: Expr | int) -> Expr:
        return let("t", a + (b if isinstance(b, Expr) else literal(b, a)))

    def rotated(a: Expr, b: Expr, n: int) -> Expr:
        turned = Binary("or", shift_left(a, n), shift_right(a, 32 - n))
        return let("r", Binary("xor", turned, b))

    third = Binary("xor", Binary("xor", k0, k1), literal(PARITY, k0))
    word, _ = threefry((c0, c1), (k0, k1, let("k", third)), add, rotated)
    return word
