"""Delegates for the interpreters of TensorFlow Lite and LiteRT."""
