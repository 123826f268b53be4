"""Interfaces to other engines, which PyTorch, ONNX Runtime and other engines call."""
