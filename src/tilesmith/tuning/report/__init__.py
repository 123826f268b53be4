"""Reports of tuning, as one HTML file that opens offline."""

from .collect import collect, side_by_side
from .facts import Attempt, ChoiceFacts, KernelFacts, Report, TaskFacts, Timing
from .page import page

__all__ = ["Attempt", "ChoiceFacts", "KernelFacts", "Report", "TaskFacts", "Timing", "collect",
           "page", "side_by_side"]  # fmt: skip
