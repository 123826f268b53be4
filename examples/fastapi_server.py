"""A server with FastAPI: `tilesmith compile MODEL -o model.tsm`, then

    MODEL=model.tsm uvicorn --app-dir examples fastapi_server:app

POST /predict takes the inputs by name as nested lists.  /live says that the process runs, /ready
that the model is warm, /metrics is for Prometheus, POST /reload takes the file again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Response

import tilesmith as ts

PATH = os.environ["MODEL"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.service = await asyncio.to_thread(ts.Service, PATH)  # loads and warms
    yield
    await asyncio.to_thread(app.state.service.close)  # answers what waits


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
async def predict(inputs: dict[str, Any]) -> dict[str, Any]:
    service = app.state.service
    kinds = {s.name: s.dtype.numpy for s in service.exe.inputs}
    try:
        arrays = {name: np.asarray(x, kinds.get(name)) for name, x in inputs.items()}
        results = await service.call(**arrays, deadline=1.0)
    except (ts.ModelError, ValueError) as e:
        raise HTTPException(400, str(e)) from e
    except (ts.UnavailableError, ts.DeadlineError) as e:
        raise HTTPException(503, str(e)) from e
    outputs = results if isinstance(results, tuple) else (results,)
    return {s.name: y.tolist() for s, y in zip(service.exe.outputs, outputs)}


@app.get("/live")
async def live() -> str:
    return "alive"


@app.get("/ready")
async def ready() -> Response:
    return Response(status_code=200 if app.state.service.is_ready else 503)


@app.get("/metrics")
async def metrics() -> Response:
    return Response(app.state.service.metrics(), media_type="text/plain; version=0.0.4")


@app.post("/reload")
async def reload() -> str:
    await asyncio.to_thread(app.state.service.reload, PATH)
    return "reloaded"
