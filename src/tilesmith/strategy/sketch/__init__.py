"""Rules that generate schedules, and search spaces, for any tensor expression."""

from .generate import Generated, default_schedule, generated, schedule_expression

__all__ = ["Generated", "default_schedule", "generated", "schedule_expression"]
