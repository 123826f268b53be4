"""ONNX Runtime: libraries of custom operators, and models whose parts run as such."""
