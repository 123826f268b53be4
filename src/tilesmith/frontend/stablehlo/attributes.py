"""Names of operations and of their attributes in VHLO, StableHLO's portable form.

Bytecode lists the attributes of an operation without their names, in alphabetical order.
Source: StableHLO's `VhloOps.td`.  A change of an operation's attributes gives it a new version.
"""

from __future__ import annotations

_WINDOW = "lhs_dilation padding rhs_dilation window_reversal window_strides"
_CONVOLUTION = f"""batch_group_count feature_group_count input_batch_dimension
input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension
kernel_output_feature_dimension kernel_spatial_dimensions output_batch_dimension
output_feature_dimension output_spatial_dimensions precision_config {_WINDOW}"""
_CUSTOM_CALL = """api_version backend_config call_target_name called_computations has_side_effect
operand_layouts output_operand_aliases result_layouts"""
_DOT = """lhs_batching_dimensions lhs_contracting_dimensions precision_config
rhs_batching_dimensions rhs_contracting_dimensions"""
_DOT_ALGORITHM = """accumulation_type allow_imprecise_accumulation lhs_component_count
lhs_precision_type num_primitive_operations rhs_component_count rhs_precision_type"""
_GATHER = """collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes
start_index_map"""
_SCATTER = """index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims
unique_indices update_window_dims"""
_COMPOSITE = "composite_attributes decomposition name version"
_ACCURATE = """cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine
sqrt tan tanh"""

_NAMES = {
    "broadcast_in_dim_v1": "broadcast_dimensions",
    "call_v1": "callee",
    "compare_v1": "compare_type comparison_direction",
    "composite_v1": _COMPOSITE,
    "composite_v2": _COMPOSITE,
    "concatenate_v1": "dimension",
    "constant_v1": "value",
    "convolution_v1": _CONVOLUTION,
    "custom_call_v1": _CUSTOM_CALL,
    "custom_call_v2": f"{_CUSTOM_CALL} result_tilings",
    "dot_general_v1": _DOT,
    "dot_general_v2": f"{_DOT} {_DOT_ALGORITHM}",
    "dynamic_broadcast_in_dim_v1": "broadcast_dimensions known_expanding_dimensions "
    "known_nonexpanding_dimensions",
    "dynamic_iota_v1": "iota_dimension",
    "dynamic_slice_v1": "slice_sizes",
    "func_v1": "arg_attrs function_type res_attrs sym_name sym_visibility",
    "gather_v1": _GATHER,
    "gather_v2": f"{_GATHER} operand_batching_dims start_indices_batching_dims",
    "get_dimension_size_v1": "dimension",
    "iota_v1": "iota_dimension",
    "pad_v1": "edge_padding_high edge_padding_low interior_padding",
    "reduce_v1": "dimensions",
    "reduce_window_v1": "base_dilations padding window_dilations window_dimensions window_strides",
    "reverse_v1": "dimensions",
    "scatter_v1": _SCATTER,
    "scatter_v2": f"{_SCATTER} input_batching_dims scatter_indices_batching_dims",
    "slice_v1": "limit_indices start_indices strides",
    "sort_v1": "dimension is_stable",
    "transpose_v1": "permutation",
    **{f"{name}_v2": "result_accuracy" for name in _ACCURATE.split()},
}

ATTRIBUTES = {f"vhlo.{name}": tuple(sorted(text.split())) for name, text in _NAMES.items()}
"""The names of the attributes of the operations that we import, in the order of bytecode."""


def operator(name: str) -> str:
    """An operator's name as the text has it: `vhlo.add_v1` is `add`.

    A version of which we do not know the attributes keeps its whole name, with which no operation
    is imported.
    """
    if name in ATTRIBUTES or name.endswith("_v1"):
        return name.removeprefix("vhlo.").rpartition("_v")[0]
    return name
