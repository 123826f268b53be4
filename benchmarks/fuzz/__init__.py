"""Random graphs and damaged model files, and what becomes of them: `python -m benchmarks.fuzz`."""
