"""Servers that tests start, each in a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(url: str, served: subprocess.Popen[bytes]) -> None:
    """Wait until a server says that it is ready."""
    import httpx

    end = time.monotonic() + 60
    while time.monotonic() < end and served.poll() is None:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"{url} is not ready")


@dataclass(frozen=True)
class MLServer:
    """MLServer with the model `m`.

    http, grpc: its ports.
    """

    process: subprocess.Popen[bytes]
    http: int
    grpc: int


@contextmanager
def mlserver(folder: Path, file: Path, extra: Mapping[str, Any]) -> Iterator[MLServer]:
    """MLServer, ready with the `.tsm` file `file`.

    folder: for its settings.
    extra: options of `Service`.
    """
    http, grpc, metrics = free_port(), free_port(), free_port()
    settings = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics, "host": "127.0.0.1",
                "parallel_workers": 0}  # fmt: skip
    model = {
        "name": "m",
        "implementation": "tilesmith.engines.mlserver_runtime.Runtime",
        "parameters": {"uri": str(file), "extra": extra, "version": "v1"},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    served = subprocess.Popen(
        [str(Path(sys.executable).with_name("mlserver")), "start", str(folder)]
    )
    try:
        wait_for(f"http://127.0.0.1:{http}/v2/models/m/ready", served)
        yield MLServer(served, http, grpc)
    finally:
        served.kill()
        served.wait()
