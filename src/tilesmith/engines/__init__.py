"""Faces for other engines: what PyTorch, ONNX Runtime and any other engine call."""
