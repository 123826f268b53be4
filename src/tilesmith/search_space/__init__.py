"""Possible choices, and those that are known to be good.

`groups`, `space`, `constraints` and `templates` define the schedules that a kernel may have.
`records`, `lookup`, `family` and `workload` look up those that were measured to be fast, for the
kernel or for a relative.  Measuring is the job of the room `tuning`.
"""
