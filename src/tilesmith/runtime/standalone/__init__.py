"""Programs as C libraries, which run without Python."""
