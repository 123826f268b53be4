"""PyTorch: the backend of `torch.compile`, and operators that users define."""
