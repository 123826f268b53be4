"""Names of other compilers over Tilesmith's own: scripts written for them run with one import
changed.  Nothing outside this package imports it.
"""
