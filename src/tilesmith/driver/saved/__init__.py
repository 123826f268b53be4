"""Compiled programs in the cache on disk, and the identity of models by which they are found."""
