"""Train a model, or a part of its weights, in compiled code.

The data are an .npz file with samples along axis 0: an array for each of the model's inputs, by its
name or as in_NAME, and the array "labels".  The result is an .onnx file, or a compiled .tsm.

Example: tilesmith train model.onnx --data data.npz --epochs 3 --trainable "head.*" -o out.onnx
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tilesmith import driver
from tilesmith.cli.arguments import JsonFlag, SourceArgument, with_options
from tilesmith.cli.console import print_json, size_text
from tilesmith.cli.models import check_source
from tilesmith.cli.outputs import check_output
from tilesmith.driver.request import Request
from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import UsageError
from tilesmith.training.batches import Batches
from tilesmith.training.epochs import METRICS, Epoch
from tilesmith.training.losses import LOSSES
from tilesmith.training.optimizers import OPTIMIZERS, Optimizer
from tilesmith.training.trainer import Trainer

_SIZE = 32
"""Samples in a batch, if neither the user nor the model says it."""


LOSS, OPTIMIZER = "cross_entropy", "adamw"
"""The loss and the optimiser if the user names none."""

LossOption = Annotated[
    str | None, typer.Option("--loss", help=f"One of {', '.join(LOSSES)} (default: {LOSS}).")
]
OptimizerOption = Annotated[
    str | None,
    typer.Option("--optimizer", help=f"One of {', '.join(OPTIMIZERS)} (default: {OPTIMIZER})."),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", help="Learning rate (default: the optimiser's).")
]
TrainableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trainable",
        metavar="PATTERN",
        help="Name or pattern of weights to train, like 'head.*' (repeatable; default: all).",
    ),
]


@with_options
def command(
    model: SourceArgument,
    request: Annotated[Request, "shapes"],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write: .onnx, or .tsm (compiled)."),
    ],
    data: Annotated[Path, typer.Option("--data", help="Samples and labels: an .npz file.")],
    validation: Annotated[
        Path | None,
        typer.Option("--validation", help="Data that are evaluated after each epoch."),
    ] = None,
    loss: LossOption = None,
    optimizer: OptimizerOption = None,
    rate: RateOption = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the data.")] = 1,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help=f"Its samples (default: the model's, or {_SIZE})."),
    ] = None,
    trainable: TrainableOption = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help=f"Measure beside the loss: {', '.join(METRICS)}."),
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option("--clip-norm", help="Upper bound on the norm of all gradients together."),
    ] = None,
    accumulate: Annotated[
        int,
        typer.Option("--accumulate", min=1, help="Batches whose gradients a step averages."),
    ] = 1,
    lora: Annotated[
        list[str] | None,
        typer.Option(
            "--lora",
            metavar="PATTERN=RANK",
            help="Train low-rank adapters in place of these weights (repeatable).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the samples' order.")] = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="File that is written after each epoch."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, if it exists.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    check_source(model, f"{str(model)!r} is compiled already; train its source model")
    if output.suffix not in (".onnx", ".tsm"):
        raise UsageError(f"expected an .onnx or .tsm file to write, found {str(output)!r}")
    check_output(output)
    if checkpoint is not None:
        check_output(checkpoint)
    elif resume:
        raise UsageError("--resume goes on from a checkpoint: give --checkpoint FILE")
    trainer = Trainer(
        model, loss=loss or LOSS, optimizer=optimizer_of(optimizer, rate), metrics=metric or (),
        trainable=tuple(trainable) if trainable else None, clip_norm=clip_norm,
        accumulate=accumulate, lora=_ranks(lora or ()),
        options=request.options, shapes=request.shapes,
    )  # fmt: skip
    if resume and checkpoint is not None and checkpoint.exists():
        trainer.restore(checkpoint)
    size = batch or trainer.batch or _SIZE
    batches = Batches(_arrays(data, trainer), size, seed)
    checks = None if validation is None else Batches(_arrays(validation, trainer), size, None)

    def tell(trainer: Trainer, epoch: Epoch) -> None:
        if not json:
            print(epoch)

    history = trainer.fit(batches, epochs, checks, [tell], checkpoint)
    if output.suffix == ".tsm":
        driver.compile(trainer.model(), options=request.options).save(output)
    else:
        trainer.save_onnx(output)
    written = output.stat().st_size
    if json:
        print_json(
            {
                "model": str(model), "output": str(output), "bytes": written,
                "steps": trainer.steps, "trained": [*trainer.weights],
                "epochs": [
                    {"number": e.number, **e.measures, "validation": dict(e.validation)}
                    for e in history
                ],
            }
        )  # fmt: skip
    else:
        print(f"wrote {output} ({size_text(written)})")


def optimizer_of(name: str | None, rate: float | None) -> str | Optimizer:
    """The optimiser with a rate; the name alone without one."""
    name = name or OPTIMIZER
    return OPTIMIZERS[name](rate) if rate is not None and name in OPTIMIZERS else name


def _ranks(texts: Sequence[str]) -> dict[str, int]:
    """Ranks by pattern, from texts PATTERN=RANK.  Raises UsageError."""
    ranks = {}
    for text in texts:
        pattern, _, rank = text.rpartition("=")
        if not pattern or not rank.isdecimal():
            raise UsageError(f"--lora: expected PATTERN=RANK, found {text!r}")
        ranks[pattern] = int(rank)
    return ranks


def _arrays(path: Path, trainer: Trainer) -> list[np.ndarray]:
    """The arrays of a file in the order of a batch.  Raises UsageError for a missing one."""
    held = read_arrays(path)
    taken = {n: k for n in trainer.array_names for k in (f"in_{n}", n) if k in held}
    missing = [n for n in trainer.array_names if n not in taken]
    if missing:
        raise UsageError(
            f"{str(path)!r}: expected arrays named {', '.join(trainer.array_names)}, found "
            f"{', '.join(map(repr, held)) or 'none'}"
        )
    return [held[taken[n]] for n in trainer.array_names]
