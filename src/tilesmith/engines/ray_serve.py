"""A deployment for Ray Serve: replicas of a `.tsm` file, each with cores of its own.

    from ray import serve
    from tilesmith.engines.ray_serve import application

    handle = serve.run(application("model.tsm", threads=2, replicas=4, max_batch=16))
    y = handle.predict.remote(x=x).result()          # or POST {"x": [[...]]}

Ray starts replicas, restarts those that die, scales them and routes requests.  A replica gathers
its requests with a `Service`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ray import serve  # pyright: ignore[reportMissingImports]
from starlette.requests import Request  # pyright: ignore[reportMissingImports]
from starlette.responses import JSONResponse  # pyright: ignore[reportMissingImports]

from tilesmith.serving.service import Service
from tilesmith.support.errors import DeadlineError, ModelError, UnavailableError, UsageError

_STATUS = {ModelError: 400, ValueError: 400, UnavailableError: 503, DeadlineError: 504}
"""HTTP's status for each error of a request."""
WAITING = 1000
"""Requests that a replica takes at once, by default: its batcher gathers them."""


class Replica:
    """A replica: a service for one file."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options, self._path = options, ""
        self._service: Any = None  # until `reconfigure`, which Ray calls before requests

    async def predict(self, **arrays: Any) -> Any:
        """The results for inputs by name."""
        return await self._service.call(**arrays)

    async def __call__(self, request: Request) -> JSONResponse:
        """The outputs by name as nested lists, for inputs in the same form."""
        specs = {s.name: s for s in self._service.exe.inputs}
        try:
            told = await request.json()
            if not isinstance(told, dict):
                raise ModelError("expected an object with the inputs by name")
            arrays = {
                name: np.asarray(x, specs[name].dtype.numpy if name in specs else None)
                for name, x in told.items()
            }
            results = await self._service.call(**arrays)
        except tuple(_STATUS) as e:
            status = next(n for kind, n in _STATUS.items() if isinstance(e, kind))
            return JSONResponse({"error": str(e)}, status)
        outputs = results if isinstance(results, tuple) else (results,)
        named = zip(self._service.exe.outputs, outputs, strict=True)
        return JSONResponse({s.name: y.tolist() for s, y in named})

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Load the file, `{"path": "model.tsm"}`.  If there is one already, no request is lost."""
        path = str(config["path"])
        if self._service is None:
            self._service = await asyncio.to_thread(Service, path, **self._options)
        elif path != self._path:
            await asyncio.to_thread(self._service.reload, path)
        self._path = path

    def check_health(self) -> None:
        """Raises UnavailableError if the service accepts no requests; Ray then replaces it."""
        if self._service is not None and not self._service.is_ready:
            raise UnavailableError("the service is closed")

    def metrics(self) -> str:
        """The counts of this replica as text for Prometheus."""
        return self._service.metrics()

    def __del__(self) -> None:  # Ray's hook for the end of a replica
        if self._service is not None:
            self._service.close()


def application(
    path: str | Path,
    *,
    threads: int = 1,
    replicas: int | str = 1,
    name: str = "model",
    kind: type[Replica] = Replica,
    waiting: int = WAITING,
    autoscaling: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """An application of Ray Serve.  Running one with another file under the same name replaces the
    replicas; another `user_config: {path: ...}` in Ray's configuration makes them load it.

    path: a `.tsm` file with an open batch dimension, which every node can read.
    threads: cores of each replica.  Ray's OMP_NUM_THREADS does not matter.
    replicas: number of replicas, or "auto".
    name: name of the deployment.
    kind: the class of the replicas, for more methods.
    waiting: requests that a replica takes at once.
    autoscaling: Ray's `autoscaling_config`, instead of `replicas`.
    options: those of `Service`, such as `max_batch`, `max_wait` and `deadline`.

    Raises UsageError if there is no such file here, or threads are not positive.
    """
    if threads < 1 or not Path(path).is_file():
        raise UsageError(
            f"expected a .tsm file and at least 1 thread, found {str(path)!r} and {threads}"
        )
    settings: dict[str, Any] = {
        "name": name,
        "ray_actor_options": {"num_cpus": threads},
        "max_ongoing_requests": waiting,
        "user_config": {"path": str(Path(path).resolve())},
    }
    if autoscaling is not None:
        settings["autoscaling_config"] = dict(autoscaling)
    else:
        settings["num_replicas"] = replicas
    return serve.deployment(**settings)(kind).bind({"threads": threads, **options})
