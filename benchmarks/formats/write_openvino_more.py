#!/usr/bin/env python3
"""Write OpenVINO models of recurrent layers, detection, transforms and control flow, and what
OpenVINO computes with them: `python benchmarks/formats/write_openvino_more.py FOLDER [PART]`, where
OpenVINO is.  PART is a part of the cases' names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import write_openvino as base
from openvino import opset1, opset3, opset4, opset5
from openvino import opset15 as ops
from write_openvino import normal

PART = ""
RANDOM = np.random.default_rng(1)


def single(folder: Path, name: str, make: Callable[..., Any], *arrays: np.ndarray) -> None:
    """A model of one operator on these inputs, if its name has the wanted part."""
    if PART in name:
        base.single(folder, name, make, *arrays)


def recurrent(folder: Path) -> None:
    batch, steps, width, hidden = 3, 5, 4, 6
    gates = {"lstm": 4, "gru": 3, "rnn": 1}
    for kind, count in gates.items():
        for linear in (False, True) if kind == "gru" else (False,):
            mark = "_linear" if linear else ""
            more = {"linear_before_reset": True} if linear else {}
            wide = (count + linear) * hidden
            w, r, b = normal(count * hidden, width), normal(count * hidden, hidden), normal(wide)
            states = 2 if kind == "lstm" else 1
            cell, layer = getattr(ops, f"{kind}_cell"), getattr(ops, f"{kind}_sequence")
            first = [normal(batch, hidden) for _ in range(states)]
            functions = {"rnn": ["tanh"], "gru": ["sigmoid", "tanh"]}.get(kind, [])
            functions = functions or ["sigmoid", "tanh", "tanh"]

            def one(x, *s, cell=cell, w=w, r=r, b=b, functions=functions, more=more):
                return cell(x, *s, w, r, b, hidden, functions, [], [], 0.0, **more)

            single(folder, f"{kind}_cell{mark}", one, normal(batch, width), *first)
            if kind != "lstm":

                def clipped(x, *s, cell=cell, w=w, r=r, b=b, functions=functions, more=more):
                    names = ["relu", *functions[1:]]
                    return cell(x, *s, w, r, b, hidden, names, [], [], 0.5, **more)

                single(folder, f"{kind}_cell{mark}_clip", clipped, normal(batch, width), *first)
            for direction in ("forward", "reverse", "bidirectional"):
                ways = 2 if direction == "bidirectional" else 1
                ws, rs = normal(ways, *w.shape, scale=0.5), normal(ways, *r.shape, scale=0.5)
                bs = normal(ways, wide)
                for lengths in ([steps] * batch, [5, 2, 4]):

                    def run(x, *s, layer=layer, ws=ws, rs=rs, bs=bs, lengths=lengths,
                            direction=direction, functions=functions, more=more):  # fmt: skip
                        return layer(
                            x, *s, np.array(lengths, np.int32), ws, rs, bs, hidden, direction,
                            functions, [], [], 0.0, **more,
                        )  # fmt: skip

                    uneven = "" if lengths[1] == steps else "_lengths"
                    before = [normal(batch, ways, hidden) for _ in range(states)]
                    name = f"{kind}_{direction}{mark}{uneven}"
                    single(folder, name, run, normal(batch, steps, width), *before)


def indexing(folder: Path) -> None:
    x = normal(4, 5, 6)
    for axis in (0, 1, 2):
        shape = list(x.shape)
        shape[axis : axis + 1] = [2, 1]
        single(
            folder,
            f"scatter_update_{axis}",
            lambda x, u, a=axis: ops.scatter_update(x, np.array([[2], [0]]), u, np.int64(a)),
            x,
            normal(*shape),
        )
    bounds = [np.array(v) for v in ([0, 3], [4, -1], [2, 1], [0, 2])]
    single(
        folder, "slice_scatter", lambda x, u: ops.slice_scatter(x, u, *bounds), x, normal(2, 5, 2)
    )
    edges = np.array([-1, 0, 0.5, 0.5, 2], np.float32)
    values = np.array([[-2, -1, 0, 0.5], [0.6, 2, 3, 1]], np.float32)
    for right in (True, False):
        single(
            folder,
            f"bucketize_{right}",
            lambda x, r=right: ops.bucketize(x, edges, "i32", r),
            values,
        )
        single(
            folder,
            f"search_sorted_{right}",
            lambda e, v, r=right: ops.search_sorted(e, v, r),
            np.stack([edges, edges + 0.5]),
            values,
        )
    whole = RANDOM.integers(0, 4, (3, 4))
    for ordered in (True, False):
        single(folder, f"unique_{ordered}", lambda x, o=ordered: ops.unique(x, None, o), whole)
    double = np.concatenate([whole, whole[:2]])
    single(folder, "unique_rows", lambda x: ops.unique(x, np.int64(0), True), double)
    table, ids = normal(7, 3), np.array([1, 3, 3, 6, 0], np.int32)
    offsets = np.array([0, 2, 2], np.int32)
    weights = normal(5)
    single(
        folder,
        "embedding_offsets",
        lambda t, i, o, w: ops.embedding_bag_offsets_sum(t, i, o, ops.constant(np.int32(4)), w),
        table,
        ids,
        offsets,
        weights,
    )
    for how in ("sum", "mean"):
        single(
            folder,
            f"embedding_offsets_{how}",
            lambda t, i, o, h=how: ops.embedding_bag_offsets(t, i, o, reduction=h),
            table,
            ids,
            offsets,
        )
        single(
            folder,
            f"embedding_packed_{how}",
            lambda t, i, h=how: ops.embedding_bag_packed(t, i, reduction=h),
            table,
            ids.reshape(1, 5).repeat(2, 0),
        )
    single(
        folder,
        "embedding_segments",
        lambda t, i, s, w: ops.embedding_segments_sum(
            t, i, s, ops.constant(np.int32(4)), ops.constant(np.int32(2)), w
        ),
        table,
        ids,
        np.array([0, 0, 1, 3, 3], np.int32),
        weights,
    )
    scores, mask = normal(2, 9, 4), np.ones((9, 2), np.float32)
    mask[6:, 1] = 0
    for merge in (True, False):
        single(
            folder,
            f"ctc_{merge}",
            lambda x, m, g=merge: ops.ctc_greedy_decoder(x, m, g),
            scores.transpose(1, 0, 2).copy(),
            mask,
        )
        single(
            folder,
            f"ctc_lengths_{merge}",
            lambda x, s, g=merge: ops.ctc_greedy_decoder_seq_len(x, s, None, g),
            scores,
            np.array([9, 6], np.int32),
        )
    steps = RANDOM.integers(1, 9, (5, 2, 3)).astype(np.float32)
    parents = RANDOM.integers(0, 3, (5, 2, 3)).astype(np.float32)
    steps[3, 0] = 0
    single(
        folder,
        "gather_tree",
        lambda s, p, m: ops.gather_tree(s, p, m, np.float32(0)),
        steps,
        parents,
        np.array([5, 4], np.float32),
    )
    single(folder, "shift_left", ops.bitwise_left_shift, whole, whole[:1])
    single(folder, "shift_right", ops.bitwise_right_shift, whole * -9, whole[:1])
    single(
        folder,
        "promote",
        lambda a, b: ops.convert_promote_types(a, b, True),
        x,
        whole.astype(np.int32)[:, :, None],
    )
    single(
        folder,
        "promote_int",
        lambda a, b: ops.convert_promote_types(a, b, True),
        x.astype(np.int16),
        x.astype(np.uint16),
    )


def transforms(folder: Path) -> None:
    x = normal(2, 3, 8, 6)
    for number, text in enumerate(("abcd,abde->abce", "abcd->adcb", "abcd,cd->a")):
        others = [normal(2, 3, 6, 4), normal(8, 6)][number // 2 :][:1] if number != 1 else []
        single(folder, f"einsum_{number}", lambda *v, t=text: ops.einsum(list(v), t), x, *others)
    grid = RANDOM.uniform(-1.2, 1.2, (2, 5, 4, 2)).astype(np.float32)
    for mode in ("bilinear", "bicubic", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (True, False):
                single(
                    folder,
                    f"grid_sample_{mode}_{padding}_{corners}",
                    lambda x, g, m=mode, p=padding, c=corners: ops.grid_sample(
                        x, g, {"align_corners": c, "mode": m, "padding_mode": p}
                    ),
                    x,
                    grid,
                )
    single(
        folder, "space_to_batch", lambda x: ops.space_to_batch(
            x, np.array([1, 1, 2, 3]), np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])
        ), x,
    )  # fmt: skip
    single(
        folder, "batch_to_space", lambda x: ops.batch_to_space(
            x, np.array([1, 1, 2, 3]), np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])
        ), normal(12, 3, 4, 2),
    )  # fmt: skip
    for shift in (-1, 0, 2):
        single(
            folder,
            f"eye_{shift}",
            lambda x, s=shift: ops.multiply(
                x, ops.eye(np.int64(8), np.int64(6), np.int64(s), "f32", np.array([3]))
            ),
            x,
        )
    complex_, axes = normal(2, 6, 8, 2), np.array([1, 2])
    for name in ("dft", "idft"):
        single(folder, name, lambda x, f=name: getattr(ops, f)(x, axes), complex_)
        single(
            folder,
            f"{name}_sizes",
            lambda x, f=name: getattr(ops, f)(x, axes, np.array([4, 9])),
            complex_,
        )
        single(
            folder, f"{name}_last", lambda x, f=name: getattr(ops, f)(x, np.array([-1])), complex_
        )
    single(folder, "rdft", lambda x: ops.rdft(x, np.array([2, -1])), x)
    single(folder, "rdft_sizes", lambda x: ops.rdft(x, np.array([2, 3]), np.array([8, 9])), x)
    single(folder, "irdft", lambda x: ops.irdft(x, axes), complex_)
    single(folder, "irdft_sizes", lambda x: ops.irdft(x, axes, np.array([5, 9])), complex_)
    window = np.hanning(8).astype(np.float32)
    for turned in (True, False):
        single(
            folder,
            f"stft_{turned}",
            lambda x, t=turned: ops.stft(x, window, np.int64(8), np.int64(3), t),
            normal(2, 40),
        )
        single(
            folder,
            f"stft_short_window_{turned}",
            lambda x, t=turned: ops.stft(x, window, np.int64(11), np.int64(4), t),
            normal(2, 40),
        )
    single(folder, "grn", lambda x: ops.grn(x, 0.3), x)
    square = normal(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)
    for adjoint in (True, False):
        single(folder, f"inverse_{adjoint}", lambda x, a=adjoint: ops.inverse(x, a), square)
    w, offset, mask = normal(4, 3, 3, 3), normal(2, 18, 8, 6), RANDOM.random((2, 9, 8, 6))
    places = [1, 1], [1, 1], [1, 1], [1, 1]
    for outside in (True, False):
        single(
            folder,
            f"deformable_{outside}",
            lambda x, o, m, b=outside: ops.deformable_convolution(
                x, o, w, *places, m, bilinear_interpolation_pad=b
            ),
            x,
            offset,
            mask.astype(np.float32),
        )
    for mode in ("valid", "same_upper", "same_lower"):
        single(
            folder,
            f"patches_{mode}",
            lambda x, m=mode: ops.extract_image_patches(x, [3, 2], [2, 2], [1, 2], m),
            x,
        )
    single(
        folder,
        "col2im",
        lambda x: ops.col2im(x, np.array([8, 6]), np.array([2, 3]), [2, 1], [1, 1], [1, 0], [1, 0]),
        normal(2, 12, 20),
    )
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8)
    single(
        folder,
        "attention_causal",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, causal=True),
        q,
        k,
        v,
    )
    for mode in ("nearest", "linear", "cubic"):
        for corners in (True, False):
            for size in ([13, 15], [5, 4], [12, 4]):
                form = {
                    "axes": np.array([2, 3]),
                    "mode": mode,
                    "align_corners": corners,
                    "antialias": False,
                }
                single(
                    folder,
                    f"interpolate1_{mode}_{corners}_{size[0]}_{size[1]}",
                    lambda x, f=form, s=size: opset1.interpolate(x, np.array(s), f),
                    x,
                )
    bright, colour = RANDOM.random((1, 6, 8, 1)) * 255, RANDOM.random((1, 3, 4, 2)) * 255
    bright, colour = bright.astype(np.float32), colour.astype(np.float32)
    u, v = colour[..., :1].copy(), colour[..., 1:].copy()
    for kind in ("bgr", "rgb"):
        single(folder, f"nv12_{kind}", getattr(ops, f"nv12_to_{kind}"), bright, colour)
        single(folder, f"i420_{kind}", getattr(ops, f"i420_to_{kind}"), bright, u, v)
        both = np.concatenate([bright, colour.reshape(1, 3, 8, 1)], 1)
        single(folder, f"nv12_one_{kind}", getattr(ops, f"nv12_to_{kind}"), both)
        single(folder, f"i420_one_{kind}", getattr(ops, f"i420_to_{kind}"), both)
        single(folder, f"nv12_u8_{kind}", getattr(ops, f"nv12_to_{kind}"), both.astype(np.uint8))


def detection(folder: Path) -> None:
    corner = RANDOM.random((2, 12, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + RANDOM.random((2, 12, 2)) * 0.5 + 0.05], 2)
    boxes = boxes.astype(np.float32)
    scores = RANDOM.random((2, 3, 12)).astype(np.float32)
    f, i = np.float32, np.int64
    for ordered in (True, False):
        for kind in ("corner", "center"):
            single(
                folder,
                f"nms_{kind}_{ordered}",
                lambda b, s, k=kind, o=ordered: ops.non_max_suppression(
                    b, s, i(5), f(0.4), f(0.2), box_encoding=k, sort_result_descending=o,
                    output_type="i32",
                ),
                boxes,
                scores,
            )  # fmt: skip
        for name, version in (("1", opset1), ("3", opset3), ("4", opset4), ("5", opset5)):
            single(
                folder,
                f"nms{name}_{ordered}",
                lambda b, s, v=version, o=ordered: v.non_max_suppression(
                    b, s, i(5), f(0.4), f(0.2), sort_result_descending=o
                ),
                boxes,
                scores,
            )
    for order in ("none", "classid", "score"):
        for kept in (-1, 5):
            single(
                folder,
                f"multiclass_nms_{order}_{kept}",
                lambda b, s, o=order, k=kept: ops.multiclass_nms(
                    b, s, sort_result_type=o, iou_threshold=0.4, score_threshold=0.2, nms_top_k=8,
                    keep_top_k=k, background_class=0,
                ),
                boxes,
                scores,
            )  # fmt: skip
    count, classes = 12, 3
    variance = np.tile(np.array([0.1, 0.1, 0.2, 0.2], np.float32), count)
    priors = np.stack([boxes[0].reshape(-1), variance])[None]
    for code in ("CENTER_SIZE", "CORNER"):
        for shared in (True, False):
            form = {
                "background_label_id": 0, "top_k": 8, "variance_encoded_in_target": False,
                "keep_top_k": [6], "code_type": f"caffe.PriorBoxParameter.{code}",
                "share_location": shared, "nms_threshold": 0.4, "confidence_threshold": 0.3,
                "clip_after_nms": False, "clip_before_nms": False, "decrease_label_id": False,
                "normalized": True, "input_height": 1, "input_width": 1,
                "objectness_score": np.float32(0),
            }  # fmt: skip
            wide = normal(2, count * 4 * (1 if shared else classes), scale=0.5)
            single(
                folder,
                f"detection_output_{code}_{shared}",
                lambda a, c, f=form: ops.detection_output(a, c, priors, f),
                wide,
                scores.transpose(0, 2, 1).reshape(2, -1).copy(),
            )
    x, image = normal(1, 3, 4, 5), normal(1, 3, 32, 40)
    form = {
        "min_size": [8.0, 12.5], "max_size": [14.0, 20.0], "aspect_ratio": [2.0, 3.0],
        "flip": True, "clip": False, "step": 0.0, "offset": 0.5, "variance": [0.1, 0.1, 0.2, 0.2],
    }  # fmt: skip
    cases = {"plain": {}, "clip": {"clip": True, "step": 7.0}, "no_flip": {"flip": False}}
    cases["order"] = {"min_max_aspect_ratios_order": False}

    def sizes(x, image):
        cut = [np.array([2]), np.array([4]), np.array([1]), np.array([0])]
        return ops.slice(ops.shape_of(x), *cut), ops.slice(ops.shape_of(image), *cut)

    for name, more in cases.items():
        single(
            folder,
            f"prior_box_{name}",
            lambda x, y, m=more: ops.prior_box(*sizes(x, y), {**form, **m}),
            x,
            image,
        )
    clustered = {
        "width": [8.0, 12.0], "height": [5.0, 16.0], "clip": False, "step": 0.0, "offset": 0.5,
        "step_widths": 8.0, "step_heights": 9.0, "variance": [0.1, 0.1, 0.2, 0.2],
    }  # fmt: skip
    single(
        folder, "prior_box_clustered",
        lambda x, y: ops.prior_box_clustered(*sizes(x, y), clustered), x, image,
    )  # fmt: skip
    cells = normal(2, 3 * 7, 4, 5)
    for soft in (True, False):
        single(
            folder,
            f"region_yolo_{soft}",
            lambda x, s=soft: ops.region_yolo(x, 4, 2, 3, s, [0, 1, 2], 1, 3, [1.0] * 6),
            cells,
        )
    single(folder, "reorg_yolo", lambda x: ops.reorg_yolo(x, [2]), normal(2, 8, 4, 6))
    regions = np.array([[0, 0, 9, 7], [2, 1, 5, 6], [3, 3, 12, 12]], np.float32)
    images = np.array([0, 1, 1], np.int32)
    x = normal(2, 3, 9, 10)
    for mode in ("asymmetric", "half_pixel", "half_pixel_for_nn"):
        for how in ("avg", "max"):
            single(
                folder,
                f"roi_align_{mode}_{how}",
                lambda x, r, m=mode, h=how: ops.roi_align(x, r, images, 3, 2, 2, 0.7, h, m),
                x,
                regions,
            )
    single(
        folder,
        "roi_pooling",
        lambda x, r: ops.roi_pooling(x, r, [3, 2], 0.6, "max"),
        x,
        np.concatenate([images[:, None], regions], 1).astype(np.float32),
    )


def main() -> None:
    global PART
    folder, PART = Path(sys.argv[1]), (sys.argv[2] if len(sys.argv) > 2 else "")
    for family in (recurrent, indexing, transforms, detection):
        family(folder)


if __name__ == "__main__":
    main()
