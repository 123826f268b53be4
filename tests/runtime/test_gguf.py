"""GGUF files: what is in them, each type of blocks, weights for models, and damaged files."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect
from tilesmith.runtime.blocks import BLOCKS
from tilesmith.runtime.gguf import read_gguf
from tilesmith.runtime.weights import arrays_of
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.gguf import gguf, text

RANDOM = np.random.default_rng(0)
NUMBERS = {block.name: number for number, block in BLOCKS.items()}
CODES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def half(b, at):
    return np.float32(np.frombuffer(b[at : at + 2], np.float16)[0])


def nibble(b, at, i):
    """Number i of 32: the low half of byte i, then the high half of byte i - 16."""
    return b[at + i % 16] >> (4 if i >= 16 else 0) & 15


def pair(b, at, i):
    """Number i of 256: runs of 32 low halves and of 32 high halves."""
    return b[at + i // 64 * 32 + i % 32] >> (4 if i % 64 >= 32 else 0) & 15


def two(b, at, i):
    """Number i of 256, of 2 bits: four runs of 32 share 32 bytes."""
    return b[at + i // 128 * 32 + i % 32] >> (i % 128 // 32 * 2) & 3


def fifth(b, at, i):
    return int.from_bytes(b[at : at + 4], "little") >> i & 1


def six_bits(b, at, j):
    """Scale j and offset j of 8."""
    s = b[at : at + 12]
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4


def q3_scale(b, at, j):
    low = b[at + j % 8] >> (4 if j >= 8 else 0) & 15
    return (low | (b[at + 8 + j % 4] >> (j // 4 * 2) & 3) << 4) - 32


def signed(byte):
    return byte - 256 if byte > 127 else byte


def q4_large(b, i, high=0, at=16):
    scale, least = six_bits(b, 4, i // 32)
    return half(b, 0) * np.float32(scale) * np.float32(pair(b, at, i) | high) - half(b, 2) * least


def q6(b, i):
    run, inner = divmod(i, 128)
    low = b[run * 64 + inner % 64] >> (4 if inner >= 64 else 0) & 15
    high = b[128 + run * 32 + inner % 32] >> (inner // 32 * 2) & 3
    return half(b, 208) * signed(b[192 + i // 16]) * ((low | high << 4) - 32)


def iq4_large(b, i):
    j = i // 32
    low = b[4 + j // 2] >> (j % 2 * 4) & 15
    scale = low | (int.from_bytes(b[2:4], "little") >> (2 * j) & 3) << 4
    return half(b, 0) * (scale - 32) * CODES[nibble(b, 8 + j * 16, i % 32)]


ELEMENTS = {
    "Q4_0": lambda b, i: half(b, 0) * (nibble(b, 2, i) - 8),
    "Q4_1": lambda b, i: half(b, 0) * nibble(b, 4, i) + half(b, 2),
    "Q5_0": lambda b, i: half(b, 0) * ((nibble(b, 6, i) | fifth(b, 2, i) << 4) - 16),
    "Q5_1": lambda b, i: half(b, 0) * (nibble(b, 8, i) | fifth(b, 4, i) << 4) + half(b, 2),
    "Q8_0": lambda b, i: half(b, 0) * signed(b[2 + i]),
    "Q2_K": lambda b, i: (
        half(b, 80) * (b[i // 16] & 15) * two(b, 16, i) - half(b, 82) * (b[i // 16] >> 4)
    ),
    "Q3_K": lambda b, i: (
        half(b, 108)
        * q3_scale(b, 96, i // 16)
        * (two(b, 32, i) - (0 if b[i % 32] >> (i // 32) & 1 else 4))
    ),
    "Q4_K": q4_large,
    "Q5_K": lambda b, i: q4_large(b, i, (b[16 + i % 32] >> (i // 32) & 1) << 4, 48),
    "Q6_K": q6,
    "IQ4_NL": lambda b, i: half(b, 0) * CODES[nibble(b, 2, i)],
    "IQ4_XS": iq4_large,
}
"""Element i of a block, by the type's name."""


@pytest.mark.parametrize("kind", ELEMENTS)
def test_each_type_of_blocks(kind):
    block = BLOCKS[NUMBERS[kind]]
    count = 3
    stored = RANDOM.integers(0, 256, (count, block.stored.itemsize), np.uint8)
    for name in ("d", "m"):  # scales that are finite
        if name in (block.stored.fields or {}):
            at = block.stored.fields[name][1]
            scales = RANDOM.uniform(0.01, 1, count).astype(np.float16)
            stored[:, at : at + 2] = scales[:, None].view(np.uint8)
    file = gguf({"w": (NUMBERS[kind], (1, count * block.elements), stored.tobytes())})
    found = read_gguf(file).tensors["w"].read()
    blocks = [row.tolist() for row in stored]
    raw = [bytes(b) for b in blocks]
    wanted = [ELEMENTS[kind](b, i) for b in raw for i in range(block.elements)]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], np.array(wanted, np.float32), 1e-5, 1e-4)


def test_all_types_have_a_formula_here():
    assert set(ELEMENTS) == set(NUMBERS)


def plain(array, kind):
    return kind, array.shape, array.tobytes()


def test_contents_of_a_file(tmp_path):
    a = RANDOM.uniform(-1, 1, (2, 3)).astype(np.float32)
    h = a.astype(np.float16)
    b = a.astype(ml_dtypes.bfloat16)
    entries = text("general.name") + struct.pack("<I", 8) + text("tiny")
    entries += text("sizes") + struct.pack("<IIQ2i", 9, 5, 2, -3, 4)
    entries += text("words") + struct.pack("<IIQ", 9, 8, 20) + text("x") * 20
    entries += text("ratio") + struct.pack("<If", 6, 0.5) + text("is") + struct.pack("<I?", 7, True)
    tensors = {"a": plain(a, 0), "h": plain(h, 1), "b": plain(b, 30)}
    path = tmp_path / "file"
    path.write_bytes(gguf(tensors, entries, 5))
    read = arrays_of(path)
    for name, array in {"a": a, "h": h, "b": b}.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    facts = inspect(path)
    assert facts.format == "GGUF, version 3"
    assert facts.weight_bytes == 48
    assert facts.metadata == {
        "general.name": "tiny",
        "sizes": ["-3", "4"],
        "words": "20 elements",
        "ratio": 0.5,
        "is": True,
        "a": "f32[2,3]",
        "h": "f16[2,3]",
        "b": "bf16[2,3]",
    }
    with pytest.raises(ModelError, match="weights but no graph"):
        ts.compile(path)


def test_weights_of_a_model_come_from_a_file(tmp_path):
    from onnx import TensorProto, helper, numpy_helper

    w = np.ones((32, 2), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, d)
            for n, d in (("x", [1, 32]), ("y", [1, 2])))  # fmt: skip
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    exe = ts.compile(helper.make_model(graph))
    other = RANDOM.uniform(-1, 1, (32, 2)).astype(np.float32)
    path = tmp_path / "w.gguf"
    path.write_bytes(gguf({"w": plain(other, 0)}))
    exe.load_weights(path)
    given = RANDOM.uniform(-1, 1, (1, 32)).astype(np.float32)
    np.testing.assert_allclose(exe.run({"x": given})["y"], given @ other, 1e-4, 1e-5)


def test_damaged_files_are_refused(tmp_path):
    a = RANDOM.uniform(-1, 1, (2, 3)).astype(np.float32)
    entries = text("n") + struct.pack("<II", 4, 7)
    whole = gguf({"a": plain(a, 0)}, entries, 1)
    for size in range(4, len(whole), 3):
        with pytest.raises(ModelError, match="GGUF file: "):
            read_gguf(whole[:size])
    with pytest.raises(UnsupportedError, match="expected version 2 or 3, found 1"):
        read_gguf(gguf({}, version=1))
    with pytest.raises(UnsupportedError, match="tensor 'a': element type number 16"):
        read_gguf(gguf({"a": (16, (1, 256), bytes(66))}))
    with pytest.raises(ModelError, match="expected rows of blocks of 32 elements"):
        read_gguf(gguf({"a": (2, (2, 16), bytes(18))}))
    with pytest.raises(ModelError, match=r"expected extents above 0, found \(0, 32\)"):
        read_gguf(gguf({"a": (2, (0, 32), b"")}))
    with pytest.raises(ModelError, match="at most 8 axes, found 9"):
        read_gguf(gguf({"a": (0, (1,) * 9, bytes(4))}))
    with pytest.raises(ModelError, match="tensor 'a': expected"):
        read_gguf(gguf({"a": (0, (1 << 40, 1 << 40), bytes(4))}))
    with pytest.raises(ModelError, match="type below 13"):
        read_gguf(gguf({}, text("n") + struct.pack("<I", 77) + bytes(8), 1))
    nested = text("n") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9
    with pytest.raises(ModelError, match="type below 13"):
        read_gguf(gguf({}, nested, 1))
    zero = text("general.alignment") + struct.pack("<II", 4, 0)
    with pytest.raises(ModelError, match=r"general\.alignment: expected 1 to"):
        read_gguf(gguf({}, zero, 1))
    path = tmp_path / "w.gguf"
    path.write_bytes(whole[:40])
    with pytest.raises(ModelError, match=r"w\.gguf: GGUF file"):
        arrays_of(path)
