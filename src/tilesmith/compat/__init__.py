"""Interfaces of other compilers, implemented by Tilesmith: scripts run with one import changed.

Nothing outside this package imports it.
"""
