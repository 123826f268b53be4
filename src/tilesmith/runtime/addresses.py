"""Calls by addresses of memory, for callers who know the types and shapes of what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .executable import Executable
from .sizes import RunSizes


class Addressed(Executable):
    """An executable that also runs on memory whose addresses are given."""

    @property
    def takes_addresses(self) -> bool:
        """Whether `run_at` can run the program: no result's shape depends on data, none lives in an
        input, and nothing runs on the host.
        """
        return self._host is None and self._homes is None and not self.program.grown

    def run_at(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...], sizes: RunSizes | None = None
    ) -> None:
        """Run the model on memory that holds arrays in row-major order.  Nothing is checked: memory
        of another size, or results that overlap other memory, break the process.

        sizes: what `sizes_of` says, for a program with open dimensions.

        Raises ModelError if the run fails.
        """
        more = () if sizes is None else (sizes.call,)
        status = self._runner.call_at(inputs, outputs, *more)
        if status != 0:
            self._check(status)

    @property
    def call_at(self) -> Callable[[tuple[int, ...], tuple[int, ...]], Any]:
        """`run_at` without its frame, for programs without open dimensions: gives 0, or what
        `check` raises as an error.
        """
        return self._runner.call_at

    def check(self, status: Any) -> None:
        """Raises ModelError for what a run gave that is not 0."""
        self._check(status)

    def sizes_of(self, arrays: Sequence[Any]) -> RunSizes | None:
        """The sizes of a run on arrays or tensors whose types and ranks are right; None for a
        program without open dimensions.  Raises ModelError for sizes that it does not take.
        """
        return None if self._sizes is None else self._sizes.of(arrays)
