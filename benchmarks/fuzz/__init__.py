"""Random graphs, programs and schedules, damaged files, and what becomes of them."""
