"""The agent without Python: one static program, built here for the machine where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilesmith.codegen import targets
from tilesmith.runtime.standalone.program import static_tools
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import scratch_folder, written
from tilesmith.support.version import VERSION

SOURCE = Path(__file__).with_name("csrc") / "agent.c"
PENALTY_MICROSECONDS = 500_000
"""Time for which a caller without the token waits."""
_FLAGS = ("-std=gnu11", "-Os", "-static", "-s")


def build_agent(
    target: str,
    path: Path,
    penalty: int = PENALTY_MICROSECONDS,
    flags: Sequence[str] = _FLAGS,
    small: bool = True,
) -> None:
    """Write the agent for a target to a file, which it replaces.

    target: a target on Linux, such as "aarch64" or "riscv64".
    penalty: microseconds for which a caller without the token waits.
    flags: flags of the compiler.
    small: whether to link with musl, by `ziglang`, if it is there.

    Raises UsageError for another system, without a compiler, or if the file can't be written.
    """
    named = targets.target(target)
    if named.system != "linux" or named.device is not None:
        raise UsageError(f"the agent runs on Linux: expected a target there, found {target!r}")
    tools = static_tools(named, small)
    with scratch_folder() as scratch:
        made = scratch / "agent"
        defined = (f'-DVERSION="{VERSION}"', f"-DPENALTY={penalty}")
        tools.link([SOURCE], made, *flags, *defined)
        try:
            with written(path) as f:
                f.write(made.read_bytes())
            path.chmod(0o755)
        except OSError as e:
            raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from None
