"""TVM's context and sequence of passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class PassContext:
    """Accepted for TVM's scripts.

    `tilesmith.compile` always runs all of its passes, which keep the answers within the accuracy
    policy (docs/accuracy.md), so levels and settings have no effect.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Any = None,
        config: Any = None,
    ) -> None:
        self.opt_level = opt_level

    def __enter__(self) -> PassContext:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Sequential:
    """Passes that are called one after another."""

    def __init__(self, passes: Sequence[Callable[[Any], Any]], opt_level: int = 2) -> None:
        self.passes = tuple(passes)

    def __call__(self, mod: Any) -> Any:
        for change in self.passes:
            mod = change(mod)
        return mod
