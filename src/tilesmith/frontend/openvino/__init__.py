"""The frontend for OpenVINO's intermediate representation: an `.xml` with its `.bin`."""

from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.openvino.model import recognises

OPENVINO = Frontend(
    "an OpenVINO model",
    ("a path to an OpenVINO model (.xml)", "the paths of its .xml and .bin as a pair"),
    recognises,
    "tilesmith.frontend.openvino.operators",
)

__all__ = ["OPENVINO"]
