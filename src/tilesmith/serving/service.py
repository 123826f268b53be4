"""A compiled model as a service: ready when warm, replaced without a lost request, drained at the
end, and with metrics that Prometheus reads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tilesmith.driver.entry import load
from tilesmith.runtime.executable import Executable
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UnavailableError, UsageError

from .batcher import Batcher
from .metrics import exposition
from .stats import BatcherStats, combined


class Service:
    """A `.tsm` file that answers requests through a `Batcher`.

    `service(x)` waits for the answer, `await service.call(x)` does so in a coroutine.  Any number
    of threads may ask.  Use it as a context manager, or call `close`.
    """

    @checked(UsageError)
    def __init__(
        self,
        path: str | Path,
        example: Mapping[str, Any] | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        """Load the file and answer one request, so that the service is warm.

        path: a `.tsm` file with an open batch dimension.
        example: a request by names for warming up; by default, one row of random numbers.
        threads: threads of a call.
        options: those of `Batcher`.

        Raises the errors of `load` and of `Batcher`, and those of a request for the example.
        """
        self._example, self._threads, self._options = example, threads, options
        self._swapping = threading.Lock()
        self._closed = False
        self._before: BatcherStats | None = None
        self._batcher = self._warm(path)

    @property
    def exe(self) -> Executable:
        """The executable that answers now."""
        return self._batcher.exe

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted: the model is warm, and `close` was not called."""
        return not self._closed

    def __call__(self, *arrays: Any, deadline: float | None = None, **named: Any) -> Any:
        """The results for one request.  Arguments and errors are those of `Batcher`."""
        while True:
            batcher = self._batcher
            try:
                return batcher(*arrays, deadline=deadline, **named)
            except UnavailableError:
                if batcher is self._batcher:  # else `reload` closed it between the two lines
                    raise

    async def call(self, *arrays: Any, deadline: float | None = None, **named: Any) -> Any:
        """The results for one request, for coroutines."""
        while True:
            batcher = self._batcher
            try:
                return await batcher.call(*arrays, deadline=deadline, **named)
            except UnavailableError:
                if batcher is self._batcher:
                    raise

    @checked(UsageError)
    def reload(self, path: str | Path) -> None:
        """Replace the model by another file.  Returns when the old one has answered its requests.

        Requests go to the old model until the new one is warm; none is refused or lost.  If the new
        file can't be loaded, the old model stays.

        Raises the errors of the constructor, and UnavailableError after `close`.
        """
        with self._swapping:
            if self._closed:
                raise UnavailableError("the service is closed: make another one")
            old, self._batcher = self._batcher, self._warm(path)
            old.close()
            self._before = combined(self._before, old.stats())

    def stats(self) -> BatcherStats:
        """Counts of all requests, those to replaced models included."""
        with self._swapping:
            return combined(self._before, self._batcher.stats())

    @checked(UsageError)
    def metrics(self, model: str = "model") -> str:
        """The counts as text for Prometheus.

        model: the value of the label `model`.
        """
        return exposition(self.stats(), model, self.is_ready)

    def close(self) -> None:
        """Accept no more requests, and return when all are answered."""
        self._closed = True
        with self._swapping:
            self._batcher.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warm(self, path: str | Path) -> Batcher:
        """A batcher for the file that has answered a request."""
        batcher = Batcher(load(path, threads=self._threads), **self._options)
        with ExitStack() as stack:
            stack.callback(batcher.close)
            batcher(**(self._example or batcher.layout.example()))
            stack.pop_all()
        return batcher
