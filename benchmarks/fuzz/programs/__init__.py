"""Random PyTorch programs, and what becomes of them by every road into the compiler."""
