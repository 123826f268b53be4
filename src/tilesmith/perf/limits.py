"""Size limits in bytes on what the compiler does with a tensor, on any machine."""

FOLDED_BYTES = 64 << 10
"""Results of constants up to this size always become constants."""

SHARED_BYTES = 4 << 10
"""Constants up to this size are compared with each other, and equal constants are shared."""

COPIED_BYTES = 64 << 20
"""Largest operand that a kernel copies into another order: the copy takes as much memory again."""

LOOSE_BYTES = 16 << 20
"""Memory for a value of data-dependent size is allocated for the size's upper bound, if this bound
is at most `LOOSE_BYTES`: pages that are never written cost nothing.
"""
