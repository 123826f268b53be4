"""The functions of a program's native code, which code generation defines and the runtime calls.

This module imports nothing, so that a process that only runs programs imports no code generation.
"""

ENTRY = "tilesmith_main"
"""The symbol of the main function (see `codegen.lower_main`)."""

SIZES = "tilesmith_sizes"
"""The symbol of the function that computes the sizes of a run (see `codegen.sizes`)."""

ARENA, SCRATCH, OUTPUTS = 0, 1, 2
"""Positions of sizes: bytes of the arena, of scratch memory per thread, first output's extents."""
