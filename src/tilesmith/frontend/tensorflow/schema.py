"""The messages of TensorFlow's files that inference needs, and TensorFlow's element types.

See tensorflow/core/framework and tensorflow/core/protobuf.
"""

from __future__ import annotations

from tilesmith.frontend.common.protobuf import Schema
from tilesmith.ir import dtypes as dt
from tilesmith.ir.dtypes import DType

SCHEMA = Schema(
    {
        "SavedModel": "1:saved_model_schema_version:i64 2:meta_graphs:[MetaGraphDef]",
        "MetaGraphDef": "1:meta_info_def:MetaInfoDef 2:graph_def:GraphDef 3:saver_def:SaverDef "
        "5:signature_def:{string:SignatureDef}",
        "MetaInfoDef": "4:tags:[string] 5:tensorflow_version:string",
        "SaverDef": "3:restore_op_name:string",
        "SignatureDef": "1:inputs:{string:TensorInfo} 2:outputs:{string:TensorInfo}",
        "TensorInfo": "1:name:string 2:dtype:i32 3:tensor_shape:TensorShapeProto",
        "GraphDef": "1:node:[NodeDef] 2:library:FunctionDefLibrary 4:versions:VersionDef",
        "VersionDef": "1:producer:i32",
        "NodeDef": "1:name:string 2:op:string 3:input:[string] 5:attr:{string:AttrValue}",
        "AttrValue": "1:list:ListValue 2:s:bytes 3:i:i64 4:f:f32 5:b:bool 6:type:i32 "
        "7:shape:TensorShapeProto 8:tensor:TensorProto 10:func:NameAttrList",
        "ListValue": "2:s:[bytes] 3:i:[i64] 4:f:[f32] 5:b:[bool] 6:type:[i32] "
        "7:shape:[TensorShapeProto] 9:func:[NameAttrList]",
        "NameAttrList": "1:name:string",
        "TensorShapeProto": "2:dim:[Dim] 3:unknown_rank:bool",
        "Dim": "1:size:i64",
        "TensorProto": "1:dtype:i32 2:tensor_shape:TensorShapeProto 4:tensor_content:bytes "
        "5:float_val:[f32] 6:double_val:[f64] 7:int_val:[i32] 8:string_val:[bytes] "
        "10:int64_val:[i64] 11:bool_val:[bool] 13:half_val:[i32] 16:uint32_val:[u32] "
        "17:uint64_val:[u64]",
        "FunctionDefLibrary": "1:function:[FunctionDef]",
        "FunctionDef": "1:signature:OpDef 3:node_def:[NodeDef] 4:ret:{string:string} "
        "6:control_ret:{string:string}",
        "OpDef": "1:name:string 2:input_arg:[ArgDef] 3:output_arg:[ArgDef]",
        "ArgDef": "1:name:string 3:type:i32",
        "BundleHeaderProto": "1:num_shards:i32 2:endianness:i32",
        "BundleEntryProto": "1:dtype:i32 2:shape:TensorShapeProto 3:shard_id:i32 4:offset:i64 "
        "5:size:i64 7:slices:[TensorSliceProto]",
        "TensorSliceProto": "",
    }
)

_DTYPES: dict[int, DType] = {
    1: dt.f32, 2: dt.f64, 3: dt.i32, 4: dt.u8, 5: dt.i16, 6: dt.i8, 7: dt.string, 9: dt.i64,
    10: dt.bool_, 14: dt.bf16, 17: dt.u16, 19: dt.f16, 22: dt.u32, 23: dt.u64, 24: dt.f8e5m2,
    25: dt.f8e4m3fn, 26: dt.f8e4m3fnuz, 28: dt.f8e5m2fnuz, 29: dt.int4, 30: dt.uint4,
}  # fmt: skip

RESOURCE, VARIANT = 20, 21
"""The numbers of two types of handles: RESOURCE of variables and tables, VARIANT of lists."""

_OF_REFERENCES = 100
"""Offset from the number of an element type to the number of its reference type.  References occur
in files of TensorFlow 1.  They are values that can be assigned to.
"""


def dtype_of(number: int) -> DType | None:
    """The element type with this number in a file; None if Tilesmith does not have the type."""
    return _DTYPES.get(number - _OF_REFERENCES if number > _OF_REFERENCES else number)
