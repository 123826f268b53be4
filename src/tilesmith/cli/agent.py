"""Serve this machine as a device: callers elsewhere run, measure and tune models on it.

`init` makes the agent's secrets in a folder: agent.json for the agent, and device.json, which is
copied to the callers.  `serve` listens until it is interrupted.  Callers use the address
tls://HOST:9100 as a target (docs/devices.md).

`build` writes an agent for a board without Python: one static program, which is given the folder of
`init --plain` and listens at 127.0.0.1, to be reached through ssh -L.

What callers send runs in processes without network, without access to files and with limits of time
and memory.  Whoever has device.json may use the machine's time.  By default the agent listens on
this machine only; --host 0.0.0.0 lets others in.

Example: tilesmith agent init && tilesmith agent serve --host 0.0.0.0
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.agent.board import build_agent
from tilesmith.agent.server import Agent
from tilesmith.agent.settings import Limits, Secrets, init
from tilesmith.runtime.remote.address import PORT, Address
from tilesmith.support.confine import layers
from tilesmith.support.options import agent_dir_from_environment

from .arguments import JsonFlag, with_options
from .console import print_json, size_text
from .outputs import check_output


class Action(StrEnum):
    """The task of the verb."""

    init = "init"
    serve = "serve"
    build = "build"


@with_options
def command(
    action: Annotated[Action, typer.Argument(metavar="init|serve|build", help="What to do.")],
    limits: Limits,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the secrets and objects (default: in the user's settings)."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = PORT,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without TLS; on this machine only, as behind ssh -L.")
    ] = False,
    target: Annotated[
        str, typer.Option(help="build: the board, such as aarch64 or riscv64.")
    ] = "native",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="build: the file to write.")
    ] = Path("tilesmith-agent"),
    json: JsonFlag = False,
) -> None:
    if action is Action.build:
        check_output(output)
        build_agent(target, output)
        size = output.stat().st_size
        told = {"output": str(output), "bytes": size}
        print_json(told) if json else print(f"wrote {output} ({size_text(size)})")
        return
    folder = folder or agent_dir_from_environment()
    if action is Action.init:
        secret, key = init(folder, plain)
        if json:
            print_json({"secrets": str(secret), "key": str(key)})
            return
        print(f"secrets: {secret} (for this agent; keep it)")
        print(f"key:     {key} (copy it to callers, as ~/.config/tilesmith/devices/HOST_PORT.json)")
        return
    agent = Agent(Secrets.load(folder), folder / "objects", host, port, limits, plain)
    address = Address("tcp" if plain else "tls", *agent.place)
    told = {"address": str(address), "confined": layers()}
    if json:
        print_json(told)
    else:
        print(f"listening at {address}; runs are confined by {', '.join(layers())}", flush=True)
    try:
        agent.serve()
    finally:
        agent.end()
