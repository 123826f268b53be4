"""Predicted costs of work on a machine.

`count` and `footprint` count instructions and bytes in a kernel's final loops.  `kernel_work` turns
them into a `Work`, and `cost` turns a `Work` into seconds on a `Machine`.  `work`, `info` and
`machine` are plain data that saved executables carry: they import none of the compiler.
"""
