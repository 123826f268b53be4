"""Stored tensors: every field and element type that can hold values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_models as om
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith.frontend.common.external import ExternalFiles
from tilesmith.frontend.load import load
from tilesmith.frontend.onnx.tensors import ELEMENT_TYPES, decode, decode_sparse
from tilesmith.support.errors import ModelError, UnsupportedError

FILES = ExternalFiles(None)
VALUES = [0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("code", ELEMENT_TYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_each_element_type_raw_and_typed(code, raw):
    array = np.array(VALUES).reshape(2, 3).astype(ELEMENT_TYPES[code].numpy)
    if raw:
        tensor = numpy_helper.from_array(array, "t")
    else:
        tensor = helper.make_tensor("t", code, [2, 3], array.reshape(-1).tolist())
    assert tensor.HasField("raw_data") == raw
    found = decode(tensor, FILES, "t")
    assert found.type.dtype is ELEMENT_TYPES[code]
    assert found.data.array.dtype == array.dtype
    assert found.data.array.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_as_bits(dtype):
    array = np.array([1.5, -0.0, np.inf, np.nan], dtype)
    tensor = TensorProto(dims=[4], data_type={np.float16: 10}.get(dtype, 16))
    tensor.int32_data.extend(array.view(np.uint16).tolist())
    found = decode(tensor, FILES, "t").data.array
    np.testing.assert_array_equal(found.view(np.uint16), array.view(np.uint16))


def test_extreme_integers():
    for dtype in (np.int64, np.uint64, np.int8, np.uint32):
        info = np.iinfo(dtype)
        array = np.array([info.min, info.max], dtype)
        for tensor in (
            numpy_helper.from_array(array),
            helper.make_tensor(
                "t", helper.np_dtype_to_tensor_dtype(array.dtype), [2], array.tolist()
            ),
        ):
            np.testing.assert_array_equal(decode(tensor, FILES, "t").data.array, array)


def test_scalars_and_empty_tensors():
    assert decode(numpy_helper.from_array(np.float32(3)), FILES, "t").data.array.shape == ()
    assert decode(numpy_helper.from_array(np.zeros((0, 4))), FILES, "t").data.array.shape == (0, 4)


def test_bools_other_than_one_are_true():
    tensor = TensorProto(dims=[3], data_type=TensorProto.BOOL, raw_data=b"\x00\x02\xff")
    assert decode(tensor, FILES, "t").data.array.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            TensorProto(dims=[2], data_type=1, raw_data=b"1234"),
            r"expected 8 bytes for f32\[2\], found 4",
        ),
        (TensorProto(dims=[2], data_type=1, float_data=[1.0]), "expected 2 values .* found 1"),
        (TensorProto(dims=[1], data_type=1, double_data=[1.0]), "in float_data, found double_data"),
        (TensorProto(dims=[1], data_type=2, int32_data=[256]), "values of u8 in 0..255, found 256"),
        (TensorProto(dims=[1], data_type=10, int32_data=[70000]), "found 70000"),
        (TensorProto(dims=[3], data_type=22, int32_data=[1]), "expected 2 values for int4"),
        (TensorProto(dims=[3], data_type=22, raw_data=b"abc"), r"expected 2 bytes for int4\[3\]"),
        (TensorProto(dims=[1], data_type=27, int32_data=[64]), "in 0..63, found 64"),
        (TensorProto(dims=[-1], data_type=1), r"dimensions >= 0, found \[-1\]"),
        (TensorProto(dims=[1 << 20, 1 << 20], data_type=1), "more than .* elements"),
        (TensorProto(dims=[0, 1 << 40], data_type=1), "more than .* elements"),
        (TensorProto(dims=[1] * 65, data_type=1), "at most 64 dimensions"),
        (TensorProto(dims=[1], data_type=0, float_data=[1.0]), "element type .*found 0"),
        (TensorProto(dims=[1], data_type=77, float_data=[1.0]), "element type .*found 77"),
    ],
)
def test_contradictions(tensor, message):
    with pytest.raises(ModelError, match=message):
        decode(tensor, FILES, "t")


@pytest.mark.parametrize("code", [8, 14, 15])
def test_element_types_without_support(code):
    with pytest.raises(UnsupportedError, match="has element type"):
        decode(TensorProto(dims=[0], data_type=code), FILES, "t")


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_tensors(flat):
    indices = np.array([1, 5]) if flat else np.array([[0, 1], [1, 2]])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([2.0, 3.0], np.float32), "w"),
        numpy_helper.from_array(indices, "i"),
        [2, 3],
    )
    np.testing.assert_array_equal(
        decode_sparse(sparse, FILES, "w").data.array, [[0, 2, 0], [0, 0, 3]]
    )
    sparse.indices.CopyFrom(numpy_helper.from_array(indices + 5, "i"))
    with pytest.raises(ModelError, match="outside of shape"):
        decode_sparse(sparse, FILES, "w")


def test_initializers_that_are_inputs_too_are_constants():
    made = om.with_weight(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    made.graph.input.append(om.value("w", [2, 3]))
    assert [v.name for v in load(made).inputs] == ["x"]
