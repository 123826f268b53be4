"""Operators of domain ai.onnx.ml, the form of scikit-learn's models."""
