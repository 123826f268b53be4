"""Processes that compile kernels.

This module imports little, so that processes start while this process imports the compiler.
"""

from __future__ import annotations

import os
from typing import Any

from tilesmith.support.child import Children
from tilesmith.support.options import Options

LARGE = 1 << 20
"""Size in bytes from which a model is expected to have enough kernels for two processes."""


def kernel_workers() -> Children:
    """Processes that compile kernels, none of them started yet."""
    return Children("tilesmith.driver.worker", 0)


def workers_for(model: Any, options: Options) -> Children:
    """Processes for the kernels of a model, one of them started if the model is large."""
    workers = kernel_workers()
    if worker_limit(options) and _bytes_of(model) >= LARGE:
        workers.grow(1)
    return workers


def job_count(options: Options) -> int:
    """Number of kernels to compile at the same time."""
    return options.jobs or len(os.sched_getaffinity(0))


def worker_limit(options: Options) -> int:
    """Upper bound on the processes that compile kernels besides this one.  It is 0 if stages are
    dumped or verified, since then all stages run in one process.
    """
    return 0 if options.dump or options.verify_each else job_count(options) - 1


def _bytes_of(model: Any) -> int:
    """The size of a model that is a file or bytes; 0 for others."""
    if isinstance(model, bytes):
        return len(model)
    try:
        return os.stat(model).st_size if isinstance(model, (str, os.PathLike)) else 0
    except (OSError, ValueError):
        return 0  # the frontend reports the error
