"""A Llama-style decoder with weights of 4 bits: a prompt, then tokens one after the other.

    python examples/decoder.py                 # a small one
    python examples/decoder.py --size 1b       # 1.2 billion weights, 0.6 GB

The model is ONNX, as exporters of language models write it: `MatMulNBits` for each product,
`GroupQueryAttention` with rotary embeddings and a cache of keys and values, RMS normalisation, a
gated linear unit (SwiGLU).  Weights are random.

One program is compiled.  The number of tokens of a call is open: the prompt is one call, each new
token another.  So is the capacity of the cache, whose arrays the program updates in place.

A generated token reads every weight once.  So the bytes of the weights, and the rate at which the
machine's threads read memory, limit the tokens per second; both are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith import te

MICROSOFT = "com.microsoft"
ROTATION = 10000.0  # base of the rotary embedding's wavelengths


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder.

    layers: number of layers.
    hidden: numbers that stand for a token.
    heads, shared: heads of queries, and of keys and values.
    inner: width of the gated linear unit.
    vocabulary: number of tokens.
    block: weights that share a scale.
    """

    layers: int
    hidden: int
    heads: int
    shared: int
    inner: int
    vocabulary: int
    block: int = 32

    @property
    def width(self) -> int:
        """Numbers of a head."""
        return self.hidden // self.heads


SIZES = {
    "tiny": Sizes(2, 64, 4, 2, 96, 100),
    "small": Sizes(4, 512, 8, 2, 1536, 4000),
    "1b": Sizes(16, 2048, 32, 8, 8192, 128256),
}


class DecoderModel:
    """Makes the ONNX model of a decoder.

    products: by name, the codes [outputs, blocks, bytes] and scales [outputs, blocks] of weights.
    """

    def __init__(self, sizes: Sizes, positions: int, seed: int = 0) -> None:
        """positions: the longest sequence, prompt and generated tokens together."""
        self.sizes, self.positions = sizes, positions
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.products: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **more) -> str:
        self.nodes.append(helper.make_node(kind, [*inputs], [output], output, None, domain, **more))
        return output

    def table(self, name: str, rows: int, columns: int) -> tuple[str, str]:
        """Random codes of 4 bits, two in a byte, and their scales; the weights have mean 0."""
        blocks = columns // self.sizes.block
        codes = self.rng.integers(0, 256, (rows, blocks, self.sizes.block // 2), dtype=np.uint8)
        spread = self.rng.uniform(0.5, 1.5, (rows, blocks)) / (4.6 * columns**0.5)
        scales = spread.astype(np.float32)
        self.products[name] = codes, scales
        return self.constant(f"{name}.codes", codes), self.constant(f"{name}.scales", scales)

    def product(self, x: str, name: str, inputs: int, outputs: int) -> str:
        operands = [x, *self.table(name, outputs, inputs)]
        sizes = {"K": inputs, "N": outputs, "bits": 4, "block_size": self.sizes.block}
        return self.add("MatMulNBits", operands, name, MICROSOFT, **sizes)

    def norm(self, x: str, name: str) -> str:
        weight = self.constant(f"{name}.weight", np.ones(self.sizes.hidden, np.float32))
        return self.add("RMSNormalization", [x, weight], name, axis=-1, epsilon=1e-5)

    def angles(self) -> list[str]:
        """The cosines and sines of each position."""
        steps = np.arange(0, self.sizes.width, 2) / self.sizes.width
        turned = np.outer(np.arange(self.positions), ROTATION**-steps)
        return [
            self.constant(name, f(turned).astype(np.float32))
            for name, f in (("cos", np.cos), ("sin", np.sin))
        ]

    def layer(self, i: int, x: str, angles: Sequence[str]) -> str:
        s, at = self.sizes, f"layer{i}."
        normal = self.norm(x, f"{at}before")
        own = s.shared * s.width
        parts = [
            self.product(normal, f"{at}{name}", s.hidden, outputs)
            for name, outputs in (("q", s.hidden), ("k", own), ("v", own))
        ]
        names = [f"{at}{n}" for n in ("attention", "key", "value")]
        caches = [f"{at}past_key", f"{at}past_value"]
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention", [*parts, *caches, "last", "total", *angles], names, names[0],
                domain=MICROSOFT, num_heads=s.heads, kv_num_heads=s.shared, do_rotary=1,
            )
        )  # fmt: skip
        x = self.add("Add", [x, self.product(names[0], f"{at}o", s.hidden, s.hidden)], f"{at}mid")
        normal = self.norm(x, f"{at}after")
        gate, up = (
            self.product(normal, f"{at}{name}", s.hidden, s.inner) for name in ("gate", "up")
        )
        gate = self.add("Mul", [gate, self.add("Sigmoid", [gate], f"{at}open")], f"{at}silu")
        gated = self.add("Mul", [gate, up], f"{at}gated")
        return self.add("Add", [x, self.product(gated, f"{at}down", s.inner, s.hidden)], f"{at}x")

    def model(self) -> onnx.ModelProto:
        """Inputs: tokens [1, n], last (position of the last token, [1]) and total (their number),
        and for each layer keys and values [1, heads, capacity, width].  Outputs: the scores of the
        next token [1, 1, vocabulary], and the caches.
        """
        s = self.sizes
        operands = self.table("embedding", s.vocabulary, s.hidden)
        flat = self.constant("rows", np.array([s.vocabulary, s.hidden // 2]))
        table = self.add("Reshape", [operands[0], flat], "embedding.rows")
        x = self.add(
            "GatherBlockQuantized", [table, "tokens", operands[1]], "embedding", MICROSOFT,
            bits=4, block_size=s.block,
        )  # fmt: skip
        angles = self.angles()
        for i in range(s.layers):
            x = self.layer(i, x, angles)
        first, end, axis = (
            self.constant(f"latest.{name}", np.array([value]))
            for name, value in (("start", -1), ("end", 2**62), ("axis", 1))
        )
        x = self.add("Slice", [x, first, end, axis], "latest")
        scores = self.product(self.norm(x, "final"), "scores", s.hidden, s.vocabulary)
        kind, cache = TensorProto.FLOAT, [1, s.shared, "capacity", s.width]
        inputs = [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "n"]),
            helper.make_tensor_value_info("last", TensorProto.INT32, [1]),
            helper.make_tensor_value_info("total", TensorProto.INT32, []),
        ]
        outputs = [helper.make_tensor_value_info(scores, kind, [1, 1, s.vocabulary])]
        for present, past in in_place(s).items():
            inputs.append(helper.make_tensor_value_info(past, kind, cache))
            outputs.append(helper.make_tensor_value_info(present, kind, cache))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11)

    def read_bytes(self) -> int:
        """The bytes of the weights that each token reads: all but the table of embeddings."""
        return sum(
            c.nbytes + scales.nbytes
            for name, (c, scales) in self.products.items()
            if name != "embedding"
        )


def in_place(sizes: Sizes) -> dict[str, str]:
    """The caches that a call returns, and those that it takes."""
    return {
        f"layer{i}.{part}": f"layer{i}.past_{part}"
        for i in range(sizes.layers)
        for part in ("key", "value")
    }


class Decoder:
    """A compiled decoder and its caches."""

    def __init__(
        self, model: onnx.ModelProto, sizes: Sizes, capacity: int, threads: int | None = None
    ) -> None:
        caches = in_place(sizes)
        self.exe = ts.compile(model, threads=threads, in_place=caches)
        shape = (1, sizes.shared, capacity, sizes.width)
        self.state = {past: np.zeros(shape, np.float32) for past in caches.values()}
        self.length = 0

    def __call__(self, tokens: Sequence[int]) -> np.ndarray:
        """The scores of the token that follows `tokens`, which follow those of earlier calls."""
        self.length += len(tokens)
        given = {
            "tokens": np.array([tokens], np.int64),
            "last": np.array([self.length - 1], np.int32),
            "total": np.array(self.length, np.int32),
        }
        return self.exe.run({**given, **self.state})["scores"][0, 0]

    def generate(self, prompt: Sequence[int]) -> Iterator[int]:
        """The most likely tokens behind a prompt."""
        scores = self(prompt)
        while True:
            token = int(scores.argmax())
            yield token
            scores = self([token])


def stream(threads: int, size: int = 512 << 20) -> float:
    """Bytes per second that `threads` threads read from memory, adding vectors up."""
    rows, width, parts = 4096, 64, 4 * threads
    count = size // (4 * rows * width * parts) * parts
    a = te.placeholder((count, rows, width), "f32", "a")
    r = te.reduce_axis(rows, "r")
    total = te.compute((count, width), lambda i, j: te.sum(a[i, r, j], axis=r), "total")
    s = te.create_schedule(total)
    acc = s.cache_write(total, "register")
    part, column = s[total].axis
    s[total].parallel(part)
    vectors, lanes = s[total].split(column, factor=8)
    s[total].unroll(vectors)
    s[total].vectorize(lanes)
    s[acc].compute_at(s[total], part)
    own, column = s[acc].axis
    (row,) = s[acc].reduce_axis
    vectors, lanes = s[acc].split(column, factor=8)
    s[acc].reorder(own, row, vectors, lanes)
    s[acc].unroll(vectors)
    s[acc].vectorize(lanes)
    read = ts.build(s, [a, total], threads=threads)
    source, out = np.ones((count, rows, width), np.float32), np.empty((count, width), np.float32)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        read(source, out)
        best = min(best, time.perf_counter() - start)
    return source.nbytes / best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to generate")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    sizes = SIZES[given.size]
    maker = DecoderModel(sizes, given.prompt + given.tokens)
    decoder = Decoder(maker.model(), sizes, maker.positions, given.threads)
    prompt = np.random.default_rng(1).integers(0, sizes.vocabulary, given.prompt).tolist()
    start = time.perf_counter()
    tokens = decoder.generate(prompt)
    found = [next(tokens)]
    first = time.perf_counter()
    found += [next(tokens) for _ in range(given.tokens - 1)]
    rate = (given.tokens - 1) / (time.perf_counter() - first)
    limit = stream(given.threads) / maker.read_bytes()
    print(f"prompt: {given.prompt / (first - start):.0f} tokens/s")
    print(f"generation: {rate:.1f} tokens/s, {rate / limit:.0%} of the limit, {limit:.1f}")
    print(f"weights: {maker.read_bytes() / 1e6:.0f} MB; tokens: {found[:8]} ...")


if __name__ == "__main__":
    main()
