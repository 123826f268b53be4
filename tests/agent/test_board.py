"""The agent without Python speaks the same protocol, and confines what it runs."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from fuzz.frames import Target, counters, outcomes, strange_files
from tilesmith.agent.board import build_agent
from tilesmith.agent.settings import DEVICE_FILE, Secrets, init
from tilesmith.runtime.remote.boards import board_target
from tilesmith.runtime.remote.device import RemoteDevice, timed_in_turns
from tilesmith.runtime.remote.frames import Kind, head_bytes
from tilesmith.runtime.remote.keys import Key

X = np.arange(16, dtype=np.float32).reshape(2, 8) / 10
ATTACKS = 300
HANDSHAKE_SECONDS, STORE_BYTES = 3, 16 << 20
LIMITED = (f"-DHANDSHAKE_SECONDS={HANDSHAKE_SECONDS}", f"-DSTORE_BYTES={STORE_BYTES}ull")
SANITIZED = ("-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@dataclass(frozen=True)
class Board:
    """An agent of this machine, built with sanitizers."""

    place: tuple[str, int]
    folder: Path
    process: subprocess.Popen[str]

    def connect(self) -> RemoteDevice:
        return RemoteDevice(f"tcp://127.0.0.1:{self.place[1]}", self.folder / DEVICE_FILE)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("board")
    build_agent("native", folder / "agent", penalty=1000, flags=SANITIZED + LIMITED, small=False)
    init(folder / "own", plain=True)
    command = [str(folder / "agent"), str(folder / "own"), "0"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert served.stdout is not None and served.stderr is not None
    port = int(served.stdout.readline().rsplit(":", 1)[1])
    yield Board(("127.0.0.1", port), folder / "own", served)
    served.kill()
    assert served.stderr.read() == ""  # nothing of a sanitizer


def test_attacks_are_refused_and_the_agent_goes_on(board):
    target = Target(board, Key(Secrets.load(board.folder).token))
    found = Counter(outcomes(target, range(ATTACKS)))
    assert {o for _, o in found} <= {"refused", "closed"}, found
    assert counters(target)["denied"] > 0
    assert strange_files(board.folder / "objects") == []
    assert board.process.poll() is None


def test_a_model_is_compiled_for_the_board_and_runs_there(board, model):
    device = board.connect()
    assert not device.has_python
    here = ts.compile(model, target=device.target.name)
    there = here.deploy(device)
    np.testing.assert_array_equal(there(X), here(X))
    times = timed_in_turns([there.runner], [X], 2)
    assert times is not None and len(times[0].rounds) == 2 and times[0].minimum > 0
    profile = there.profile(X, repeats=2)
    assert [k.runs for k in profile] == [1] * len(here.program.calls)
    assert 0 < profile.seconds < 10 * profile.whole and profile.machine is not None
    told = device.counters()
    assert told["runs"] == 6 and told["ended_crash"] == 0


def test_a_handshake_has_a_time_limit(board):
    start = time.monotonic()
    with socket.create_connection(board.place, 30) as slow:
        slow.sendall(b"T")
        assert slow.recv(1) == b""
    assert HANDSHAKE_SECONDS - 1 < time.monotonic() - start < 20


def test_uploads_in_progress_count_and_leave_nothing_behind(board):
    device, objects = board.connect(), board.folder / "objects"
    (objects / ".1.part").write_bytes(b"of a process that was killed")
    content = bytes(STORE_BYTES * 5 // 8)
    digest = hashlib.sha256(content).hexdigest()
    with device.link._connected() as other:
        head = head_bytes(Kind.PUT, {"digest": digest}, len(content))
        other.sendall(head + content[:100_000])
        deadline = time.monotonic() + 20
        while [p.name for p in objects.glob(".*.part")] in ([], [".1.part"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(ts.UnavailableError, match="no room"):
            device.upload(content)
    while list(objects.glob(".*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert device.upload(content) == digest


def test_models_with_open_dimensions_are_refused(board):
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    device = board.connect()
    with pytest.raises(ts.ModelError, match="expected shapes="):
        ts.compile(made, target=device.target.name).deploy(device)


HOSTILE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <signal.h>
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "hang"))
        for (;;) {}
    if (argc > 1 && !strcmp(argv[1], "crash"))
        *(volatile int *)8 = 1;
    char *none[] = {"sh", 0};
    int reached = 0;
    reached |= (socket(AF_INET, SOCK_STREAM, 0) >= 0) << 0;
    reached |= (open("/etc/passwd", O_RDONLY) >= 0) << 1;
    reached |= (open("/tmp/made", O_WRONLY | O_CREAT, 0600) >= 0) << 2;
    reached |= (kill(getppid(), 0) == 0) << 3;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    reached |= (child > 0) << 4;
    execve("/bin/sh", none, none);
    reached |= (errno != EPERM && errno != EACCES) << 5;
    reached |= (malloc(64ull << 30) != NULL) << 6;
    printf("%d", reached);
    return 0;
}
"""


def test_programs_can_not_reach_anything_and_are_ended(board, tmp_path):
    (tmp_path / "hostile.c").write_text(HOSTILE)
    made = tmp_path / "hostile"
    command = ["gcc", "-O1", "-static", "-w", str(tmp_path / "hostile.c"), "-o", str(made)]
    subprocess.run(command, check=True)
    device = board.connect()
    digest = device.upload(made.read_bytes())

    def run(words: str) -> bytes:
        fields = {"program": digest, "seconds": "1", "words": words}
        return bytes(device.link.ask(Kind.EXEC, fields).body)

    assert run("") == b"0"
    with pytest.raises(ts.DeviceError, match="no result within 1 s"):
        run("hang")
    with pytest.raises(ts.DeviceError, match="signal 11"):
        run("crash")
    assert run("") == b"0"
    assert device.counters()["ended_timeout"] == 1


def test_the_target_of_a_board_follows_from_its_features():
    v3 = (
        "fpu cx8 cmov mmx fxsr sse sse2 lm pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt xsave avx "
        "f16c lahf_lm abm bmi1 avx2 bmi2"
    )
    v4 = f"{v3} avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni"
    assert board_target("x86_64", v3, 6).name == "x86-64-v3"
    assert board_target("x86_64", "sse2", 1).name == "x86-64"
    assert board_target("x86_64", v4, 6).name == "x86-64-v4+avx512vnni"
    assert board_target("x86_64", v4.replace(" abm", ""), 6).name == "x86-64-v2"
    assert board_target("armv7l", "half thumb vfp neon", 4).name == "armv7"
    pi = board_target("aarch64", "fp asimd asimddp", 4)
    assert "dotprod" in pi.features and "i8mm" not in pi.features and pi.model.cores == 4
    assert board_target("riscv64", "rv64imafdcv_zicsr", 8).name == "riscv64-v"
    assert board_target("riscv64", "rv64imafdc_zve", 8).name == "riscv64"
    with pytest.raises(ts.DeviceError, match="'mips'"):
        board_target("mips", "", 1)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")
@pytest.mark.parametrize(
    ("target", "machine"), [("x86-64", 62), ("aarch64", 183), ("riscv64", 243)]
)
def test_an_agent_is_one_small_static_file(target, machine, tmp_path):
    build_agent(target, tmp_path / "agent")
    content = (tmp_path / "agent").read_bytes()
    assert len(content) < 300_000
    assert struct.unpack_from("<H", content, 18) == (machine,)  # e_machine of ELF
    assert b"ld-linux" not in content and b"ld-musl" not in content
    with pytest.raises(ts.UsageError, match="runs on Linux"):
        build_agent(f"{target}-macos" if target == "aarch64" else "x86-64-v3-windows", tmp_path)


@dataclass(frozen=True)
class Emulated:
    """An agent for another processor under a user-mode emulator, which can't confine programs."""

    target: str
    folder: Path
    port: int

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


@pytest.fixture(scope="module", params=["aarch64", "riscv64", "armv7"])
def emulated(request, tmp_path_factory) -> Iterator[Emulated]:
    target = request.param
    emulator = shutil.which(f"qemu-{'arm' if target == 'armv7' else target}")
    if emulator is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs user-mode qemu and ziglang")
    folder = tmp_path_factory.mktemp(target)
    flags = ("-std=gnu11", "-Os", "-static", f'-DEMULATOR="{emulator}"')
    build_agent(target, folder / "agent", penalty=1000, flags=flags)
    init(folder / "own", plain=True)
    command = [emulator, str(folder / "agent"), str(folder / "own"), "0"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    port = int(served.stdout.readline().rsplit(":", 1)[1])
    shutil.copyfile(folder / "own" / DEVICE_FILE, folder / f"127.0.0.1_{port}.json")
    yield Emulated(target, folder, port)
    served.kill()
    served.wait()


def test_models_run_on_boards_with_other_processors(emulated, model, monkeypatch):
    monkeypatch.setenv("TILESMITH_DEVICES", str(emulated.folder))
    there = ts.compile(model, target=emulated.address)
    device = there.runner.device
    assert device.target.architecture == emulated.target and device.confined == ("limits",)
    np.testing.assert_allclose(there(X), ts.compile(model)(X), atol=1e-6)
    times = timed_in_turns([there.runner], [X], 2)
    assert times is not None and times[0].minimum > 0
    if emulated.target == "armv7":
        with pytest.raises(ts.DeviceError, match="of 64 bits"):
            there.profile(X)
    else:
        assert there.profile(X).seconds > 0
