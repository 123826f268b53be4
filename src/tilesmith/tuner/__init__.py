"""The tuner from top to bottom: from a model and some seconds to records and a faster executable.

compile untuned, profile            how long each kernel takes where it stands
choose algorithms                   whole variants of the model, profiled
tasks of the kernels --search-->    trials, each in the records at once
compile with the records
tuned against untuned, in turns     the better one is kept
"""

from __future__ import annotations

from .model import Report, Tuned, check_arguments, tune, tune_model
from .tasks import BUILDER, random_array, resume

__all__ = [
    "BUILDER",
    "Report",
    "Tuned",
    "check_arguments",
    "random_array",
    "resume",
    "tune",
    "tune_model",
]
