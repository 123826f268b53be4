"""The PyTorch frontend: exported programs of `torch.export`.

Importing this package does not import `torch`: who hands in an object of PyTorch has imported it.
"""

from tilesmith.frontend import aten
from tilesmith.frontend.common.source import Frontend
from tilesmith.frontend.torch.exported import load, nodes, recognises

TORCH = Frontend(
    "",
    ("a torch.nn.Module with example inputs", "a torch.export.ExportedProgram"),
    recognises,
    load,
    nodes,
)

FAMILIES = aten.FAMILIES

__all__ = ["FAMILIES", "TORCH"]
