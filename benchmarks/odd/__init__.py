"""Ten operators that libraries don't tune for, each as a tensor expression, in NumPy, PyTorch and
ONNX.
"""

from .convolutions import (
    Convolution3d,
    Deformable,
    DilatedDepthwise,
    Octave,
    ShuffledGroups,
)
from .normalization import LocalResponse
from .operator import Operator, Way
from .products import Capsules, Correlation, Nearest, Triangular

OPERATORS: tuple[type[Operator], ...] = (
    Deformable,
    Octave,
    DilatedDepthwise,
    ShuffledGroups,
    Capsules,
    Convolution3d,
    Correlation,
    LocalResponse,
    Nearest,
    Triangular,
)

__all__ = ["OPERATORS", "Operator", "Way"]
