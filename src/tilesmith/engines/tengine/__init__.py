"""Plugins for Tengine: compiled layers of its models."""
