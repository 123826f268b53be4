"""The function for the sizes of a run in C (see `codegen.sizes`)."""

from __future__ import annotations

from tilesmith.codegen.functions import SIZES
from tilesmith.codegen.sizes import SizeProgram
from tilesmith.ir.expr import Binary, Const, Expr, Unary, as_expr, post_order
from tilesmith.support.errors import InternalError

_HELPERS = """\
static int64_t size_add(int64_t a, int64_t b, int *bad) {
    *bad |= b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b;
    return *bad ? 0 : a + b;
}

static int64_t size_mul(int64_t a, int64_t b, int *bad) {
    if (a != 0 && b != 0)
        *bad |= a == INT64_MIN || b == INT64_MIN || (a < 0 ? -a : a) > INT64_MAX / (b < 0 ? -b : b);
    return *bad ? 0 : a * b;
}

static int64_t size_sub(int64_t a, int64_t b, int *bad) {
    *bad |= b == INT64_MIN;
    return *bad ? 0 : size_add(a, -b, bad);
}

static int64_t size_floordiv(int64_t a, int64_t b, int *bad) {
    *bad |= b == 0 || (a == INT64_MIN && b == -1);
    if (*bad)
        return 0;
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t size_floormod(int64_t a, int64_t b, int *bad) {
    int64_t q = size_floordiv(a, b, bad);
    return *bad ? 0 : a - q * b;
}

static int64_t size_truncdiv(int64_t a, int64_t b, int *bad) {
    *bad |= b == 0 || (a == INT64_MIN && b == -1);
    return *bad ? 0 : a / b;
}

static int64_t size_truncmod(int64_t a, int64_t b, int *bad) {
    *bad |= b == 0 || (a == INT64_MIN && b == -1);
    return *bad ? 0 : a % b;
}

static int64_t size_min(int64_t a, int64_t b, int *bad) {
    (void)bad;
    return a < b ? a : b;
}

static int64_t size_max(int64_t a, int64_t b, int *bad) {
    (void)bad;
    return a > b ? a : b;
}
"""

_OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")


def emit_sizes(program: SizeProgram, symbol: str = SIZES) -> str:
    """C text of the function."""
    known: dict[Expr, str] = {}
    lines: list[str] = []
    for i, var in enumerate(program.symbols):
        known[var] = f"extents[{i}]"
        if program.checks and var.sizes is not None:
            lines.append(
                f"    outside |= extents[{i}] < {var.sizes.low} || extents[{i}] > {var.sizes.high};"
            )

    def value(e: Expr) -> str:
        for node in post_order(e, known):
            known[node] = _text(node, known, lines)
        return known[e]

    for extent in program.extents:
        found = value(as_expr(extent))  # which may add lines
        lines.append(f"    outside |= {found} < 0;")
    lines += [
        "    if (bad || outside)",
        "        return bad ? TILESMITH_OVERFLOW : TILESMITH_SIZES;",
    ]
    for i, size in program.values.items():
        found = value(as_expr(size))
        lines.append(f"    values[{i}] = {found};")
    return "\n".join(
        [
            '#include "tilesmith.h"',
            "",
            _HELPERS,
            f"int32_t {symbol}(const int64_t *extents, int64_t *values) {{",
            "    int bad = 0, outside = 0;",
            *lines,
            "    return bad ? TILESMITH_OVERFLOW : TILESMITH_OK;",
            "}",
            "",
        ]
    )


def _text(node: Expr, known: dict[Expr, str], lines: list[str]) -> str:
    """A C expression for a node whose operands are known."""
    if isinstance(node, Const):
        return f"INT64_C({int(node.value)})"
    name = f"t{len(known)}"
    if isinstance(node, Unary) and node.op == "neg":
        lines.append(f"    int64_t {name} = size_sub(0, {known[node.a]}, &bad);")
        return name
    if isinstance(node, Binary) and node.op in _OPERATIONS:
        call = f"size_{node.op}({known[node.a]}, {known[node.b]}, &bad)"
        lines.append(f"    int64_t {name} = {call};")
        return name
    raise InternalError(f"the extent {node} is no arithmetic of symbols")
