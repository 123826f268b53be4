"""The frontend for Caffe's nets: a `.prototxt` with its `.caffemodel`, in new and in V1 layers."""

from tilesmith.frontend.caffe.net import recognises
from tilesmith.frontend.common.source import Frontend

CAFFE = Frontend(
    "a Caffe net",
    ("a path to a Caffe net (.prototxt or .caffemodel)", "both paths as a pair"),
    recognises,
    "tilesmith.frontend.caffe.operators",
)

__all__ = ["CAFFE"]
