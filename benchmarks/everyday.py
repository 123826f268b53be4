#!/usr/bin/env python3
"""What stands around a network, beside ONNX Runtime: `python benchmarks/everyday.py [WORD ...]`.

Data movement whose sizes a run computes, strings, samples and spectra, each small and large, with
one thread and with two.  Both take turns on the same arrays; `ratio` is our time over ONNX
Runtime's in the same round (median over rounds), and at most 1 is the bar.  A spectrum is held
against a plain product of its size, which is compiled as well.  Results are compared.

WORDs select the rows whose names contain one.  Prints a table, or JSON with --json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from case_table import run
from everyday_text import texts
from tilesmith.support.measure import Samples, interleave, ratio

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model and its inputs.

    product: a model of one product and its inputs, beside which ours is timed; None: ONNX Runtime.
    right: the result `y` where ONNX Runtime's is not accurate enough to compare with; None: its.
    """

    name: str
    model: onnx.ModelProto
    arrays: Arrays
    product: tuple[onnx.ModelProto, Arrays] | None = None
    right: np.ndarray | None = None


def model_of(
    nodes: Sequence[onnx.NodeProto],
    arrays: Arrays,
    known: Arrays | None = None,
    closed: Sequence[str] = (),
    domains: Sequence[str] = (),
    opset: int = 20,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model with result `y`.  Extents of inputs are open, but for 1 and those of `closed`."""
    inputs = [
        helper.make_tensor_value_info(
            n,
            helper.np_dtype_to_tensor_dtype(a.dtype),
            [d if n in closed or d == 1 else f"{n}{i}" for i, d in enumerate(a.shape)],
        )
        for n, a in arrays.items()
    ]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (known or {}).items()]
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(list(nodes), "case", inputs, [result], constants)
    opsets = [helper.make_opsetid(d, v) for d, v in (("", opset), *((d, 1) for d in domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def tiles() -> Iterator[Case]:
    """Repeats that a run gives, and those that the model gives for a known shape."""
    node = helper.make_node("Tile", ["x", "r"], ["y"])
    for shape, repeats in (
        ((4, 4), (2, 2)),
        ((32, 32, 3), (4, 4, 1)),
        ((64, 256), (1, 7)),
        ((1, 256, 256), (8, 1, 2)),
        ((64, 1, 64), (1, 64, 1)),
        ((256, 256, 3), (4, 4, 1)),
        ((1000, 1), (1, 300)),
    ):
        x, r = random(*shape), integers(*repeats)
        what = f"Tile {list(shape)} x {repeats}".replace(" ", "")
        given = model_of([node], {"x": x, "r": r}, closed=("r",))
        yield Case(f"{what}, at run time", given, {"x": x, "r": r})
        yield Case(f"{what}, static", model_of([node], {"x": x}, {"r": r}, ("x",)), {"x": x})


def reversals() -> Iterator[Case]:
    """Sequences of 1 to all steps, time first and batch first."""
    for steps, batch, width in ((16, 4, 8), (64, 32, 256), (128, 64, 1), (512, 16, 512)):
        lengths = np.random.default_rng(0).integers(1, steps + 1, batch)
        for time in (0, 1):
            x = random(*((batch, steps) if time else (steps, batch)), width)
            node = helper.make_node(
                "ReverseSequence", ["x", "n"], ["y"], batch_axis=1 - time, time_axis=time
            )
            arrays = {"x": x, "n": lengths}
            what = f"ReverseSequence {list(x.shape)}, time axis {time}"
            for closed in ((), ("x", "n")):
                kind = "static" if closed else "open"
                yield Case(f"{what}, {kind}", model_of([node], arrays, closed=closed), arrays)


def pads() -> Iterator[Case]:
    """Borders that a run gives, and as many pixels as the next multiple of 32 needs."""
    for shape in ((1, 3, 20, 20), (1, 64, 56, 56), (1, 3, 224, 224), (1, 3, 700, 1000)):
        x = random(*shape)
        p = integers(0, 0, 1, 1, 0, 0, 1, 1) if shape[1] == 64 else integers(0, 0, 9, 9, 0, 0, 9, 9)
        for mode in ("reflect", "edge", "constant"):
            node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
            model = model_of([node], {"x": x, "p": p}, closed=("p",))
            yield Case(f"Pad {mode} {list(shape)}, at run time", model, {"x": x, "p": p})
        nodes = [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Neg", ["s"], ["minus"]),
            helper.make_node("Mod", ["minus", "m"], ["more"]),
            helper.make_node("Concat", ["zero", "more"], ["p"], axis=0),
            helper.make_node("Pad", ["x", "p"], ["y"]),
        ]
        known = {"m": integers(1, 1, 32, 32), "zero": integers(0, 0, 0, 0)}
        yield Case(
            f"Pad {list(shape)} to multiples of 32", model_of(nodes, {"x": x}, known), {"x": x}
        )


def crops() -> Iterator[Case]:
    """The middle of an image, whose borders are computed or given."""
    for size, kept in ((32, 28), (512, 448), (1200, 1024)):
        x = random(1, 3, size, size)
        edge = (size - kept) // 2
        nodes = [
            helper.make_node("Shape", ["x"], ["s"], start=2, end=4),
            helper.make_node("Sub", ["s", "size"], ["d"]),
            helper.make_node("Div", ["d", "two"], ["start"]),
            helper.make_node("Add", ["start", "size"], ["end"]),
            helper.make_node("Slice", ["x", "start", "end", "axes"], ["y"]),
        ]
        known = {"size": integers(kept, kept), "two": integers(2), "axes": integers(2, 3)}
        yield Case(
            f"crop of {size} to {kept}, computed", model_of(nodes, {"x": x}, known), {"x": x}
        )
        arrays = {"x": x, "start": integers(edge, edge), "end": integers(edge + kept, edge + kept)}
        model = model_of(nodes[-1:], arrays, {"axes": integers(2, 3)}, ("start", "end"))
        yield Case(f"crop of {size} to {kept}, given", model, arrays)


def choices() -> Iterator[Case]:
    """One-hot vectors and the best elements, whose number a run gives."""
    one_hot = helper.make_node("OneHot", ["x", "depth", "v"], ["y"])
    for count, depth in ((16, 10), (1000, 100), (4096, 1000)):
        x = np.random.default_rng(0).integers(0, depth, count)
        arrays = {"x": x, "depth": integers(depth)}
        known = {"v": np.array([0, 1], np.float32)}
        yield Case(
            f"OneHot of {count}, depth {depth}",
            model_of([one_hot], arrays, known, ("depth",)),
            arrays,
        )
    top = helper.make_node("TopK", ["x", "k"], ["y", "i"])
    for rows, width, best in ((1, 100, 5), (64, 1000, 5), (1, 20000, 300), (8, 32000, 50)):
        arrays = {"x": random(rows, width), "k": integers(best)}
        yield Case(
            f"TopK {best} of {rows} x {width}", model_of([top], arrays, closed=("k",)), arrays
        )


def masks() -> Iterator[Case]:
    """A mask resized to its box and pasted into an empty image, as Mask R-CNN's last step is."""
    for height, width, box in ((100, 120, (20, 10, 60, 50)), (800, 1200, (100, 200, 420, 680))):
        top, left, bottom, right = box
        nodes = [
            helper.make_node("Slice", ["box", "c0", "c2"], ["start"]),
            helper.make_node("Slice", ["box", "c2", "c4"], ["end"]),
            helper.make_node("Sub", ["end", "start"], ["size"]),
            helper.make_node("Concat", ["ones", "size"], ["sizes"], axis=0),
            helper.make_node("Resize", ["x", "", "", "sizes"], ["large"], mode="linear"),
            helper.make_node("Sub", ["image", "end"], ["behind"]),
            helper.make_node("Concat", ["zeros", "start", "zeros", "behind"], ["p"], axis=0),
            helper.make_node("Pad", ["large", "p"], ["y"]),
        ]
        known = {
            "c0": integers(0), "c2": integers(2), "c4": integers(4),
            "ones": integers(1, 1), "zeros": integers(0, 0),
        }  # fmt: skip
        arrays = {
            "x": random(1, 1, 28, 28),
            "box": integers(*box),
            "image": integers(height, width),
        }
        model = model_of(nodes, arrays, known, ("x", "box", "image"))
        yield Case(f"mask of {bottom - top} x {right - left} in {height} x {width}", model, arrays)


def samples() -> Iterator[Case]:
    """Images read at places that are rotated, or anywhere."""
    for channels, size in ((3, 16), (64, 64), (3, 224), (256, 32)):
        ends = np.linspace(-1.05, 1.05, size)
        y, x = np.meshgrid(ends, ends, indexing="ij")
        turned = np.stack([x * 0.98 - y * 0.2, x * 0.2 + y * 0.98], -1)[None].astype(np.float32)
        spread = np.random.default_rng(0).uniform(-1.1, 1.1, turned.shape).astype(np.float32)
        for what, grid in (("rotated", turned), ("anywhere", spread)):
            node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="linear")
            arrays = {"x": random(1, channels, size, size), "g": grid}
            for closed in ((), ("x", "g")):
                kind = "static" if closed else "open"
                model = model_of([node], arrays, closed=closed)
                yield Case(
                    f"GridSample {channels} x {size} x {size}, {what}, {kind}", model, arrays
                )


def recurrences() -> Iterator[Case]:
    """DynamicQuantizeLSTM, as ONNX Runtime's quantisation makes it."""
    for steps, batch, width, ways in ((16, 1, 32, 1), (64, 1, 128, 1), (64, 8, 128, 1),
                                      (64, 1, 256, 1), (64, 1, 128, 2)):  # fmt: skip
        rng = np.random.default_rng(0)
        scale, zero = np.full(ways, 0.01, np.float32), np.full(ways, 128, np.uint8)
        known = {
            "w": rng.integers(0, 256, (ways, width, 4 * width)).astype(np.uint8),
            "r": rng.integers(0, 256, (ways, width, 4 * width)).astype(np.uint8),
            "b": 0.1 * random(ways, 8 * width),
            "ws": scale, "wz": zero, "rs": scale / 2, "rz": zero,
        }  # fmt: skip
        node = helper.make_node(
            "DynamicQuantizeLSTM",
            ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"],
            ["y"],
            domain="com.microsoft",
            hidden_size=width,
            direction="bidirectional" if ways == 2 else "forward",
        )
        arrays = {"x": random(steps, batch, width)}
        model = model_of([node], arrays, known, ("x",), ("com.microsoft",), opset=17)
        yield Case(f"DynamicQuantizeLSTM {steps} x {batch} x {width}, {ways} ways", model, arrays)


def spectrum(signals: np.ndarray, window: np.ndarray, step: int) -> np.ndarray:
    """The one-sided STFT of each row, in float64: [rows, frames, frequencies, 2]."""
    views = np.lib.stride_tricks.sliding_window_view(signals.astype(np.float64), len(window), 1)
    found = np.fft.rfft(views[:, ::step] * window.astype(np.float64))
    return np.stack([found.real, found.imag], -1)


def spectra() -> Iterator[Case]:
    """Frames of 400 points, which no power of two helps, beside products of their size."""
    for length, batch in ((1600, 1), (16000, 1), (16000, 4), (480000, 1)):
        window, step = 400, 160
        known = {"step": integers(step)[0], "w": np.hanning(window).astype(np.float32)}
        x = random(batch, length, 1)
        right = spectrum(x[..., 0], known["w"], step)
        node = helper.make_node("STFT", ["x", "step", "w"], ["y"])
        arrays = {"x": x}
        frames = batch * ((length - window) // step + 1)
        factor = model_of(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            given := {"x": random(frames, window)},
            {"w": random(window, window + 2)},
            ("x",),
        )
        for closed in ((), ("x",)):
            kind = "static" if closed else "open"
            model = model_of([node], arrays, known, closed, opset=17)
            name = f"STFT of {batch} x {length}, {kind}"
            yield Case(name, model, arrays, (factor, given), right)


def strings() -> Iterator[Case]:
    for name, model, arrays in texts():
        yield Case(name, model, arrays)


CASES: tuple[Callable[[], Iterator[Case]], ...] = (
    strings, tiles, reversals, pads, crops, choices, masks, samples, recurrences, spectra,
)  # fmt: skip


def differences(got: dict[str, Any], want: dict[str, Any]) -> float:
    """The largest difference of a number, by its size; infinite where other results differ."""
    worst = 0.0
    for name, right in want.items():
        ours = got[name]
        if isinstance(right, list):
            same = all(a.keys() == b.keys() for a, b in zip(ours, right, strict=True))
            worst = max(worst, 0.0 if same else np.inf)
        elif right.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(ours, right) else np.inf)
        elif right.size:
            worst = max(worst, float((np.abs(ours - right) / (1 + np.abs(right))).max()))
    return worst


def measure(case: Case, threads: int, rounds: int) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    text = case.model.SerializeToString()
    session = ort.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    exe = ts.compile(case.model, threads=threads)
    names = [o.name for o in session.get_outputs()]
    options.intra_op_num_threads = 1
    alone = ort.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    want = dict(zip(names, alone.run(None, case.arrays), strict=True))
    if case.right is not None:
        want = {"y": case.right}
    worst = differences(exe.run(case.arrays), want)
    peer: Callable[[], object] = partial(session.run, None, case.arrays)
    if case.product is not None:
        model, arrays = case.product
        peer = partial(ts.compile(model, threads=threads).run, arrays)
    taken: dict[str, Samples] = interleave(
        {"ours": partial(exe.run, case.arrays), "theirs": peer},
        rounds=rounds,
        turn_seconds=0.02,
    )
    return {
        "name": case.name,
        "threads": threads,
        "us": taken["ours"].minimum * 1e6,
        "peer_us": taken["theirs"].minimum * 1e6,
        "ratio": ratio(taken["ours"], taken["theirs"]),
        "difference": worst,
    }


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:52s} {row['threads']} threads {row['us']:10.1f} us, peer "
        f"{row['peer_us']:10.1f}: {row['ratio']:5.2f}"
        f"{' DIFFERS' if row['difference'] > 1e-3 else ''}"
    )


if __name__ == "__main__":
    run(__doc__ or "", CASES, measure, line, rounds=15)
