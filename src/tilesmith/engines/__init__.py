"""Interfaces through which PyTorch, ONNX Runtime and other engines call compiled code."""
