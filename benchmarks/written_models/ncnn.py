"""Writes small ncnn models for tests."""

from __future__ import annotations

from pathlib import Path


def written(folder: Path, *layers: str, weights: bytes = b"") -> Path:
    text = "\n".join(["7767517", f"{len(layers)} {len(layers)}", *layers])
    (folder / "net.param").write_text(text + "\n")
    (folder / "net.bin").write_bytes(weights)
    return folder / "net.param"
