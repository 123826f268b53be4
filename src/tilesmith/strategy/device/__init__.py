"""Default schedules for devices that run blocks of threads: analytic, nothing is measured."""

from .generic import default_schedule, schedule_expression

__all__ = ["default_schedule", "schedule_expression"]
