"""Operators of domain ai.onnx.ml: what scikit-learn's models and their preprocessing become."""
