"""The frontend for Caffe's nets: a `.prototxt` with its `.caffemodel`.  V1 layers are read, too."""

from tilesmith.frontend.caffe.net import recognises
from tilesmith.frontend.common.source import Frontend

CAFFE = Frontend(
    "a Caffe net",
    ("a path to a Caffe net (.prototxt or .caffemodel)", "both paths as a pair"),
    recognises,
    "tilesmith.frontend.caffe.operators",
)

__all__ = ["CAFFE"]
