"""The modules that register operators, and the reader that uses them."""

from tilesmith.frontend.caffe import detection, layers
from tilesmith.frontend.caffe.layers import LAYERS
from tilesmith.frontend.caffe.net import read
from tilesmith.frontend.common.networks import network_reader

FAMILIES = (layers, detection)
"""The modules that register layers."""

READER = network_reader(read, LAYERS)

__all__ = ["FAMILIES", "READER"]
