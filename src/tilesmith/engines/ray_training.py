"""Training by actors of Ray, each on batches of its own (data parallel), without PyTorch.

    import ray
    from tilesmith.engines.ray_training import train

    ray.init()
    trainer = train(
        lambda average: ts.Trainer("model.onnx", average=average),
        [Batches([x[rank::4], y[rank::4]]) for rank in range(4)],
        epochs=3, checkpoint="/shared/training.safetensors", every=100,
    )

Ray's collectives need PyTorch or a GPU on each machine.  So one more actor averages the gradients:
it adds the arrays of all workers in the workers' order, so that results do not depend on who comes
first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayActorError  # pyright: ignore[reportMissingImports]

from tilesmith.support.arguments import checked
from tilesmith.support.errors import UnavailableError, UsageError
from tilesmith.training.trainer import Trainer
from tilesmith.training.workers import Average


class Meeting:
    """Averages the arrays that all workers bring."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._brought: dict[int, np.ndarray] = {}
        self._mean: asyncio.Future[np.ndarray] | None = None

    async def mean(self, rank: int, array: np.ndarray) -> np.ndarray:
        """The mean of the arrays of all workers, when all have called."""
        if self._mean is None:
            self._mean = asyncio.get_running_loop().create_future()
        mean = self._mean
        self._brought[rank] = array
        if len(self._brought) == self._workers:
            total = sum(self._brought[r] for r in range(self._workers))
            mean.set_result(total / np.array(self._workers, array.dtype))
            self._brought, self._mean = {}, None
        return await mean


class Worker:
    """One process of a training."""

    def fit(
        self, rank: int, meeting: Any, make: Callable[[Average], Trainer], batches: Any,
        epochs: int, checkpoint: Path, every: int | None,
    ) -> None:  # fmt: skip
        """Train from the checkpoint on.  The worker of rank 0 writes checkpoints: the states of all
        are equal.
        """

        def average(array: np.ndarray) -> None:
            array[...] = ray.get(meeting.mean.remote(rank, array))

        trainer = make(average)
        if checkpoint.exists():
            trainer.restore(checkpoint)
        if rank == 0:
            trainer.fit(batches, epochs, checkpoint=checkpoint, every=every)
        else:
            trainer.fit(batches, epochs)


@checked(UsageError)
def train(
    make: Callable[[Average], Trainer],
    batches: Sequence[Any],
    epochs: int = 1,
    *,
    checkpoint: str | os.PathLike[str],
    every: int | None = None,
    threads: int = 1,
    retries: int = 3,
) -> Trainer:
    """Train until `epochs` epochs are done in all, those of an existing checkpoint included.  If a
    worker is lost, all begin again at the last checkpoint.

    make: makes the trainer of a worker, with the `average` that it gets.
    batches: for each worker, the batches of an epoch, as for `Trainer.fit`; equally many.
    checkpoint, every: as for `Trainer.fit`; a file that all machines see.
    threads: cores of each worker.
    retries: how often workers may be lost.

    Returns the trainer with the weights at the end, in this process.

    Raises the errors of `Trainer.fit`; UsageError if Ray does not run; UnavailableError if workers
    were lost more often than `retries`.
    """
    if not ray.is_initialized():
        raise UsageError("train: expected that Ray runs: call ray.init()")
    if not batches or threads < 1 or retries < 0:
        raise UsageError(
            f"train: expected batches for 1 worker or more, threads from 1 and retries from 0, "
            f"found {len(batches)}, {threads} and {retries}"
        )
    path = Path(checkpoint).absolute()
    lost = 0
    while not _fitted(make, batches, epochs, path, every, threads):
        lost += 1
        if lost > retries:
            raise UnavailableError(
                f"train: workers were lost {lost} times, expected {retries} at most; "
                f"{str(path)!r} has the last checkpoint"
            )
    trainer = make(lambda array: None)
    trainer.restore(path)
    return trainer


def _fitted(
    make: Callable[[Average], Trainer], batches: Sequence[Any], epochs: int, checkpoint: Path,
    every: int | None, threads: int,
) -> bool:  # fmt: skip
    """Whether all workers came to the end; otherwise one was lost."""
    meeting: Any = ray.remote(Meeting).options(num_cpus=0).remote(len(batches))
    kind: Any = ray.remote(Worker).options(num_cpus=threads)
    workers = [kind.remote() for _ in batches]
    try:
        running = [
            w.fit.remote(rank, meeting, make, own, epochs, checkpoint, every)
            for rank, (w, own) in enumerate(zip(workers, batches, strict=True))
        ]
        while running:
            done, running = ray.wait(running)
            ray.get(done)
    except RayActorError:
        return False
    finally:
        for actor in (meeting, *workers):
            ray.kill(actor)
    return True
