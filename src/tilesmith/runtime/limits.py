"""What an executable may take of a device."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.target import Target
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options


@dataclass(frozen=True, slots=True)
class Limits:
    """What an executable may take of a device; None: as much as it needs.

    memory: bytes of the device's memory.
    seconds: of a call.
    """

    memory: int | None = None
    seconds: float | None = None

    @staticmethod
    def of(options: Options) -> Limits:
        return Limits(options.memory_limit, options.time_limit)

    def check(self, target: Target) -> None:
        """Raises UsageError for limits of a target that is no device."""
        given = {"memory_limit": self.memory, "time_limit": self.seconds}
        named = [name for name, value in given.items() if value is not None]
        if named and target.device is None:
            raise UsageError(
                f"{' and '.join(named)}: expected a target that is a device, found "
                f"{target.name!r}; leave it out"
            )


UNLIMITED = Limits()
