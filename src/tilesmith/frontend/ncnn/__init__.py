"""The frontend for ncnn's models: a `.param` with its `.bin`."""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.ncnn.model import recognises

NCNN = Frontend(
    "an ncnn model",
    ("a path to an ncnn model (.param)", "the paths of its .param and .bin as a pair"),
    recognises,
    "tilesmith.frontend.ncnn.operators",
)

__all__ = ["NCNN"]
