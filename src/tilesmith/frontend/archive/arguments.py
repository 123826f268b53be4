"""Conversion of the arguments of calls in an archive to our types."""

from __future__ import annotations

from typing import Any

from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.archive.weights import dtype_of
from tilesmith.frontend.aten.program import Ref

_TEXTS = {
    "as_memory_format": ["", "contiguous_format", "channels_last", "channels_last_3d",
                         "preserve_format"],
    "as_layout": ["", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc",
                  "_mkldnn", "strided"],
}  # fmt: skip
"""PyTorch's names of memory formats and layouts, by their numbers in the schema."""


def argument(given: Json) -> Any:
    """An argument in our types, as `frontend.torch.fx.argument` returns it."""
    form, content = given.one()
    match form:
        case "as_none":
            return None
        case "as_tensor" | "as_graph" | "as_custom_obj":
            return Ref(content["name"].text())
        case "as_int":
            return content.integer()
        case "as_float":
            return content.number()
        case "as_bool":
            return content.boolean()
        case "as_string" | "as_operator":
            return content.text()
        case "as_ints":
            return [v.integer() for v in content.list()]
        case "as_floats":
            return [v.number() for v in content.list()]
        case "as_bools":
            return [v.boolean() for v in content.list()]
        case "as_strings":
            return [v.text() for v in content.list()]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
            return argument(content)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools" | "as_optional_tensors":
            return [argument(v) for v in content.list()]
        case "as_name":
            return Ref(content.text())
        case "as_tensors":
            return [Ref(v["name"].text()) for v in content.list()]
        case "as_nested_tensors":
            return [[Ref(v["name"].text()) for v in row.list()] for row in content.list()]
        case "as_int_lists":
            return [[v.integer() for v in row.list()] for row in content.list()]
        case "as_float_lists":
            return [[v.number() for v in row.list()] for row in content.list()]
        case "as_scalar_type":
            return dtype_of(content)
        case "as_memory_format" | "as_layout":
            names = _TEXTS[form]
            return f"torch.{names[content.integer(0, len(names) - 1)]}"
        case "as_device":
            return content["type"].text()
        case "as_complex":
            return complex(content["real"].number(), content["imag"].number())
    return given.bad("an argument of the schema")
