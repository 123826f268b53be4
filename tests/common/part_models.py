"""Models of which a device runs parts, and the CPU the others."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 32
"""The side of the detector's image, where nothing else is said."""


def detector(side: int = SIDE) -> bytes:
    """A CNN with boxes that are suppressed and a sort of its scores; behind both is more of it.

    side: of its image; the sort has side * side elements.
    """
    rng, n = np.random.default_rng(0), side * side
    arrays = {
        "w1": rng.standard_normal((8, 3, 3, 3), np.float32),
        "w2": rng.standard_normal((4, 8, 3, 3), np.float32),
        "wb": rng.standard_normal((4, 8, 1, 1), np.float32),
        "ws": rng.standard_normal((1, 8, 1, 1), np.float32),
        "most": np.array([20]),
        "iou": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32),
        "two": np.array(2),
        "count": np.array([n]),
        "boxes_shape": np.array([1, 4, n]),
        "scores_shape": np.array([1, 1, n]),
        "image": np.array([1, 1, side, side]),
        "column": np.array([1, 4, 1, 1]),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "wb"], ["b"]),
        node("Conv", ["r", "ws"], ["s"]),
        node("Reshape", ["b", "boxes_shape"], ["bt"]),
        node("Transpose", ["bt"], ["boxes"], perm=[0, 2, 1]),
        node("Reshape", ["s", "scores_shape"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["selected"]),
        node("Gather", ["selected", "two"], ["index"], axis=1),
        node("Gather", ["boxes", "index"], ["picked"], axis=1),
        node("Reshape", ["scores", "count"], ["flat"]),
        node("TopK", ["flat", "count"], ["sorted", "order"]),
        node("Reshape", ["sorted", "image"], ["plane"]),
        node("Conv", ["r", "w2"], ["features"], pads=[1, 1, 1, 1]),
        node("ReduceMean", ["picked"], ["mean"], axes=[1]),
        node("Reshape", ["mean", "column"], ["shift"]),
        node("Add", ["features", "plane"], ["shifted"]),
        node("Add", ["shifted", "shift"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, side, side])],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in (
                ("picked", TensorProto.FLOAT),
                ("order", TensorProto.INT64),
                ("y", TensorProto.FLOAT),
            )
        ],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def branching() -> bytes:
    """A branch behind a convolution, and a convolution behind it."""
    rng = np.random.default_rng(2)
    info, node = helper.make_tensor_value_info, helper.make_node
    shape = [1, 2, 6, 6]
    sides = [
        helper.make_graph([node(op, ["c"], [op])], op, [], [info(op, TensorProto.FLOAT, shape)])
        for op in ("Exp", "Neg")
    ]
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("ReduceMean", ["c"], ["mean"], keepdims=0),
        node("Greater", ["mean", "zero"], ["positive"]),
        node("If", ["positive"], ["side"], then_branch=sides[0], else_branch=sides[1]),
        node("Conv", ["side", "v"], ["y"]),
    ]
    arrays = {
        "w": rng.standard_normal((2, 1, 3, 3), np.float32),
        "v": rng.standard_normal((1, 2, 3, 3), np.float32),
        "zero": np.array(0, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [1, 1, 8, 8])],
        [info("y", TensorProto.FLOAT, [1, 1, 4, 4])],
        [numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()
