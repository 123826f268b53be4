"""Places of code: this machine, or another one whose agent's address is the target."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.codegen import targets
from tilesmith.ir.target import Target
from tilesmith.runtime.executable import Executable, executable_of
from tilesmith.runtime.program import Program
from tilesmith.runtime.remote.address import is_address
from tilesmith.runtime.threads import thread_count
from tilesmith.runtime.tsm import load_program
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options, threads_from_environment

from .request import Request


def is_remote(options: Options) -> bool:
    """Whether the target is another machine, given by its agent's address."""
    return is_address(options.target)


def at_place(options: Options) -> Options:
    """The options.  If they leave the number of threads open and the target is another machine,
    they get that machine's number.
    """
    if not is_remote(options) or options.threads is not None:
        return options
    from tilesmith.runtime.remote.device import connected

    return options.with_(threads=connected(options.target).threads)


def target_of(options: Options) -> Target:
    """The target in the options, for schedules with the requested number of threads.  The default
    number is that of the cores of the described machine, or of this machine.
    """
    if is_remote(options):
        from tilesmith.runtime.remote.device import connected

        device = connected(options.target)
        return device.target.for_threads(options.threads or device.threads)
    target = targets.target(options.target)
    asked = options.threads or threads_from_environment()
    if asked is None and options.target != "native":
        asked = target.model.cores or None
    return target.for_threads(thread_count(asked))


def placed(program: Program, options: Options) -> Executable:
    """The executable of a program on the machine that the options name."""
    if not is_remote(options):
        return Executable(program, options.threads)
    from tilesmith.runtime.remote.device import connected

    return executable_of(connected(options.target).runner(program, options.threads))


def deployed(request: Request, address: str) -> Executable:
    """The executable in the compiled file that a request names, on a device.  Raises as `load`
    does, and DeviceError.
    """
    from tilesmith.runtime.remote.device import connected

    program = load_program(request.model, require_signature=request.require_signature)
    return executable_of(connected(address).runner(program, request.options.threads))


def on_device(request: Request, address: str) -> Request:
    """The request for a device, given by its agent's address.

    Raises UsageError if the request names another target.
    """
    if request.target not in (None, address):
        raise UsageError(
            f"device {address!r} and target {request.target!r}: expected one of them, since the "
            "device is the target"
        )
    return replace(request, target=address, options=request.options.with_(target=address))


def check_alone(options: Options, chosen: bool, what: str) -> None:
    """Raises UsageError if the options choose another machine and something that only this machine
    has.

    chosen: whether the options choose this thing.
    what: its name in the message.
    """
    if chosen and is_remote(options):
        raise UsageError(
            f"{what}: expected a target on this machine, found {options.target!r}; leave it out"
        )
