"""Predicted costs of work on a machine.

`count` and `footprint` count instructions and bytes in a kernel's final loops.  `kernel_work` turns
them into a `Work`, and `cost` turns a `Work` into seconds on a `Machine`.  `work`, `info` and
`machine` hold plain data of saved executables, so they import no part of the compiler.
"""
