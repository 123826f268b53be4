"""Host functions with a native form in the C runtime, for plain inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .table import Function


@dataclass(frozen=True, slots=True, eq=False)
class WithNative:
    """A host function that also has a native form.

    function: the Python form; runs for inputs that the native form refuses.
    native: name of a type of the C runtime (`csrc/native_*.c`), followed by the arguments with
        which an object of this type is made.
    """

    function: Function
    native: tuple[Any, ...]

    def __call__(self, *inputs: Any) -> Any:
        return self.function(*inputs)
