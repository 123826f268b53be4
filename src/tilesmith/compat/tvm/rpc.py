"""TVM's `rpc`: models that run on other machines, where an agent serves (docs/devices.md).

    remote = rpc.connect("board", key="board.json")
    remote.upload("net.tsm")
    module = graph_executor.GraphModule(remote.load_module("net.tsm")["default"](remote.cpu()))

Files are those of `lib.export_library`.  An agent gets a model when it first runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from tilesmith.agent.server import Agent
from tilesmith.agent.settings import Secrets
from tilesmith.runtime.remote.address import PORT, is_address
from tilesmith.runtime.remote.device import RemoteDevice
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.options import agent_dir_from_environment

from ..names import elsewhere, refusing
from .runtime import Device, ExecutorFactoryModule, cpu, device, load_module

__all__ = ["LocalSession", "RPCSession", "Server", "connect"]

_TRACKED = "tilesmith.tune(model, devices='tls://a,tls://b'), which divides work among agents"

ELSEWHERE = {
    **dict.fromkeys(("Tracker", "TrackerSession", "connect_tracker"), _TRACKED),
    "Proxy": "ssh -L 9100:127.0.0.1:9100 HOST, and connect('tcp://127.0.0.1')",
}
"""What to use for names of TVM."""

_OF_SESSIONS = {
    "get_function": "load_module(file), since agents run models alone",
    "download": "the outputs of GraphModule, since agents write no files",
    **dict.fromkeys(("cl", "cuda"), "cpu(), since agents run no GPUs"),
}


class RPCSession:
    """A machine on which models run.

    remote: the machine; None is this one.
    """

    def __init__(self, remote: RemoteDevice | None) -> None:
        self._remote = remote
        self._files: dict[str, Path] = {}

    @checked(UsageError)
    def upload(self, data: str | Path, target: str | None = None) -> None:
        """Name a file for `load_module`, by default by the last part of its path."""
        self._files[target or Path(data).name] = Path(data)

    @checked(UsageError)
    def load_module(self, path: str) -> ExecutorFactoryModule:
        """The model in an uploaded file, on the machine.  Raises UsageError for another file."""
        if path not in self._files:
            known = ", ".join(self._files) or "none"
            raise UsageError(f"load_module: expected an uploaded file ({known}), found {path!r}")
        exe = load_module(self._files[path]).executable
        return ExecutorFactoryModule(exe if self._remote is None else exe.deploy(self._remote))

    @checked(UsageError)
    def cpu(self, dev_id: int = 0) -> Device:
        return cpu(dev_id)

    @checked(UsageError)
    def device(self, dev_type: str = "cpu", dev_id: int = 0) -> Device:
        """A device of the machine.  Raises UsageError for a GPU."""
        made = device(dev_type, dev_id)
        if made.kind != "cpu":
            elsewhere("rpc.RPCSession", "cuda", _OF_SESSIONS)
        return made

    def __getattr__(self, name: str) -> NoReturn:
        elsewhere("rpc.RPCSession", name, _OF_SESSIONS)


class LocalSession(RPCSession):
    """This machine."""

    def __init__(self) -> None:
        super().__init__(None)


@checked(UsageError)
def connect(url: str, port: int = PORT, key: str = "", session_timeout: float = 0) -> RPCSession:
    """The machine of an agent.

    url: its host, or an address such as tls://board:9100.
    key: path of the agent's device.json; by default that of its address in the user's settings.
    session_timeout: has no effect, since each request has its own limit.

    Raises UsageError for a wrong address or key, DeviceError if no agent answers.
    """
    address = url if is_address(url) else f"tls://{url}:{port}"
    return RPCSession(RemoteDevice(address, key or None))


class Server:
    """An agent of this machine, until `terminate`; `tilesmith agent init` makes its secrets.

    host, port: where it listens; port 0 is a free one.
    plain: whether to work without TLS, which is possible on this machine only.
    """

    @checked(UsageError)
    def __init__(self, host: str = "127.0.0.1", port: int = PORT, plain: bool = False) -> None:
        folder = agent_dir_from_environment()
        self._agent = Agent(Secrets.load(folder), folder / "objects", host, port, None, plain)
        self.host, self.port = self._agent.place
        self._agent.__enter__()

    def terminate(self) -> None:
        self._agent.end()


__getattr__ = refusing("rpc", ELSEWHERE)
