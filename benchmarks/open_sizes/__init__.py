"""Every operator with all of its dimensions open, at two sizes each: `python -m
benchmarks.open_sizes`.
"""
