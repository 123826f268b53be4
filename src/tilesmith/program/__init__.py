"""The fourth IR: the main program, a tree of kernel calls, copies, branches and loops.

`nodes` declares it, `text` and `parse` are its canonical text, `json_values` its form in files.
"""
