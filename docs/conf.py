"""Sphinx configuration: `sphinx-build -W docs build/docs`."""

import importlib.metadata

project = "Tilesmith"
copyright = "the Tilesmith authors"
version = release = importlib.metadata.version("tilesmith")

extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Tilesmith {version}"
exclude_patterns = ["_build"]
