"""Programs as C libraries, which need no Python where they run."""
