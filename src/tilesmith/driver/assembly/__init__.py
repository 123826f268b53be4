"""From kernels to a program: sizes, memory, constants and the steps of the main function."""
