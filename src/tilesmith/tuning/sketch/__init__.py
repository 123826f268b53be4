"""Rules that generate schedules, and spaces of them, for any tensor expression."""

from .generate import Generated, auto_schedule, generated

__all__ = ["Generated", "auto_schedule", "generated"]
