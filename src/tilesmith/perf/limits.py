"""Sizes in bytes up to which the compiler does something with a tensor, whatever the machine."""

FOLDED_BYTES = 64 << 10
"""Results of constants up to this size always become constants."""

SHARED_BYTES = 4 << 10
"""Constants up to this size are compared with others, and equal ones shared."""

COPIED_BYTES = 64 << 20
"""Largest operand that a kernel copies into another order: the copy takes as much memory again."""

LOOSE_BYTES = 16 << 20
"""Memory whose size data decide has the size of its bound up to this, however loose the bound is:
pages that nothing writes to cost nothing."""
