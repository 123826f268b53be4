"""Facts about an archive of PyTorch."""

from __future__ import annotations

from collections import Counter

from tilesmith.frontend.aten.exported import Exported
from tilesmith.frontend.aten.registry import OPERATORS
from tilesmith.frontend.common.inspection import Inspection


def inspected(program: Exported) -> Inspection:
    """Facts about a program of ATen operators."""
    operators = Counter(c.target for c in program.calls())
    return Inspection(
        "PyTorch archive of torch.export",
        "",
        {
            i.name: f"{i.dtype}[{','.join(map(str, i.dims))}]"
            for i in program.inputs
            if i.weight is None and i.kind == "tensor"
        },
        dict.fromkeys(program.structure.names(), "tensor"),
        operators,
        frozenset(name for name in operators if OPERATORS.find("", name) is None),
        sum(w.nbytes for w in program.weights.values()),
    )
