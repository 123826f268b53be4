"""Code that runs on the nodes of a fleet: a station that measures, and builders.

This file does not use Ray: `fleet` gives a plain class and a plain function to Ray.  Their
arguments and results are bytes, numbers and text.
"""

from __future__ import annotations

import platform
import socket
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.codegen import targets
from tilesmith.runtime.threads import physical_cores
from tilesmith.support.child import Child, encode
from tilesmith.support.version import VERSION

from .jobs import MeasureJob, answer_bytes
from .measure import candidate_memory, machine_lock, run_alone


@dataclass(frozen=True, slots=True)
class About:
    """A node of the fleet.

    name: name of the host.
    version: versions of Tilesmith and Python.
    target: the text of its native target.
    cpu: the name of its native target.
    cores: physical cores that a process may use.
    """

    name: str
    version: str
    target: str
    cpu: str
    cores: int

    @staticmethod
    def this_machine() -> About:
        t = targets.host()
        return About(socket.gethostname(), _version(), t.text, t.cpu, physical_cores())


def _version() -> str:
    return f"{VERSION} on Python {platform.python_version()}"


class Station:
    """Measures on its own machine, one candidate at a time, in a process that may die."""

    def __init__(self, runner: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilesmith-station-")
        self._runner = Child(runner, memory_bytes=candidate_memory())

    def about(self) -> dict[str, Any]:
        """The fields of `About`."""
        return asdict(About.this_machine())

    def measure(self, arrays: np.ndarray, request: bytes, seconds: float) -> bytes:
        """The answer to a `MeasureJob`.

        `arrays`: uint8, the contents of the job's file of arrays.  They are written to a file of
        the same name on this node.
        """
        job = MeasureJob.from_bytes(request)
        path = Path(self._folder.name) / job.arrays.name
        if not path.exists():
            path.write_bytes(arrays.tobytes())
        return answer_bytes(run_alone(self._runner, replace(job, arrays=path), seconds))

    def end(self) -> None:
        """Remove the process and the files."""
        self._runner.end()
        self._folder.cleanup()


def build(builder: str, request: bytes, seconds: float) -> bytes:
    """The reply of `builder`, a module, as a message for `support.child.decode`.

    The call waits while this machine measures.
    """
    with machine_lock(shared=True):
        return encode(lambda: _builder(builder).call(request, seconds))


@lru_cache(maxsize=1)
def _builder(module: str) -> Child:
    """A builder process, kept between tasks: starting one takes longer than most candidates."""
    return Child(module, memory_bytes=candidate_memory())
