"""Descriptions of a model's inputs and outputs from its file: meaning, normalisation, labels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Described:
    """A description of an input or an output.

    about: its meaning, as text.
    mean, std: an element `x` of a picture becomes `(x - mean) / std` before the model reads it; a
        number for each channel or one for all; empty if the file states none.
    labels: names of the indices along the last axis.
    value_labels: names of the values.
    """

    about: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    value_labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [self.about] if self.about else []
        if self.is_normalized:
            parts.append(self.normalization)
        for named in (self.labels, self.value_labels):
            if named:
                more = ", ..." if len(named) > 3 else ""
                parts.append(f"labels ({len(named)}): {', '.join(named[:3])}{more}")
        return "; ".join(parts)

    @property
    def normalization(self) -> str:
        """The formula of the normalisation."""
        mean, std = (
            f"{v[0]:g}" if len(set(v)) == 1 else f"[{', '.join(f'{x:g}' for x in v)}]"
            for v in (self.mean, self.std)
        )
        return f"normalised as {'x' if mean == '0' else f'(x - {mean})'} / {std}"

    @property
    def is_normalized(self) -> bool:
        """Whether the model expects normalised numbers."""
        is_stated = self.mean and self.std and 0 not in self.std
        return bool(is_stated) and {*self.mean, *self.std} != {0.0, 1.0}

    @staticmethod
    def of_json(value: Any) -> Described:
        """A description from a file's JSON.  Entries that are no texts or numbers are left out."""
        said = value if isinstance(value, dict) else {}
        kept: dict[str, Any] = {}
        for f in fields(Described):
            entry = said.get(f.name)
            kind = str if f.type in ("str", "tuple[str, ...]") else (int, float)
            items = [entry] if f.type == "str" else entry
            if isinstance(items, (list, tuple)) and all(isinstance(i, kind) for i in items):
                kept[f.name] = entry if f.type == "str" else tuple(items)
        return Described(**kept)

    def normalized(self, pixels: np.ndarray) -> np.ndarray:
        """f32 numbers for the model.

        pixels: [..., channels], from 0 to 255.
        """
        mean, std = (np.array(v, np.float32) for v in (self.mean, self.std))
        return (pixels.astype(np.float32) - mean) / std
