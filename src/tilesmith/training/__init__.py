"""Training of models in compiled code: `ts.Trainer`, losses, optimisers, learning-rate schedules.

trainer = ts.Trainer("model.onnx", loss="cross_entropy", optimizer=ts.training.AdamW(1e-3))
trainer.fit(ts.training.Batches([x, y], size=32), epochs=3)
trainer.save_onnx("trained.onnx")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from .batches import Batches
    from .epochs import EarlyStopping, Epoch
    from .losses import (
        CTC,
        BinaryCrossEntropy,
        CrossEntropy,
        Huber,
        KullbackLeibler,
        MeanSquared,
        Triplet,
    )
    from .optimizers import LAMB, SGD, Adagrad, Adam, AdamW, RMSprop
    from .schedules import Constant, Cosine, StepDecay, WarmUp
    from .trainer import Trainer
    from .workers import gloo

__all__ = [
    "CTC",
    "LAMB",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Batches",
    "BinaryCrossEntropy",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "EarlyStopping",
    "Epoch",
    "Huber",
    "KullbackLeibler",
    "MeanSquared",
    "RMSprop",
    "StepDecay",
    "Trainer",
    "Triplet",
    "WarmUp",
    "gloo",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.training.batches": "Batches",
        "tilesmith.training.epochs": "EarlyStopping Epoch",
        "tilesmith.training.losses": "CTC BinaryCrossEntropy CrossEntropy Huber KullbackLeibler "
        "MeanSquared Triplet",
        "tilesmith.training.optimizers": "LAMB SGD Adagrad Adam AdamW RMSprop",
        "tilesmith.training.schedules": "Constant Cosine StepDecay WarmUp",
        "tilesmith.training.trainer": "Trainer",
        "tilesmith.training.workers": "gloo",
    },
)
