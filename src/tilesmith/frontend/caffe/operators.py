"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.caffe import detection, layers  # noqa: F401  (registers operators)
from tilesmith.frontend.caffe.layers import LAYERS
from tilesmith.frontend.caffe.net import read
from tilesmith.frontend.common.networks import network_reader

READER = network_reader(read, LAYERS)

__all__ = ["READER"]
