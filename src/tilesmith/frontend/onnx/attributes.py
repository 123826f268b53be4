"""A node's attributes.

They are read by name and type.  Reads are recorded, so that no attribute is silently ignored.
"""

from __future__ import annotations

from typing import Any

from tilesmith.frontend.onnx.proto import text
from tilesmith.support.errors import ModelError

FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8
GRAPHS, SPARSE_TENSOR = 10, 11

_TYPES = {
    1: ("float", "f"), 2: ("int", "i"), 3: ("string", "s"), 4: ("tensor", "t"), 5: ("graph", "g"),
    6: ("floats", "floats"), 7: ("ints", "ints"), 8: ("strings", "strings"),
    9: ("tensors", "tensors"), 10: ("graphs", "graphs"), 11: ("sparse_tensor", "sparse_tensor"),
    12: ("sparse_tensors", "sparse_tensors"), 13: ("type_proto", "tp"),
    14: ("type_protos", "type_protos"),
}  # fmt: skip
"""AttributeProto.AttributeType -> its name, and the field that holds the value."""

_SINGULAR = ("f", "i", "s", "t", "g", "sparse_tensor", "tp")


def attribute_type(proto: Any) -> int:
    """The type of an AttributeProto.

    Files of the first ONNX versions omit the type; then it follows from the field that has a value.
    """
    if proto.type:
        return int(proto.type)
    for code, (_, field) in _TYPES.items():
        filled = proto.HasField(field) if field in _SINGULAR else len(getattr(proto, field))
        if filled:
            return code
    return INTS  # no field has a value, so the attribute is an empty list


class Attributes:
    """The attributes of one node.  References to attributes of a function are already resolved."""

    def __init__(self, protos: dict[str, Any]) -> None:
        self._protos = protos
        self._read: set[str] = set()

    @staticmethod
    def of(node: Any, outer: Attributes | None = None) -> Attributes:
        """The attributes of a NodeProto.

        `outer`: the attributes of the call, for a node in a function's body.
        """
        protos: dict[str, Any] = {}
        for a in node.attribute:
            name = text(a.name, "an attribute's name")
            if not name or name in protos:
                raise ModelError(f"attribute {name!r} is given twice or has no name")
            if a.type not in _TYPES and a.type != 0:
                raise ModelError(
                    f"attribute {name!r}: expected an attribute type 1 to 14, found {a.type}"
                )
            if a.ref_attr_name:
                proto = (
                    outer.find(text(a.ref_attr_name, "an attribute reference"))
                    if outer is not None
                    else None
                )
                if outer is None:
                    raise ModelError(
                        f"attribute {name!r} refers to a function's attribute, outside of a "
                        "function"
                    )
                if proto is not None:
                    protos[name] = proto
                continue
            protos[name] = a
        return Attributes(protos)

    def find(self, name: str) -> Any | None:
        """The AttributeProto `name`, without a check of its type."""
        self._read.add(name)
        return self._protos.get(name)

    def get(self, name: str, *types: int) -> Any | None:
        """The value of attribute `name`; None when it is not given.

        Raises ModelError when the attribute's type is none of `types`.
        """
        a = self.find(name)
        if a is None:
            return None
        kind = attribute_type(a)
        if kind not in types:
            expected = " or ".join(_TYPES[t][0] for t in types)
            raise ModelError(
                f"attribute {name!r}: expected {expected}, found {_TYPES.get(kind, (kind,))[0]}"
            )
        return getattr(a, _TYPES[kind][1])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._protos)

    @property
    def unread(self) -> list[str]:
        """Attributes that were not read.  Their meaning would be lost."""
        return sorted(set(self._protos) - self._read)
