"""Writes small ncnn models for tests."""

from __future__ import annotations

import struct
from pathlib import Path

from tilesmith.frontend.ncnn.binary import FIRST_LIST, TYPES


def written(folder: Path, *layers: str, weights: bytes = b"") -> Path:
    text = "\n".join(["7767517", f"{len(layers)} {len(layers)}", *layers])
    (folder / "net.param").write_text(text + "\n")
    (folder / "net.bin").write_bytes(weights)
    return folder / "net.param"


def binary(text: str) -> bytes:
    """A `.param` in the form of a `.param.bin`."""
    magic, counts, *lines = text.splitlines()
    words = [int(magic), *map(int, counts.split())]
    places: dict[str, int] = {}
    for line in lines:
        kind, _, reads, makes, *rest = line.split()
        names = int(reads) + int(makes)
        words += [TYPES.index(kind), int(reads), int(makes)]
        words += [places.setdefault(name, len(places)) for name in rest[:names]]
        for parameter in rest[names:]:
            key, value = parameter.split("=")
            number, values = int(key), value.split(",")
            if number <= FIRST_LIST:
                values = values[1:]
            elif len(values) > 1:
                number = FIRST_LIST - number
            words += [number, *([len(values)] if number <= FIRST_LIST else [])]
            words += map(_bits, values)
        words.append(-233)
    words[2] = len(places)
    return struct.pack(f"<{len(words)}i", *words)


def _bits(value: str) -> int:
    is_float = any(c in value for c in ".e")
    return struct.unpack("<i", struct.pack("<f", float(value)))[0] if is_float else int(value)
