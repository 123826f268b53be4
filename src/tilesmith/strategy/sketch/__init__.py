"""Rules that generate schedules, and spaces of them, for any tensor expression."""

from .generate import Generated, auto_schedule, generated, schedule_expression

__all__ = ["Generated", "auto_schedule", "generated", "schedule_expression"]
