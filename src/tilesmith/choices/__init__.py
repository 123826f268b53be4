"""What may be chosen, and what is known to be good.

`groups`, `space`, `constraints` and `templates` say which schedules a kernel may have.  `records`,
`lookup`, `family` and `workload` say which of them were measured to be fast, for the kernel or for
a relative.  Nothing here measures: that is the room `tuning`.
"""
