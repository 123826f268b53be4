"""JSON values with their place in the file, for error messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from tilesmith.support.errors import ModelError


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value.  Every method that reads it raises ModelError for a value of another kind.

    value: the value that Python's `json` returns.
    place: the file, and the keys that lead to the value.
    """

    value: Any
    place: str

    def bad(self, expected: str) -> NoReturn:
        raise ModelError(f"{self.place}: expected {expected}, found {_shown(self.value)}")

    def __getitem__(self, key: str) -> Json:
        """The value under a key of an object."""
        if not isinstance(self.value, dict) or key not in self.value:
            self.bad(f"an object with {key!r}")
        return Json(self.value[key], f"{self.place}.{key}")

    def get(self, key: str) -> Json | None:
        """The value under a key of an object; None if the key is missing or its value is null."""
        if not isinstance(self.value, dict):
            self.bad("an object")
        return None if self.value.get(key) is None else self[key]

    def items(self) -> Iterator[tuple[str, Json]]:
        """The keys and values of an object."""
        if not isinstance(self.value, dict):
            self.bad("an object")
        return ((key, Json(v, f"{self.place}.{key}")) for key, v in self.value.items())

    def values(self) -> list[Json]:
        """The values of an object."""
        return [value for _, value in self.items()]

    def one(self) -> tuple[str, Json]:
        """The key and the value of an object with a single key.  PyTorch's schema writes unions in
        this form.
        """
        if not isinstance(self.value, dict) or len(self.value) != 1:
            self.bad("an object with one key")
        return next(self.items())

    def list(self) -> list[Json]:
        if not isinstance(self.value, list):
            self.bad("a list")
        return [Json(v, f"{self.place}[{i}]") for i, v in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.bad("text")
        return self.value

    def integer(self, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
        if type(self.value) is not int or not low <= self.value <= high:
            self.bad(f"an integer from {low} to {high}")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            self.bad("true or false")
        return self.value

    def number(self) -> float:
        """A float.  PyTorch writes infinities and NaN as text, since JSON lacks them."""
        special = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
        if isinstance(self.value, str) and self.value in special:
            return special[self.value]
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.bad("a number")
        return float(self.value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
