"""Handling of device failures: the CPU runs the model instead, and memory that kernels still use
stays allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.support.errors import DeviceError
from tilesmith.support.logs import logger

from .program import Program
from .runner import Runner, Times
from .shared_memory import is_shared

_log = logger("device")

_late: set[Runner] = set()
"""Runners whose kernels may still run.  Each runner keeps the memory of its kernels."""


def log_fallback(target: str, reason: DeviceError) -> None:
    """Log that the CPU computes instead of a device."""
    _log.warning('target %r: the CPU answers from now on (fallback="cpu"): %s', target, reason)


class GuardedRunner(Runner):
    """A wrapper around the runner of a device's program; calls of that runner may raise
    DeviceError.

    inner: the wrapped runner.
    cpu: the CPU's executable, which answers calls after the device has failed.
    """

    def __init__(
        self, runner: Runner, stand_in: Callable[[], Callable[..., Any]] | None = None
    ) -> None:
        """Wrap a runner.

        stand_in: makes the CPU's executable after a failure; None for no fallback.
        """
        self.inner, self._stand_in = runner, stand_in
        self.program, self.threads, self.limits = runner.program, runner.threads, runner.limits
        self.cpu: Callable[..., Any] | None = None

    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """Run the program (see `Runner`).

        Raises DeviceError if the device fails and the CPU does not run the model instead.  The CPU
        can't run it if arrays are on the device.
        """
        if self.cpu is None:
            try:
                results = self.inner.call(arrays, out)
                _late.discard(self.inner)
                return results
            except DeviceError as e:
                if self.limits.seconds is not None:
                    _late.add(self.inner)
                outputs = out if isinstance(out, (tuple, list)) else (out,)
                if self._stand_in is None or any(map(is_shared, (*arrays, *outputs))):
                    raise
                log_fallback(self.program.target.name, e)
                self.cpu = self._stand_in()
        return self.cpu(*arrays, out=out)

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        return self.inner.timed(arrays, repeats, both)

    def trim(self) -> int:
        return self.inner.trim()

    def become(self, program: Program) -> None:
        self.program = program
        if self.cpu is None:
            self.inner.become(program)
        else:
            assert self._stand_in is not None
            self.cpu = self._stand_in()
