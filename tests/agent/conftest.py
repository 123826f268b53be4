"""Agents for tests, and a small model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith.agent.server import Agent
from tilesmith.agent.settings import DEVICE_FILE, Limits, Secrets, init
from tilesmith.runtime.remote.address import Address
from tilesmith.runtime.remote.device import RemoteDevice


@dataclass(frozen=True)
class Place:
    """An agent with TLS, its address, and the key of its callers."""

    agent: Agent
    address: str
    key: Path

    def connect(self) -> RemoteDevice:
        return RemoteDevice(self.address, self.key)


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    init(folder)
    return folder


@pytest.fixture(scope="module")
def place(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    limits = Limits(store_bytes=64 << 20, object_bytes=32 << 20, run_seconds=60.0)
    objects = tmp_path_factory.mktemp("objects") / "own"
    with Agent(Secrets.load(secrets), objects, limits=limits) as agent:
        yield Place(agent, str(Address("tls", *agent.place)), secrets / DEVICE_FILE)


@pytest.fixture(scope="session")
def model() -> bytes:
    """y = relu(x @ w) for x: f32[2,8]."""
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, k]) for n, k in (("x", 8), ("y", 4))
    )
    w = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
