"""The frontend for Caffe's nets: a `.prototxt` with its `.caffemodel`, in new and in V1 layers."""

from tilesmith.frontend.caffe import detection, layers
from tilesmith.frontend.caffe.layers import LAYERS
from tilesmith.frontend.caffe.net import read, recognises
from tilesmith.frontend.common.networks import network_frontend

CAFFE = network_frontend(
    "a Caffe net",
    ("a path to a Caffe net (.prototxt or .caffemodel)", "both paths as a pair"),
    recognises,
    read,
    LAYERS,
)

FAMILIES = (layers, detection)
"""The modules that register layers."""

__all__ = ["CAFFE", "FAMILIES"]
