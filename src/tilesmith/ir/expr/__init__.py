"""Scalar (and short-vector) expressions, shared by every level of the compiler.

Expressions are immutable and *interned*: building the same node twice gives the same object.  So
equality is `is`, hashing is by identity, and analyses are cached by node.  A `Var` is the
exception: two Vars are always distinct, and a name is only a label.  An expression has a `dtype`
and a number of `lanes` (1 for a scalar).

Python's operators make nodes, `==` and `!=` too, and a node has no truth value.  `same` compares
sequences of nodes, `types.same_dim` and `types.same_shape` extents.

Semantics:
- Integers wrap around in two's complement at their width.  Index arithmetic is `i64`.
- `floordiv`/`floormod` round toward minus infinity, `truncdiv`/`truncmod` toward zero.  Integer
  division by zero is undefined (the reference gives 0).  `div` is only for floats.
- Floats follow IEEE 754 in round-to-nearest, without traps.  A product that feeds a sum may be
  contracted into a fused multiply-add.  Nothing else is reassociated outside a declared reduction.
- `min`/`max` on floats return NaN if an operand is NaN, and of two zeros either one (the
  interpreter returns the first).  Comparisons with NaN are false, except `ne`, which is true.
- With strict accuracy, machine code makes each choice above as the interpreter does.  So all bits
  are equal, except for the payload of a NaN.
- `Select` evaluates only the chosen branch: a load in the other branch does not happen (for
  vectors, this holds per lane).
- A `Load` with a `mask` reads only where the mask is true and gives 0 elsewhere.
- `and_`/`or_` take bools and may evaluate both sides.  `Binary` `and`/`or`/`xor` are bitwise
  (logical on bools).
- `Cast` from float to integer truncates toward zero; `ir.storage.truncated` defines the result
  outside the range.  `Cast` to bool is `!= 0`.
- Shifts by less than 0 or by the width or more give the result of an infinitely wide shift.
"""

from tilesmith.ir.operations import BINARY_OPS, COMPARE_OPS, UNARY_OPS

from .arithmetic import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    ExprLike,
    Operators,
    Unary,
    Var,
    absolute,
    as_expr,
    binary,
    cast,
    compare,
    const,
    power,
    type_text,
    unary,
)
from .nodes import (
    BufferLike,
    Let,
    Load,
    Ramp,
    Select,
    TensorCall,
    VectorReduce,
    all_of,
    any_of,
    maximum,
    minimum,
    select,
)
from .walk import (
    count_uses,
    distinct,
    free_vars,
    index_of,
    post_order,
    reached,
    reads_memory,
    rebuilt,
    same,
    same_labels,
    substitute,
    symbols,
    vars_of,
)

__all__ = [
    "BINARY_OPS",
    "COMPARE_OPS",
    "UNARY_OPS",
    "Binary",
    "Broadcast",
    "BufferLike",
    "Call",
    "Cast",
    "Compare",
    "Const",
    "Expr",
    "ExprLike",
    "Let",
    "Load",
    "Operators",
    "Ramp",
    "Select",
    "TensorCall",
    "Unary",
    "Var",
    "VectorReduce",
    "absolute",
    "all_of",
    "any_of",
    "as_expr",
    "binary",
    "cast",
    "compare",
    "const",
    "count_uses",
    "distinct",
    "free_vars",
    "index_of",
    "maximum",
    "minimum",
    "post_order",
    "power",
    "reached",
    "reads_memory",
    "rebuilt",
    "same",
    "same_labels",
    "select",
    "substitute",
    "symbols",
    "type_text",
    "unary",
    "vars_of",
]
