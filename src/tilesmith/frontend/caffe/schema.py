"""The messages of Caffe's files, as far as inference needs them.

The fields are those of BVLC's caffe.proto, SSD's layers, and layers of other branches (forks of
Caffe) that deployed models have.  The import functions of layers have the defaults.
"""

from __future__ import annotations

from tilesmith.frontend.common.protobuf import Schema

_FILLER = "1:type:string 2:value:f32 3:min:f32 4:max:f32 5:mean:f32 6:std:f32 7:sparse:i32"
_LAYER_PARAMS = {
    "argmax_param": (103, 23, "1:out_max_val:bool 2:top_k:u32 3:axis:i32"),
    "batch_norm_param": (139, 0, "1:use_global_stats:bool 2:moving_average_fraction:f32 3:eps:f32"),
    "bias_param": (141, 0, "1:axis:i32 2:num_axes:i32 3:filler:Filler"),
    "bn_param": (0, 0, "1:scale_filler:Filler 2:shift_filler:Filler 3:bn_mode:BnMode 4:eps:f32"),
    "clip_param": (148, 0, "1:min:f32 2:max:f32"),
    "concat_param": (104, 9, "2:axis:i32 1:concat_dim:u32"),
    "convolution_param": (
        106,
        10,
        "1:num_output:u32 2:bias_term:bool 3:pad:[u32] 4:kernel_size:[u32] 6:stride:[u32] "
        "18:dilation:[u32] 9:pad_h:u32 10:pad_w:u32 11:kernel_h:u32 12:kernel_w:u32 "
        "13:stride_h:u32 14:stride_w:u32 5:group:u32 7:weight_filler:Filler 8:bias_filler:Filler "
        "15:engine:Engine 16:axis:i32 17:force_nd_im2col:bool",
    ),
    "crop_param": (144, 0, "1:axis:i32 2:offset:[u32]"),
    "detection_output_param": (
        204,
        0,
        "1:num_classes:u32 2:share_location:bool 3:background_label_id:i32 4:nms_param:Nms "
        "6:code_type:CodeType 8:variance_encoded_in_target:bool 7:keep_top_k:i32 "
        "9:confidence_threshold:f32 10:visualize:bool "
        "11:visualize_threshold:f32 12:save_file:string",
    ),
    "dropout_param": (108, 12, "1:dropout_ratio:f32 2:sample_weights_test:bool 3:scale_train:bool"),
    "dummy_data_param": (
        109,
        26,
        "1:data_filler:[Filler] 6:shape:[Shape] 2:num:[u32] 3:channels:[u32] 4:height:[u32] "
        "5:width:[u32]",
    ),
    "eltwise_param": (110, 24, "1:operation:EltwiseOp 2:coeff:[f32] 3:stable_prod_grad:bool"),
    "elu_param": (140, 0, "1:alpha:f32"),
    "embed_param": (
        137,
        0,
        "1:num_output:u32 2:input_dim:u32 3:bias_term:bool 4:weight_filler:Filler "
        "5:bias_filler:Filler",
    ),
    "exp_param": (111, 41, "1:base:f32 2:scale:f32 3:shift:f32"),
    "flatten_param": (135, 0, "1:axis:i32 2:end_axis:i32"),
    "inner_product_param": (
        117,
        17,
        "1:num_output:u32 2:bias_term:bool 3:weight_filler:Filler 4:bias_filler:Filler 5:axis:i32 "
        "6:transpose:bool",
    ),
    "input_param": (143, 0, "1:shape:[Shape]"),
    "interp_param": (
        0,
        0,
        "1:height:i32 2:width:i32 3:zoom_factor:i32 4:shrink_factor:i32 "
        "5:pad_beg:i32 6:pad_end:i32",
    ),
    "log_param": (134, 0, "1:base:f32 2:scale:f32 3:shift:f32"),
    "lrn_param": (
        118,
        18,
        "1:local_size:u32 2:alpha:f32 3:beta:f32 4:norm_region:NormRegion 5:k:f32 6:engine:Engine",
    ),
    "memory_data_param": (119, 22, "1:batch_size:u32 2:channels:u32 3:height:u32 4:width:u32"),
    "mvn_param": (120, 34, "1:normalize_variance:bool 2:across_channels:bool 3:eps:f32"),
    "norm_param": (
        206,
        0,
        "1:across_spatial:bool 2:scale_filler:Filler 3:channel_shared:bool 4:eps:f32",
    ),
    "parameter_param": (145, 0, "1:shape:Shape"),
    "permute_param": (202, 0, "1:order:[u32]"),
    "pooling_param": (
        121,
        19,
        "1:pool:PoolMethod 4:pad:u32 9:pad_h:u32 10:pad_w:u32 2:kernel_size:u32 5:kernel_h:u32 "
        "6:kernel_w:u32 3:stride:u32 7:stride_h:u32 8:stride_w:u32 11:engine:Engine "
        "12:global_pooling:bool 13:round_mode:RoundMode 1013:ceil_mode:bool",
    ),
    "power_param": (122, 21, "1:power:f32 2:scale:f32 3:shift:f32"),
    "prelu_param": (131, 0, "1:filler:Filler 2:channel_shared:bool"),
    "prior_box_param": (
        203,
        0,
        "1:min_size:[f32] 2:max_size:[f32] 3:aspect_ratio:[f32] 4:flip:bool 5:clip:bool "
        "6:variance:[f32] 7:img_size:u32 8:img_h:u32 9:img_w:u32 10:step:f32 11:step_h:f32 "
        "12:step_w:f32 13:offset:f32",
    ),
    "psroi_pooling_param": (153, 0, "1:spatial_scale:f32 2:output_dim:i32 3:group_size:i32"),
    "recurrent_param": (
        146,
        0,
        "1:num_output:u32 2:weight_filler:Filler 3:bias_filler:Filler 4:debug_info:bool "
        "5:expose_hidden:bool",
    ),
    "reduction_param": (136, 0, "1:operation:ReductionOp 2:axis:i32 3:coeff:f32"),
    "relu_param": (123, 30, "1:negative_slope:f32 2:engine:Engine"),
    "reorg_param": (159, 0, "1:stride:u32 2:reverse:bool"),
    "reshape_param": (133, 0, "1:shape:Shape 2:axis:i32 3:num_axes:i32"),
    "roi_pooling_param": (8266711, 0, "1:pooled_h:u32 2:pooled_w:u32 3:spatial_scale:f32"),
    "scale_param": (
        142,
        0,
        "1:axis:i32 2:num_axes:i32 3:filler:Filler 4:bias_term:bool 5:bias_filler:Filler",
    ),
    "shuffle_channel_param": (164, 0, "1:group:u32"),
    "sigmoid_param": (124, 38, "1:engine:Engine"),
    "slice_param": (126, 31, "3:axis:i32 2:slice_point:[u32] 1:slice_dim:u32"),
    "softmax_param": (125, 39, "1:engine:Engine 2:axis:i32"),
    "spp_param": (132, 0, "1:pyramid_height:u32 2:pool:PoolMethod 6:engine:Engine"),
    "swish_param": (147, 0, "1:beta:f32"),
    "tanh_param": (127, 37, "1:engine:Engine"),
    "threshold_param": (128, 25, "1:threshold:f32"),
    "tile_param": (138, 0, "1:axis:i32 2:tiles:i32"),
    "transform_param": (100, 36, "3:crop_size:u32"),
    "upsample_param": (
        0,
        0,
        "1:scale:i32 2:scale_h:i32 3:scale_w:i32 4:pad_out_h:bool 5:pad_out_w:bool "
        "6:upsample_h:i32 7:upsample_w:i32",
    ),
}
"""For each message of parameters, its field number in a layer and in a V1 layer, and its fields.
The number is 0 if the message does not exist there, or if branches of Caffe use different numbers.
"""


def _params(version: int) -> str:
    numbers = ((row[version], name) for name, row in _LAYER_PARAMS.items())
    return " ".join(f"{number or -1}:{name}:{name}" for number, name in numbers)


SCHEMA = Schema(
    {
        "Net": "1:name:string 3:input:[string] 8:input_shape:[Shape] 4:input_dim:[i32] "
        "100:layer:[Layer] 2:layers:[V1Layer]",
        "Layer": "1:name:string 2:type:string 3:bottom:[string] 4:top:[string] 7:blobs:[Blob] "
        f"8:include:[Rule] 9:exclude:[Rule] {_params(0)}",
        "V1Layer": "4:name:string 5:type:V1Type 2:bottom:[string] 3:top:[string] 6:blobs:[Blob] "
        f"32:include:[Rule] 33:exclude:[Rule] {_params(1)}",
        "Rule": "1:phase:Phase 2:min_level:i32 3:max_level:i32 4:stage:[string] "
        "5:not_stage:[string]",
        "Shape": "1:dim:[i64]",
        "Blob": "7:shape:Shape 5:data:[f32] 8:double_data:[f64] 1:num:i32 2:channels:i32 "
        "3:height:i32 4:width:i32 10:raw_data_type:RawType 12:raw_data:bytes",
        "Filler": _FILLER,
        "Nms": "1:nms_threshold:f32 2:top_k:i32 3:eta:f32",
        **{name: row[2] for name, row in _LAYER_PARAMS.items()},
    },
    {
        "Phase": ("TRAIN", "TEST"),
        "Engine": ("DEFAULT", "CAFFE", "CUDNN"),
        "EltwiseOp": ("PROD", "SUM", "MAX"),
        "NormRegion": ("ACROSS_CHANNELS", "WITHIN_CHANNEL"),
        "PoolMethod": ("MAX", "AVE", "STOCHASTIC"),
        "RoundMode": ("CEIL", "FLOOR"),
        "ReductionOp": {1: "SUM", 2: "ASUM", 3: "SUMSQ", 4: "MEAN"},
        "CodeType": {1: "CORNER", 2: "CENTER_SIZE", 3: "CORNER_SIZE"},
        "RawType": ("DOUBLE", "FLOAT", "FLOAT16", "INT", "UINT"),
        "BnMode": ("LEARN", "INFERENCE"),
        "V1Type": {
            0: "NONE", 1: "ACCURACY", 2: "BNLL", 3: "CONCAT", 4: "CONVOLUTION", 5: "DATA",
            6: "DROPOUT", 7: "EUCLIDEAN_LOSS", 8: "FLATTEN", 9: "HDF5_DATA", 10: "HDF5_OUTPUT",
            11: "IM2COL", 12: "IMAGE_DATA", 13: "INFOGAIN_LOSS", 14: "INNER_PRODUCT", 15: "LRN",
            16: "MULTINOMIAL_LOGISTIC_LOSS", 17: "POOLING", 18: "RELU", 19: "SIGMOID",
            20: "SOFTMAX", 21: "SOFTMAX_LOSS", 22: "SPLIT", 23: "TANH", 24: "WINDOW_DATA",
            25: "ELTWISE", 26: "POWER", 27: "SIGMOID_CROSS_ENTROPY_LOSS", 28: "HINGE_LOSS",
            29: "MEMORY_DATA", 30: "ARGMAX", 31: "THRESHOLD", 32: "DUMMY_DATA", 33: "SLICE",
            34: "MVN", 35: "ABSVAL", 36: "SILENCE", 37: "CONTRASTIVE_LOSS", 38: "EXP",
            39: "DECONVOLUTION",
        },
    },
    partial=("Net", "Layer", "V1Layer", "transform_param", "Filler"),
)  # fmt: skip
"""The messages.  Layer and V1Layer have fields of the same names."""

PARAMS = frozenset(_LAYER_PARAMS)
"""The names of the messages that hold parameters of layers."""
