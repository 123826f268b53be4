"""Default schedules for devices that run blocks of threads: analytic, nothing is measured."""

from .generic import default_schedule
from .group import RULES
from .layouts import row_major

__all__ = ["RULES", "default_schedule", "row_major"]
