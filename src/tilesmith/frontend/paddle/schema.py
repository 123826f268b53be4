"""The messages of Paddle's `.pdmodel` files that a reader needs, as framework.proto has them."""

from __future__ import annotations

from tilesmith.frontend.common.protobuf import Schema
from tilesmith.ir import dtypes
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import UnsupportedError

_TYPES = (
    *("BOOL", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "LOD_TENSOR", "SELECTED_ROWS"),
    *("FEED_MINIBATCH", "FETCH_LIST", "STEP_SCOPES", "LOD_RANK_TABLE", "LOD_TENSOR_ARRAY"),
    *("PLACE_LIST", "READER", "", "RAW", "TUPLE", "SIZE_T", "UINT8", "INT8", "BF16"),
)
_ATTRIBUTES = (
    *("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS", "BOOLEAN", "BOOLEANS", "BLOCK"),
    *("LONG", "BLOCKS", "LONGS", "FLOAT64S", "VAR", "VARS", "FLOAT64", "SCALAR", "SCALARS"),
)

SCHEMA = Schema(
    {
        "ProgramDesc": "1:blocks:[BlockDesc] 4:version:Version",
        "Version": "1:version:i64",
        "BlockDesc": "1:idx:i32 2:parent_idx:i32 3:vars:[VarDesc] 4:ops:[OpDesc]",
        "VarDesc": "1:name:string 2:type:VarType 3:persistable:bool",
        "VarType": "1:type:Kind 3:lod_tensor:LoDTensorDesc",
        "LoDTensorDesc": "1:tensor:TensorDesc",
        "TensorDesc": "1:data_type:Kind 2:dims:[i64]",
        "OpDesc": "3:type:string 1:inputs:[Var] 2:outputs:[Var] 4:attrs:[Attr]",
        "Var": "1:parameter:string 2:arguments:[string]",
        "Attr": (
            "1:name:string 2:type:AttrType 3:i:i32 4:f:f32 5:s:string 6:ints:[i32] 7:floats:[f32] "
            "8:strings:[string] 10:b:bool 11:bools:[bool] 12:block_idx:i32 13:l:i64 15:longs:[i64] "
            "16:float64s:[f64] 17:var_name:string 18:vars_name:[string] 19:float64:f64 "
            "20:scalar:Scalar 21:scalars:[Scalar]"
        ),
        "Scalar": "1:type:ScalarType 2:b:bool 3:i:i64 4:r:f64",
    },
    {
        "Kind": dict(enumerate(_TYPES)),
        "AttrType": _ATTRIBUTES,
        "ScalarType": {1: "BOOLEAN", 2: "LONG", 3: "FLOAT64", 4: "COMPLEX128"},
    },
)

FIELDS = {
    "INT": "i",
    "FLOAT": "f",
    "STRING": "s",
    "INTS": "ints",
    "FLOATS": "floats",
    "STRINGS": "strings",
    "BOOLEAN": "b",
    "BOOLEANS": "bools",
    "LONG": "l",
    "LONGS": "longs",
    "FLOAT64S": "float64s",
    "FLOAT64": "float64",
    "SCALAR": "scalar",
    "SCALARS": "scalars",
}
"""The field of an attribute that has its value, by the attribute's type."""

_NAMED = {
    "BOOL": dtypes.bool_,
    "INT16": dtypes.i16,
    "INT32": dtypes.i32,
    "INT64": dtypes.i64,
    "FP16": dtypes.f16,
    "FP32": dtypes.f32,
    "FP64": dtypes.f64,
    "UINT8": dtypes.u8,
    "INT8": dtypes.i8,
    "BF16": dtypes.bf16,
}


def dtype_named(name: str | int) -> DType:
    """The element type with this name or number in the schema, or with this name in NumPy.

    Raises UnsupportedError for types that tensors can't have.
    """
    if isinstance(name, int):
        name = _TYPES[name] if 0 <= name < len(_TYPES) else str(name)
    for key, dtype in _NAMED.items():
        if name in (key, dtype.numpy.name, dtype.name) or (name == "ui8" and key == "UINT8"):
            return dtype
    raise UnsupportedError(f"element type {name}")
