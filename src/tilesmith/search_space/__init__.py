"""Possible choices, and those that are known to be good.

`groups`, `space`, `constraints` and `templates` define the schedules that a kernel may have.
`records`, `lookup`, `family` and `workload` look up schedules that were measured to be fast, for
the kernel itself or for one of its family.  The package `tuning` does the measuring.
"""
