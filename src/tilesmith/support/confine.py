"""Confinement of this process, before it runs machine code that others sent.

Three layers of the Linux kernel confine the process, as far as the kernel has them:

- limits of resources: no core dumps, no large files, few open files;
- Landlock: only some folders may be read, nothing may be written, no TCP;
- seccomp: no sockets, no programs, no processes, no signals to others, no files opened for writing.

A child of this process inherits all three, and nothing lifts them.  Threads are allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import site
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

OPEN_FILES = 256
"""Upper bound on open files."""
FILE_BYTES = 1 << 20
"""Upper bound on the size of a file that this process writes.  Only standard error may be a file
that this process can write.
"""

_GET_SECCOMP, _NO_NEW_PRIVILEGES, _CREATE, _ADD, _RESTRICT = 21, 38, 444, 445, 446
_READ = 1 << 2 | 1 << 3  # files and folders
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""Version of Landlock -> the number of rights about files that it knows."""
_NETWORK_VERSION = 4

_SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277}
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
"""System calls with this number or a larger one belong to x86-64's second table (x32)."""

_FORBIDDEN = {
    # sockets
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242),
    # programs and processes
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setrlimit": (160, 164),
    # files
    "creat": (85, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "truncate": (76, 45), "mknod": (133, None), "mknodat": (259, 33),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "utimensat": (280, 88),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "open_by_handle_at": (304, 265), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
    # the system
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "fsopen": (430, 430), "open_tree": (428, 428),
    "move_mount": (429, 429), "bpf": (321, 280), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "userfaultfd": (323, 282), "acct": (163, 89),
    "iopl": (172, None), "ioperm": (173, None), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "sethostname": (170, 161), "setdomainname": (171, 162),
}  # fmt: skip
"""System calls that are refused: name -> number on x86-64, and on AArch64 and RISC-V."""
_ABSENT = {"clone3": (435, 435), "openat2": (437, 437)}
"""System calls that seem not to exist.  The C library then uses older ones, whose arguments a
filter can see.
"""
_THREAD = 0x10000  # flag of clone: the child is a thread of this process
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def layers() -> tuple[str, ...]:
    """The layers that `confine` has on this machine: some of "limits", "landlock", "seccomp"."""
    if sys.platform != "linux":
        return ("limits",)
    libc = ctypes.CDLL(None, use_errno=True)
    has_landlock = libc.syscall(_CREATE, None, 0, 1) >= 1
    has_seccomp = platform.machine() in _SECCOMP and libc.prctl(_GET_SECCOMP, 0, 0, 0, 0) >= 0
    named = (("landlock", has_landlock), ("seccomp", has_seccomp))
    return ("limits", *(name for name, has in named if has))


def confine(readable: Iterable[Path] = ()) -> tuple[str, ...]:
    """Confine this process, which must have one thread.  Returns the layers that the kernel has:
    some of "limits", "landlock" and "seccomp".

    readable: folders and files that may be read, besides Python's own and the system's libraries.
    """
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], OPEN_FILES)
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, hard if hard > 0 else OPEN_FILES),
    ):
        resource.setrlimit(what, (most, most))
    if sys.platform != "linux":
        return ("limits",)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return ("limits",)
    applied = ["limits"]
    if _landlock(libc, [*system_paths(), *readable]):
        applied.append("landlock")
    if _seccomp(libc):
        applied.append("seccomp")
    return tuple(applied)


def system_paths() -> Iterator[Path]:
    """The folders and files that the interpreter and the libraries read, which `confine` allows.

    `sys.path` may name folders of the user: `python -m` adds the current folder.  So its entries
    count only if they neither contain nor are inside the current folder.  Python's own folders and
    this package count wherever they are.
    """
    yield from (Path(p).resolve() for p in (sys.prefix, sys.base_prefix))
    if site.ENABLE_USER_SITE:
        yield Path(site.getusersitepackages()).resolve()
    yield Path(__file__).resolve().parents[1]
    here = Path.cwd()
    for entry in (Path(p).resolve() for p in sys.path if p):
        if not entry.is_relative_to(here) and not here.is_relative_to(entry):
            yield entry
    for name in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc", "/sys/devices/system",
                 "/sys/fs/cgroup", "/dev/urandom", "/dev/null"):  # fmt: skip
        yield Path(name)


def _landlock(libc: ctypes.CDLL, readable: Iterable[Path]) -> bool:
    """Restrict files and TCP.  Returns whether the kernel has Landlock."""
    version = libc.syscall(_CREATE, None, 0, 1)
    if version < 1:
        return False
    rights = (1 << _RIGHTS[max(v for v in _RIGHTS if v <= version)]) - 1
    network = 3 if version >= _NETWORK_VERSION else 0
    rules = struct.pack("<QQ", rights, network)[: 16 if network else 8]
    held = libc.syscall(_CREATE, rules, len(rules), 0)
    if held < 0:
        return False
    try:
        for path in readable:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # the system has no such folder
                continue
            allowed = _READ if path.is_dir() else _READ & ~(1 << 3)
            libc.syscall(_ADD, held, 1, struct.pack("<Qi", allowed, place), 0)
            os.close(place)
        return libc.syscall(_RESTRICT, held, 0) == 0
    finally:
        os.close(held)


def _seccomp(libc: ctypes.CDLL) -> bool:
    """Install the filter.  Returns whether the kernel has it."""
    machine = platform.machine()
    if machine not in _SECCOMP:
        return False
    steps = b"".join(_filter(machine, os.getpid()))
    held = ctypes.create_string_buffer(steps, len(steps))
    program = struct.pack("@HP", len(steps) // 8, ctypes.addressof(held))
    return libc.syscall(_SECCOMP[machine], 1, 1, program) == 0  # for all threads


def _filter(machine: str, process: int) -> Iterator[bytes]:
    """The instructions of the filter (Linux, `linux/filter.h`)."""
    column = 0 if machine == "x86_64" else 1

    def step(code: int, operand: int, then: int = 0, other: int = 0) -> bytes:
        return struct.pack("<HBBI", code, then, other, operand)

    load, equal, not_below, both, leave = 0x20, 0x15, 0x35, 0x54, 0x06
    number, refuse = step(load, 0), step(leave, _REFUSE | errno.EPERM)
    yield from (step(load, 4), step(equal, _AUDIT[machine], 1), step(leave, _KILL), number)
    if column == 0:
        yield from (step(not_below, _X32, 0, 1), refuse)
    for calls, code in ((_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in calls.values():
            if (n := numbers[column]) is not None:
                yield from (step(equal, n, 0, 1), step(leave, _REFUSE | code))
    # (number of the call, index of an argument, half of it, mask, value allowed under the mask)
    rules: list[tuple[int | None, int, int, int, int]] = [
        ((56, 220)[column], 0, 0, _THREAD, _THREAD),  # clone
        ((62, 129)[column], 0, 0, 0xFFFFFFFF, process),  # kill
        ((234, 131)[column], 0, 0, 0xFFFFFFFF, process),  # tgkill, by which `abort` ends
        ((2, None)[column], 1, 0, _WRITES, 0),  # open
        ((257, 56)[column], 2, 0, _WRITES, 0),  # openat
        ((302, 261)[column], 2, 0, 0xFFFFFFFF, 0),  # prlimit64 with new limits
        ((302, 261)[column], 2, 1, 0xFFFFFFFF, 0),
    ]
    for n, argument, half, mask, allowed in rules:
        if n is not None:
            yield from (
                step(equal, n, 0, 5),
                step(load, 16 + 8 * argument + 4 * half),
                step(both, mask),
                step(equal, allowed, 1),
                refuse,
                number,
            )
    yield step(leave, _ALLOW)
