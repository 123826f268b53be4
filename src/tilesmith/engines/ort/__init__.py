"""ONNX Runtime: libraries of custom operators, and models with parts that run as custom
operators.
"""
