"""The interface of an import function to one TensorFlow node: its inputs as graph values, its
attributes, and the methods of `NodeContext`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.options import OptionNode
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import Resource
from tilesmith.frontend.tensorflow.model import Node
from tilesmith.frontend.tensorflow.tensors import element_type
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import DType, i32, i64
from tilesmith.support.errors import ModelError

_TYPES: dict[str, tuple[tuple[str, DType | None], ...]] = {
    "ArgMax": (("output_type", i64),),
    "ArgMin": (("output_type", i64),),
    "Bincount": (("T", None),),
    "Bitcast": (("type", None),),
    "Bucketize": (("", i32),),
    "Cast": (("DstT", None),),
    "DenseBincount": (("T", None),),
    "Shape": (("out_type", i32),),
    "ShapeN": (("out_type", i32),),
    "Size": (("out_type", i32),),
    "TopKV2": (("T", None), ("index_type", i32)),
    "Unique": (("T", None), ("out_idx", i32)),
    "UniqueWithCounts": (("T", None), ("out_idx", i32), ("out_idx", i32)),
    "Where": (("", i64),),
}
"""For each output of an operator, the attribute with its element type, and the type if that
attribute is left out.  The outputs of other operators have the type in `dtype`, or else in `T`.
"""

_COUNTS = {"Unpack": "num", "Split": "num_split", "SplitV": "num_split", "ShapeN": "N"}
"""Operators with several outputs, and the attribute with the number of outputs."""

_DEFAULTS: dict[str, Any] = {"OneHot.axis": -1}
"""Defaults of options that are not 0."""


@dataclass(slots=True, eq=False)
class TfNode(OptionNode):
    """One node during import.

    node: the node as the file states it.
    read: the value of a variable.
    write: sets the value of a variable.
    """

    node: Node
    read: Callable[[Resource], Value]
    write: Callable[[Resource, Value], None]

    @property
    def kind(self) -> str:
        return self.node.op

    @property
    def output_count(self) -> int:
        return self.int(_COUNTS[self.kind], 1) if self.kind in _COUNTS else 1

    def output_dtype(self, index: int = 0) -> DType:
        types = _TYPES.get(self.kind)
        name, default = (
            types[index] if types is not None and index < len(types) else ("dtype", None)
        )
        if name == "dtype" and name not in self.node.attributes:
            name = "T"
        return self.dtype(name, default)

    def resource(self, index: int = 0) -> Resource:
        """Input number `index`, a handle.  Raises ModelError if it is no handle."""
        slot = self.slot(index)
        if not isinstance(slot, Resource):
            raise ModelError(f"expected a handle as input number {index + 1}, found another value")
        return slot

    # Attributes

    def stated(self, name: str, field: str) -> Any:
        """An attribute; None if it is left out.  Raises ModelError if it is of another kind.

        field: the field of AttrValue that holds it.
        """
        attribute: Message | None = self.node.attributes.get(name)
        if attribute is None:
            return None
        if not attribute.has(field):
            raise ModelError(f"attribute {name!r}: expected a value of kind {field!r}")
        return getattr(attribute, field)

    def int(self, name: str, default: int = 0) -> int:
        """An attribute that is an integer."""
        number = self.stated(name, "i")
        return default if number is None else number

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is true or false."""
        value = self.stated(name, "b")
        return default if value is None else value

    def float(self, name: str, default: float = 0.0) -> float:
        """An attribute that is a number."""
        value = self.stated(name, "f")
        return default if value is None else value

    def text(self, name: str, default: str = "", among: tuple[str, ...] = ()) -> str:
        """An attribute that is text; one of `among`, unless that is empty."""
        stated = self.stated(name, "s")
        text = default if stated is None else bytes(stated).decode(errors="replace")
        if among and text not in among:
            raise ModelError(
                f"attribute {name!r}: expected one of {', '.join(among)}, found {text!r}"
            )
        return text

    def dtype(self, name: str, default: DType | None = None) -> DType:
        """An attribute that is an element type."""
        number = self.stated(name, "type")
        if number is not None:
            return element_type(number, f"attribute {name!r}")
        return default if default is not None else self.bad(f"expected attribute {name!r}")

    def function(self, name: str) -> str:
        """An attribute that names a function."""
        return self.stated(name, "func").name if name in self.node.attributes else ""

    def options(self, name: str) -> tuple[int, ...]:
        stated = self.stated(name, "list")
        return () if stated is None else tuple(stated.i.tolist())

    def option(self, name: str) -> Any:
        attribute = self.node.attributes.get(name)
        if attribute is None:
            return _DEFAULTS.get(f"{self.kind}.{name}", 0)
        kind = attribute.which("b", "i", "f", "s", "list")
        value: Any = getattr(attribute, kind) if kind else 0
        return np.array(value.f, np.float32) if kind == "list" else value

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        return self.text(name, among[0], among)
