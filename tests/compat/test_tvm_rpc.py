"""TVM's `rpc`: models on the machines of agents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilesmith.compat.tvm as tvm
from tilesmith.agent.settings import init
from tilesmith.compat.tvm import relay, rpc
from tilesmith.compat.tvm.contrib import graph_executor
from tilesmith.support.errors import UsageError

X = np.arange(8, dtype=np.float32).reshape(1, 8) - 3


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A model that is the ReLU of its input, in a file."""
    x = relay.var("x", shape=X.shape)
    path = tmp_path / "net.tsm"
    relay.build(relay.Function([x], relay.nn.relu(x)), target="llvm").export_library(path)
    return path


def run(remote: rpc.RPCSession, library: Path) -> np.ndarray:
    """What the model computes on a machine, as TVM's tutorials run it."""
    remote.upload(library)
    device = remote.cpu()
    module = graph_executor.GraphModule(remote.load_module(library.name)["default"](device))
    module.set_input("x", tvm.nd.array(X, device))
    module.run()
    return module.get_output(0).numpy()


def test_a_model_runs_on_the_machine_of_an_agent(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _, key = init(tmp_path / "tilesmith" / "agent", plain=True)
    server = rpc.Server(port=0, plain=True)
    try:
        remote = rpc.connect(f"tcp://127.0.0.1:{server.port}", key=str(key))
        np.testing.assert_array_equal(run(remote, library), np.maximum(X, 0))
        with pytest.raises(UsageError, match=r"expected an uploaded file \(net.tsm\), found 'no'"):
            remote.load_module("no")
    finally:
        server.terminate()


def test_a_local_session_runs_a_model_here(library: Path) -> None:
    np.testing.assert_array_equal(run(rpc.LocalSession(), library), np.maximum(X, 0))


def test_what_agents_do_not_do_is_refused_with_the_way_to_it() -> None:
    with pytest.raises(UsageError, match="get_function has no counterpart: use load_module"):
        rpc.LocalSession().get_function("f")
    for kind in ("cuda", "opencl"):
        with pytest.raises(UsageError, match="since agents run no GPUs"):
            rpc.LocalSession().device(kind)
    assert rpc.LocalSession().device("llvm") == tvm.cpu()
    for name in ("", "abacus"):
        with pytest.raises(UsageError, match="device: expected cpu, llvm"):
            tvm.device(name)
    with pytest.raises(UsageError, match="expected an address such as tls://board"):
        rpc.connect("a/b")
    with pytest.raises(UsageError, match="fetch http://x yourself"):
        tvm.contrib.download.download_testdata("http://x", "x")
