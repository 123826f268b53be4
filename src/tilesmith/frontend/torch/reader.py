"""The reader of modules and exported programs of PyTorch."""

from tilesmith.frontend.common.source import Reader
from tilesmith.frontend.torch.exported import load, nodes

READER = Reader(load, nodes)
