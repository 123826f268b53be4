"""StableHLO's operators, for every format that holds them."""
