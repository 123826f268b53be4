"""The agent: it runs and measures on its own machine what callers elsewhere compiled for it.

docs/devices.md describes the protocol.  `runtime.remote` has the frames and the callers' side.
"""
