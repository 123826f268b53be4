#!/usr/bin/env python3
"""Write Darknet networks with random weights, and what OpenCV or a formula of NumPy computes with
them: `python benchmarks/formats/write_darknet.py FOLDER`, where OpenCV 4 is installed.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

RANDOM = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


class Net:
    """A configuration, and the numbers of its weights."""

    def __init__(self, name: str, size: int = 32, channels: int = 3, version: int = 2) -> None:
        self.name, self.version, self.input = name, version, (1, channels, size, size)
        self.text = [f"[net]\nbatch=1\nwidth={size}\nheight={size}\nchannels={channels}"]
        self.numbers: list[np.ndarray] = []
        self.channels: list[int] = []
        self.region: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def last(self) -> int:
        return len(self.channels) - 1

    def add(self, kind: str, channels: int, **options: object) -> int:
        """Add a section whose result has these channels; returns its number."""
        lines = (f"{key.rstrip('_')} = {value}" for key, value in options.items())
        self.text.append("\n".join([f"[{kind}]", *lines]))
        self.channels.append(channels)
        return self.last

    def conv(self, filters: int, size: int, stride: int = 1, activation: str = "leaky",
             norm: bool = True, groups: int = 1, gain: float = 1.0, **options: object,
    ) -> int:  # fmt: skip
        before = self.channels[-1] if self.channels else self.input[1]
        options |= {"groups": groups} if groups > 1 else {}
        options |= {"batch_normalize": 1} if norm else {}
        self.numbers.append(normal(filters, scale=0.1))
        if norm:
            # large variances, since OpenCV adds less to them than Darknet
            scale, mean = RANDOM.uniform(1.5, 3, filters), normal(filters, scale=0.1)
            self.numbers += [scale.astype(np.float32), mean]
            self.numbers += [RANDOM.uniform(4, 8, filters).astype(np.float32)]
        taps = before // groups * size * size
        self.numbers.append(normal(filters, taps, scale=gain * (1.5 / taps) ** 0.5))
        return self.add("convolutional", filters, filters=filters, size=size, stride=stride, pad=1,
                        activation=activation, **options)  # fmt: skip

    def same(self, kind: str, **options: object) -> int:
        return self.add(kind, self.channels[-1], **options)

    def route(self, *layers: int, groups: int = 1, group_id: int = 0) -> int:
        count = sum(self.channels[i] for i in layers) // groups
        options = {"groups": groups, "group_id": group_id} if groups > 1 else {}
        return self.add("route", count, layers=",".join(map(str, layers)), **options)

    def yolo(self, mask: str, classes: int = 4, **options: object) -> int:
        anchors = "4,5, 8,9, 12,10, 14,20, 18,15, 25,27"
        return self.add(
            "yolo", 0, mask=mask, anchors=anchors, classes=classes, num=6, thresh=0, **options
        )

    def write(
        self, folder: Path, formula: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> None:
        case = folder / self.name
        case.mkdir(parents=True, exist_ok=True)
        text, weights = case / "model.cfg", case / "model.weights"
        text.write_text("\n\n".join(self.text) + "\n")
        header = struct.pack("<iii", 0, self.version, 0)
        header += struct.pack("<Q" if self.version >= 2 else "<I", 0)
        numbers = [a.reshape(-1) for a in self.numbers]
        weights.write_bytes(header + np.concatenate([*numbers, np.zeros(0, "<f4")]).tobytes())
        x = RANDOM.uniform(0, 1, self.input).astype(np.float32)
        if formula is not None:
            results = [formula(x)]
        else:
            try:
                engine = cv2.dnn.readNetFromDarknet(str(text), str(weights))
                engine.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
                engine.setInput(x)
                results = engine.forward(engine.getUnconnectedOutLayersNames())
                if self.region is not None:  # OpenCV suppresses boxes that overlap, too
                    results = [self.region(engine.forward(f"conv_{self.last - 1}"))]
            except cv2.error as e:
                print(f"{self.name}: OpenCV: {str(e).splitlines()[0]}")
                return
        heads = [r[None] if r.ndim == 2 and formula is None else r for r in results]
        saved = {f"output:{i}": r.astype(np.float32) for i, r in enumerate(heads)}
        np.savez(case / "io.npz", **{"input:data": x}, **saved)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def region(anchors: str, softmax: bool, classes: int) -> Callable[[np.ndarray], np.ndarray]:
    """The rows of a region layer: boxes and scores of all cells and anchors."""
    pairs = np.array([float(a) for a in anchors.split(",")], np.float32).reshape(-1, 2)

    def rows(x: np.ndarray) -> np.ndarray:
        height, width = x.shape[2:]
        x = x.reshape(len(pairs), 5 + classes, height, width).transpose(2, 3, 0, 1)
        grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)[:, :, None]
        centre = (sigmoid(x[..., :2]) + grid) / [width, height]
        size = np.exp(x[..., 2:4]) * pairs / [width, height]
        scores = x[..., 5:]
        if softmax:
            scores = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        objects = sigmoid(x[..., 4:5])
        parts = centre, size, objects, objects * scores
        return np.concatenate(parts, -1).reshape(1, -1, 5 + classes)

    return rows


def layers(folder: Path) -> None:
    for name in ("linear", "leaky", "relu", "mish", "swish", "logistic", "tanh"):
        net = Net(f"conv_{name}")
        net.conv(8, 3, activation=name)
        net.conv(8, 1, activation="linear", norm=False)
        net.write(folder)
    for number, options in enumerate([{"groups": 2}, {"stride": 2}, {"norm": False}]):
        net = Net(f"conv_{number}", channels=4)
        net.conv(8, 3, **options)
        net.write(folder)
    net = Net("dilated", channels=1)
    net.conv(1, 3, activation="linear", norm=False, dilation=2)
    bias_c, w_c = net.numbers[-2], net.numbers[-1].reshape(3, 3)

    def dilated(x: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
        parts = (
            padded[:, :, 2 * i : 2 * i + 32, 2 * j : 2 * j + 32] * w_c[i, j]
            for i, j in np.ndindex(3, 3)
        )
        return sum(parts) + bias_c

    net.write(folder, dilated)
    net = Net("old_version", version=1)
    net.conv(8, 3, activation="relu", norm=False)
    net.write(folder)
    for size, stride in [(2, 2), (2, 1), (3, 2), (5, 1), (9, 1), (13, 1)]:
        net = Net(f"maxpool_{size}_{stride}", 15)
        net.conv(4, 1, norm=False)
        net.same("maxpool", size=size, stride=stride)
        net.write(folder)
    net = Net("head")
    net.conv(6, 3)
    net.same("avgpool")
    net.same("softmax")
    net.write(folder, None)
    for stride in (2, 4):
        net = Net(f"upsample_{stride}", 9)
        net.conv(6, 3)
        net.same("upsample", stride=stride)
        net.write(folder)
    net = Net("routes")
    a, b = net.conv(6, 3), net.conv(4, 3)
    net.route(a, b)
    net.conv(8, 3)
    net.route(net.last, groups=2, group_id=1)
    net.conv(4, 1)
    net.write(folder)
    net = Net("shortcuts")
    a = net.conv(8, 3)
    net.conv(8, 1)
    net.conv(8, 3)
    net.same("shortcut", from_=-3, activation="linear")
    net.conv(8, 3)
    net.same("shortcut", from_=a, activation="leaky")
    net.write(folder)
    net = Net("reorg")
    net.conv(8, 3)
    net.add("reorg", 32, stride=2)
    net.conv(8, 1)
    net.write(folder)
    net = Net("scale_channels")
    a = net.conv(8, 3)
    net.same("avgpool")
    net.conv(8, 1, activation="logistic", norm=False)
    net.same("scale_channels", from_=a)
    net.write(folder)
    net = Net("sam")
    a = net.conv(8, 3)
    net.conv(8, 1, activation="logistic")
    net.same("sam", from_=a)
    net.write(folder)
    for options in ({}, {"scale_x_y": 1.1}, {"new_coords": 1, "scale_x_y": 2.0}):
        net = Net(f"yolo_{len(options)}")
        net.conv(8, 3, 2)
        net.conv(27, 1, activation="logistic" if len(options) > 1 else "linear", norm=False)
        net.yolo("0,2,3", **options)
        net.write(folder)
    for softmax in (1,):
        net = Net(f"region_{softmax}")
        net.conv(8, 3, 2)
        net.conv(27, 1, activation="linear", norm=False)
        net.add("region", 0, anchors="1.3,1.7, 3.2,4.0, 5.0,8.1", classes=4, num=3, softmax=softmax,
                coords=4, bias_match=1, thresh=0)  # fmt: skip
        net.region = region("1.3,1.7, 3.2,4.0, 5.0,8.1", bool(softmax), 4)
        net.write(folder)
    net = Net("connected", 6)
    bias, w = normal(5), normal(5, 108, scale=0.1)
    net.numbers += [bias, w]
    net.add("connected", 5, output=5, activation="leaky")

    def dense(x: np.ndarray) -> np.ndarray:
        y = x.reshape(1, -1) @ w.T + bias
        return np.where(y > 0, y, 0.1 * y)

    net.write(folder, dense)
    net = Net("local", 6)
    bias_l, w_l = normal(4, 3, 3), normal(3, 3, 4, 27, scale=0.2)
    net.numbers += [bias_l, w_l]
    net.add("local", 4, filters=4, size=3, stride=2, pad=1, activation="linear")

    def local(x: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        y = np.zeros((1, 4, 3, 3), np.float32)
        for i, j in np.ndindex(3, 3):
            window = padded[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].reshape(-1)
            y[0, :, i, j] = w_l[i, j] @ window + bias_l[:, i, j]
        return y

    net.write(folder, local)
    net = Net("detection", 4, 1)
    count = 3 * 3 * (4 + 2 * 5)
    bias_d, w_d = normal(count), normal(count, 16)
    net.numbers += [bias_d, w_d]
    net.add("connected", count, output=count, activation="linear")
    net.add("detection", 0, classes=4, coords=4, side=3, num=2, softmax=0, sqrt=1)

    def detection(x: np.ndarray) -> np.ndarray:
        y = w_d @ x.reshape(-1) + bias_d
        classes, objects, boxes = (
            y[:36].reshape(9, 1, 4),
            y[36:54].reshape(9, 2, 1),
            y[54:].reshape(9, 2, 4),
        )
        grid = np.stack(np.meshgrid(np.arange(3), np.arange(3)), -1).reshape(9, 1, 2)
        parts = (boxes[..., :2] + grid) / 3, boxes[..., 2:] ** 2, objects, objects * classes
        return np.concatenate(parts, -1).reshape(1, 18, 9)

    net.write(folder, detection)


def yolo_v2() -> Net:
    net = Net("yolo_v2", 128)
    for filters in (8, 16):
        net.conv(filters, 3)
        net.same("maxpool", size=2, stride=2)
    for filters in (32, 64):
        net.conv(filters, 3)
        net.conv(filters // 2, 1)
        net.conv(filters, 3)
        net.same("maxpool", size=2, stride=2)
    kept = net.last - 1
    net.conv(64, 3)
    net.conv(128, 3)
    net.route(kept)
    net.conv(16, 1)
    net.add("reorg", 64, stride=2)
    net.route(net.last, net.last - 3)
    net.conv(128, 3)
    net.conv(5 * 25, 1, activation="linear", norm=False, gain=0.3)
    net.add("region", 0, anchors="1.3,1.7, 3.2,4.0, 5.0,8.1, 9.4,4.8, 11.2,10.0", classes=20, num=5,
            softmax=1, coords=4, bias_match=1, thresh=0)  # fmt: skip
    net.region = region("1.3,1.7, 3.2,4.0, 5.0,8.1, 9.4,4.8, 11.2,10.0", True, 20)
    return net


def yolo_v3() -> Net:
    net = Net("yolo_v3", 128)
    net.conv(8, 3)
    routes = []
    for filters, count in ((16, 1), (32, 2), (64, 2), (128, 2)):
        net.conv(filters, 3, 2)
        for _ in range(count):
            net.conv(filters // 2, 1)
            net.conv(filters, 3)
            net.same("shortcut", from_=-3, activation="linear")
        routes.append(net.last)
    for number, mask in enumerate(("4,5", "2,3", "0,1")):
        if number:
            net.route(net.last - 3)
            net.conv(32, 1)
            net.same("upsample", stride=2)
            net.route(net.last, routes[-1 - number])
        net.conv(32, 1)
        net.conv(64, 3)
        net.conv(2 * 9, 1, activation="linear", norm=False, gain=0.3)
        net.yolo(mask)
    return net


def yolo_v4() -> Net:
    net = Net("yolo_v4", 128)
    net.conv(8, 3, 2, "mish")
    routes = []
    for filters in (16, 32, 64):
        net.conv(filters, 3, 2, "mish")
        net.conv(filters // 2, 1, 1, "mish")
        first = net.last
        net.route(first - 1)
        net.conv(filters // 2, 1, 1, "mish")
        net.conv(filters // 2, 1, 1, "mish")
        net.conv(filters // 2, 3, 1, "mish")
        net.same("shortcut", from_=-3, activation="linear")
        net.route(net.last, first)
        net.conv(filters, 1, 1, "mish")
        routes.append(net.last)
    net.conv(32, 1)
    source = net.last
    pools = []
    for size in (5, 9, 13):
        pools.append(net.same("maxpool", size=size, stride=1))
        if size < 13:
            net.route(source)
    net.route(*reversed(pools), source)
    net.conv(64, 1)
    kept = net.last
    net.conv(2 * 9, 1, activation="linear", norm=False, gain=0.3)
    net.yolo("3,5", scale_x_y=1.05)
    net.route(kept)
    net.conv(32, 1)
    net.same("upsample", stride=2)
    net.route(routes[1])
    net.conv(32, 1)
    net.route(net.last, net.last - 2)
    net.conv(32, 3)
    net.conv(2 * 9, 1, activation="linear", norm=False, gain=0.3)
    net.yolo("0,1", scale_x_y=1.2)
    return net


def main() -> None:
    folder = Path(sys.argv[1])
    layers(folder)
    for net in (yolo_v2(), yolo_v3(), yolo_v4()):
        net.write(folder)


if __name__ == "__main__":
    main()
