"""The frontend for Core ML: `.mlpackage` folders and `.mlmodel` files.

The files are read without coremltools, so that models for Apple's systems run elsewhere.
"""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.coreml.package import recognises

COREML = Frontend(
    "a Core ML model",
    ("a path to a Core ML model or package", "its bytes"),
    recognises,
    "tilesmith.frontend.coreml.operators",
)

__all__ = ["COREML"]
