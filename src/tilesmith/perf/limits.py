"""Limits in bytes on operations of the compiler with a tensor, on any machine."""

FOLDED_BYTES = 64 << 10
"""Results of constants up to this size always become constants."""

SHARED_BYTES = 4 << 10
"""Constants up to this size are compared with others, and equal ones shared."""

COPIED_BYTES = 64 << 20
"""Largest operand that a kernel copies into another order: the copy takes as much memory again."""

LOOSE_BYTES = 16 << 20
"""Upper bound on memory of a data-dependent size up to which the bound itself is allocated: pages
that are never written cost nothing.
"""
