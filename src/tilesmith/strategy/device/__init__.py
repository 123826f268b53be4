"""Default schedules for devices that run blocks of threads: analytic, nothing is measured."""

from .generic import default_schedule
from .group import RULES
from .layouts import channels_last
from .low_precision import factor_choice, low_precision_choice

__all__ = ["RULES", "channels_last", "default_schedule", "factor_choice", "low_precision_choice"]
