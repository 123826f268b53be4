"""What work costs on a machine.

`count` and `footprint` read instructions and bytes off a kernel's final loops, `kernel_work` makes
a `Work` of them, and `cost` turns a `Work` into seconds on a `Machine`.  `work`, `info` and
`machine` are plain data that saved executables carry along: they import none of the compiler.
"""
