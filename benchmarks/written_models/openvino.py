"""Writes small OpenVINO models for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class Net:
    """Layers, edges and the contents of constants."""

    def __init__(self, shape: str = "?,3,?,?") -> None:
        self.layers: list[str] = []
        self.edges: list[str] = []
        self.content = b""
        self.x = self.add("Parameter", f'shape="{shape}" element_type="f32"', names="x")

    def add(self, kind: str, data: str, *inputs: int, outputs: int = 1, names: str = "") -> int:
        number = len(self.layers)
        reads = "".join(f'<port id="{i}"/>' for i in range(len(inputs)))
        named = f' names="{names}"' if names else ""
        makes = "".join(f'<port id="{len(inputs) + i}"{named}/>' for i in range(outputs))
        self.layers.append(
            f'<layer id="{number}" name="{kind.lower()}" type="{kind}"><data {data}/>'
            f"<input>{reads}</input><output>{makes}</output></layer>"
        )
        for i, source in enumerate(inputs):
            port = self.layers[source].split("<input>")[1].split("</input>")[0].count("<port")
            self.edges.append(
                f'<edge from-layer="{source}" from-port="{port}" '
                f'to-layer="{number}" to-port="{i}"/>'
            )
        return number

    def const(self, array: np.ndarray, kind: str = "", raw: bytes | None = None) -> int:
        raw = array.tobytes() if raw is None else raw
        kind = kind or {"f": "f", "i": "i", "u": "u"}[array.dtype.kind] + str(8 * array.itemsize)
        shape = ",".join(map(str, array.shape))
        place = f'offset="{len(self.content)}" size="{len(raw)}"'
        self.content += raw
        return self.add("Const", f'element_type="{kind}" shape="{shape}" {place}')

    def write(self, folder: Path, *results: int) -> Path:
        for r in results:
            self.add("Result", "", r, outputs=0)
        text = f'<?xml version="1.0"?>\n<net name="n" version="11"><layers>{"".join(self.layers)}'
        text += f"</layers><edges>{''.join(self.edges)}</edges></net>"
        (folder / "net.xml").write_text(text)
        (folder / "net.bin").write_bytes(self.content)
        return folder / "net.xml"
