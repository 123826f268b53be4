"""Symbols of the functions in a program's native code.  Code generation defines these functions,
and the runtime calls them.

This module imports nothing, so that a process that only runs programs imports no code generation.
"""

ENTRY = "tilesmith_main"
"""The symbol of the main function (see `codegen.lower_main`)."""

SIZES = "tilesmith_sizes"
"""The symbol of the function that computes the sizes of a run (see `codegen.sizes`)."""

ARENA, SCRATCH, OUTPUTS = 0, 1, 2
"""Positions in the computed sizes: bytes of the arena, scratch bytes per thread, the first output's
first extent.
"""
