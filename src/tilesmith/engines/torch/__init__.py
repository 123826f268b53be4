"""PyTorch: the backend of `torch.compile`, and operators of users."""
