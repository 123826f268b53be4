"""ncnn alone beside ncnn with compiled layers, on MobileNet and SqueezeNet with random weights.

    python -m benchmarks.ncnn_networks [--threads N]

The networks have the layers of MobileNet 1.0 (arXiv:1704.04861) and SqueezeNet 1.1
(arXiv:1602.07360), as ncnn's tools write them.  A row for each set of replaced layers has the
median time of interleaved calls and the largest error relative to the largest answer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ncnn
import numpy as np

import tilesmith as ts

SHAPE = (3, 224, 224)
ROUNDS = 30
SETS: dict[str, frozenset[str] | None] = {
    "all layers": None,
    "convolutions": frozenset({"Convolution", "ConvolutionDepthWise"}),
    "pooling": frozenset({"Pooling"}),
    "products": frozenset({"InnerProduct"}),
    "softmax": frozenset({"Softmax"}),
}


class Writer:
    """Layers in text and their weights, of which each reads what the last one made."""

    def __init__(self) -> None:
        self.lines = [f"Input data 0 1 data 0={SHAPE[2]} 1={SHAPE[1]} 2={SHAPE[0]}"]
        self.weights: list[bytes] = []
        self.random = np.random.default_rng(0)
        self.blob, self.channels = "data", SHAPE[0]

    def add(self, kind: str, params: str = "", bottoms: str = "", tops: str = "") -> str:
        bottoms, name = bottoms or self.blob, f"layer{len(self.lines)}"
        tops = tops or name
        counts = f"{len(bottoms.split())} {len(tops.split())}"
        self.lines.append(f"{kind} {name} {counts} {bottoms} {tops} {params}")
        self.blob = name
        return name

    def conv(
        self,
        count: int,
        size: int,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        bottom: str = "",
    ) -> str:
        shape = (count, self.channels // groups, size, size)
        weight = self.random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        self.weights += [bytes(4), weight.astype("<f4").tobytes(), bytes(4 * count)]
        kind = "ConvolutionDepthWise" if groups > 1 else "Convolution"
        params = f"0={count} 1={size} 3={stride} 4={pad} 5=1 6={weight.size} 9=1"
        self.channels = count
        return self.add(kind, params + (f" 7={groups}" if groups > 1 else ""), bottom)

    def product(self, count: int) -> str:
        weight = self.random.standard_normal((count, self.channels)) / np.sqrt(self.channels)
        self.weights += [bytes(4), weight.astype("<f4").tobytes(), bytes(4 * count)]
        return self.add("InnerProduct", f"0={count} 1=1 2={weight.size}")

    def write(self, folder: Path) -> tuple[Path, Path]:
        blobs = sum(int(line.split()[3]) for line in self.lines)
        text = ["7767517", f"{len(self.lines)} {blobs}", *self.lines, ""]
        param, weights = folder / "net.param", folder / "net.bin"
        param.write_text("\n".join(text))
        weights.write_bytes(b"".join(self.weights))
        return param, weights


def mobilenet() -> Writer:
    w = Writer()
    w.conv(32, 3, 2, 1)
    for count, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
                          *[(512, 1)] * 5, (1024, 2), (1024, 1)):  # fmt: skip
        w.conv(w.channels, 3, stride, 1, w.channels)
        w.conv(count, 1)
    w.add("Pooling", "0=1 4=1")
    w.product(1000)
    w.add("Softmax")
    return w


def squeezenet() -> Writer:
    w = Writer()
    w.conv(64, 3, 2)
    for squeezed, count, pooled in ((16, 64, True), (16, 64, False), (32, 128, True),
                                    (32, 128, False), (48, 192, True), (48, 192, False),
                                    (64, 256, False), (64, 256, False)):  # fmt: skip
        if pooled:
            w.add("Pooling", "0=0 1=3 2=2")
        w.conv(squeezed, 1)
        name = w.blob
        w.add("Split", "", name, f"{name}_a {name}_b")
        left = w.conv(count, 1, bottom=f"{name}_a")
        w.channels = squeezed
        right = w.conv(count, 3, 1, 1, bottom=f"{name}_b")
        w.add("Concat", "0=0", f"{left} {right}")
        w.channels = 2 * count
    w.conv(1000, 1)
    w.add("Pooling", "0=1 4=1")
    w.add("Softmax")
    return w


NETWORKS: dict[str, Callable[[], Writer]] = {"mobilenet": mobilenet, "squeezenet": squeezenet}


def answer(net: ncnn.Net, x: np.ndarray, output: str) -> np.ndarray:
    extractor = net.create_extractor()
    extractor.input("data", ncnn.Mat(x))
    status, found = extractor.extract(output)
    assert status == 0, status
    return np.array(found)


def seconds(nets: list[ncnn.Net], x: np.ndarray, output: str) -> list[float]:
    """The median time of each net, measured in turn."""
    times: list[list[float]] = [[] for _ in nets]
    for _ in range(ROUNDS):
        for net, own in zip(nets, times):
            begin = time.perf_counter()
            answer(net, x, output)
            own.append(time.perf_counter() - begin)
    return [statistics.median(own[ROUNDS // 5 :]) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    x = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    for name, make in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            writer = make()
            param, weights = writer.write(Path(folder))
            alone = ncnn.Net()
            alone.opt.num_threads = threads
            alone.load_param(str(param))
            alone.load_model(str(weights))
            nets = [alone] + [
                ts.ncnn.load(param, weights, types=types, threads=threads)
                for types in SETS.values()
            ]
            answers = [answer(net, x, writer.blob) for net in nets]
            scale = np.abs(answers[0]).max()
            times = seconds(nets, x, writer.blob)
            for row, y, t in zip(("ncnn", *SETS), answers, times):
                error = np.abs(y - answers[0]).max() / scale
                print(f"{name:11} {row:13} {t * 1e3:8.2f} ms {t / times[0]:6.2f} {error:9.1e}")


if __name__ == "__main__":
    main()
