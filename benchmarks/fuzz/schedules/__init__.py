"""Random schedules of random computations, and what becomes of them."""
