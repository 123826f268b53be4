"""Small models of every format, written by hand for tests and for damaging."""
