"""The main program, the fourth IR: a tree of kernel calls, copies, branches and loops.

`nodes` declares the IR, `text` and `parse` write and read its canonical text, `json_values` its
form in files.
"""
