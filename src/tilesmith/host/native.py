"""Host functions that the C runtime has in a form of its own, for plain inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .functions import Function


@dataclass(frozen=True, slots=True, eq=False)
class WithNative:
    """A function of inputs.

    function: what it computes; runs for inputs that the native form refuses.
    native: a type of the C runtime by name (`csrc/native_*.c`), and its arguments.
    """

    function: Function
    native: tuple[Any, ...]

    def __call__(self, *inputs: Any) -> Any:
        return self.function(*inputs)
