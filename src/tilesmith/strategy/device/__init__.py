"""Default schedules for devices that run blocks of threads, chosen by an analytic model."""

from .generic import default_schedule
from .group import RULES
from .irregular import has_few_lines
from .layouts import channels_last
from .low_precision import factor_choice, low_precision_choice
from .parallel import LONGEST

__all__ = [
    "LONGEST", "RULES", "channels_last", "default_schedule", "factor_choice", "has_few_lines",
    "low_precision_choice",
]  # fmt: skip
