"""Rules that generate schedules, and spaces of them, for any tensor expression."""

from .generate import Generated, default_schedule, generated, schedule_expression

__all__ = ["Generated", "default_schedule", "generated", "schedule_expression"]
