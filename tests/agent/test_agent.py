"""An agent runs and measures what callers elsewhere compiled, and survives it."""

from __future__ import annotations

import errno
import os
import platform
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.agent.server import Agent, Pace, Turns
from tilesmith.agent.settings import DEVICE_FILE, Limits, Secrets, init
from tilesmith.agent.store import Store
from tilesmith.runtime.remote.address import Address
from tilesmith.runtime.remote.device import RemoteDevice, timed_in_turns
from tilesmith.runtime.remote.frames import Frame, FrameError, Kind
from tilesmith.runtime.remote.keys import Key
from tilesmith.runtime.remote.link import AbsentError, LostError
from tilesmith.support.child import Child
from tilesmith.support.confine import layers

X = np.arange(16, dtype=np.float32).reshape(2, 8) / 10


def test_a_deployed_executable_gives_the_results_of_the_local_one(place, model):
    here = ts.compile(model)
    there = here.deploy(place.connect())
    np.testing.assert_array_equal(there(X), here(X))
    out = np.empty((2, 4), np.float32)
    assert there(X, out=out) is out
    np.testing.assert_array_equal(out, here(X))
    assert there.run({"x": X})["y"].shape == (2, 4)
    with pytest.raises(ts.ModelError, match=r"expected shape \(2, 8\)"):
        there(X[:1])


def test_objects_are_sent_once_and_weights_are_shared(place, model):
    device = place.connect()
    exe = ts.compile(model)
    exe.deploy(device)(X)
    before = device.counters()["bytes_received"]
    exe.deploy(place.connect())(X)  # another caller, the same model
    assert device.counters()["bytes_received"] - before < 1000


def test_removed_objects_are_sent_again(place, model):
    exe = ts.compile(model).deploy(place.connect())
    expected = exe(X)
    for path in place.agent._store.folder.iterdir():
        path.unlink()
    np.testing.assert_array_equal(exe(X), expected)


def test_kernels_are_profiled_with_the_rates_of_the_device(place, model):
    device = place.connect()
    exe = ts.compile(model).deploy(device)
    profile = exe.profile(X)
    assert profile.machine == device.machine and profile.seconds > 0
    assert len(profile) == len(exe.program.calls)
    times = timed_in_turns([exe.runner, exe.runner], [X], 2, 0.01)
    assert times is not None and [len(s.rounds) for s in times] == [2, 2]
    assert timed_in_turns([ts.compile(model).runner], [X], 2, 0.01) is None


def test_an_address_is_a_target(place, model, monkeypatch, tmp_path):
    port = place.agent.place[1]
    (tmp_path / f"127.0.0.1_{port}.json").write_text(place.key.read_text())
    monkeypatch.setenv("TILESMITH_DEVICES", str(tmp_path))
    exe = ts.compile(model, target=place.address)
    assert exe.runner.device.address == place.address
    np.testing.assert_array_equal(exe(X), ts.compile(model)(X))
    checks = ts.check(model, target=place.address)
    assert checks and all(c.passed for c in checks)


def test_what_an_agent_can_not_run_is_refused_before_it_is_sent(place, model):
    device = place.connect()
    exe = ts.compile(model)
    lacking = ts.Target(
        "other", "aarch64-linux-gnu", "generic", frozenset({"neon"}), 128, 32
    )  # fmt: skip
    program = type(exe.program)(**{
        f: getattr(exe.program, f) for f in exe.program.__dataclass_fields__
    } | {"target": lacking})  # fmt: skip
    with pytest.raises(ts.ModelError, match="lacks aarch64"):
        device.runner(program)


@pytest.mark.skipif("seccomp" not in layers(), reason="the kernel has no seccomp")
def test_machine_code_can_not_reach_files_programs_or_the_network(tmp_path):
    script = """
import os, socket, subprocess, sys, threading
from pathlib import Path
from tilesmith.support.confine import confine
confine([Path(sys.argv[1])])
def refused(call):
    try:
        call()
    except OSError:
        return True
    return False
print(refused(socket.socket), refused(os.fork), refused(lambda: subprocess.run(["true"])),
      refused(lambda: open(sys.argv[1] + "/new", "w")), refused(lambda: open("/etc/passwd")),
      refused(lambda: os.kill(os.getppid(), 0)), refused(lambda: os.listdir(sys.argv[1])))
threads = [threading.Thread(target=print, args=("thread",))]
threads[0].start()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    expected = [*["True"] * 4, "True" if "landlock" in layers() else "False", "True", "False"]
    assert done.stdout.split() == [*expected, "thread"]


LOOKS = """
import sys
from pathlib import Path
from tilesmith.support.confine import confine
confine()
for name in sys.argv[1:]:
    try:
        open(name).close()
        print("open")
    except OSError:
        print("refused")
"""


@pytest.mark.skipif("landlock" not in layers(), reason="the kernel has no Landlock")
def test_the_current_folder_is_not_readable(tmp_path):
    (tmp_path / "looks.py").write_text(LOOKS)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "secret").write_text("token")
    inner = str(tmp_path / "inner" / "secret")
    paths = os.pathsep.join((str(Path(ts.__file__).parents[1]), str(tmp_path / "inner")))
    done = subprocess.run(
        [sys.executable, "-m", "looks", "looks.py", inner, os.__file__],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["refused", "refused", "open"]


def test_an_agent_whose_runs_could_read_its_secrets_does_not_start(secrets, tmp_path, monkeypatch):
    held = Secrets.load(secrets)
    with pytest.raises(ts.UsageError, match="secrets are in"):
        Agent(held, secrets)
    monkeypatch.syspath_prepend(str(secrets.parent))
    with pytest.raises(ts.UsageError, match="take it out of PYTHONPATH"):
        Agent(held, tmp_path / "o")


def test_workers_do_not_inherit_the_environment(place, monkeypatch):
    monkeypatch.setenv("HELD_TOKEN", "secret")
    worker = Child("tilesmith.agent.worker", environment=place.agent._programs._environment)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    process = worker.start()
    try:
        environment = Path(f"/proc/{process.pid}/environ")
        while not (content := environment.read_bytes()):  # empty while the program is exchanged
            time.sleep(0.01)
        assert b"PYTHONPATH=" in content and b"HELD_TOKEN" not in content
    finally:
        worker.end()


def test_a_worker_that_is_not_confined_ends(tmp_path):
    script = """
import sys
from tilesmith.agent import worker
worker.confine = lambda readable: ("limits",)
worker.layers = lambda: ("limits", "seccomp")
worker.main()
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and "expected to be confined by limits, seccomp" in done.stderr


@pytest.mark.skipif("seccomp" not in layers(), reason="the kernel has no seccomp")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has these calls")
def test_the_times_of_files_can_not_be_changed(tmp_path):
    script = """
import ctypes, sys
from tilesmith.support.confine import confine
confine()
libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1].encode()
for call, arguments in ((132, (path, None)), (235, (path, None)), (261, (-100, path, None))):
    print(libc.syscall(call, *arguments), ctypes.get_errno())
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-1", "1"] * 3


def test_a_run_that_hangs_or_crashes_costs_only_itself(place, model):
    exe = ts.compile(model).deploy(place.connect())
    expected = exe(X)
    worker = place.agent._programs
    timer = threading.Timer(0.2, worker.kill)
    timer.start()
    with pytest.raises(ts.DeviceError, match="SIGKILL"):
        timed_in_turns([exe.runner], [X], 1000, 1.0)
    np.testing.assert_array_equal(exe(X), expected)


def test_runs_have_a_time_limit(secrets, tmp_path, model):
    with Agent(Secrets.load(secrets), tmp_path / "o", limits=Limits(run_seconds=0.3)) as agent:
        device = RemoteDevice(str(Address("tls", *agent.place)), secrets / DEVICE_FILE)
        exe = ts.compile(model).deploy(device)
        with pytest.raises(ts.DeviceError, match=r"no result within 0\.3 s"):
            timed_in_turns([exe.runner], [X], 1000, 1.0)
        assert device.counters()["ended_timeout"] >= 1


def test_long_measurements_are_several_requests(place, model, monkeypatch):
    monkeypatch.setattr("tilesmith.runtime.remote.device.ASKED_SECONDS", 0.02)
    device = place.connect()
    exe = ts.compile(model).deploy(device)
    before = device.counters().get("runs", 0)
    (times,) = timed_in_turns([exe.runner], [X], 5, 0.01)
    assert device.counters()["runs"] - before == 3
    assert len(times.rounds) == 5 and len(times.times) >= 15


def test_a_caller_is_connected_again_after_the_agent_was_away(secrets, tmp_path, model):
    held, key = Secrets.load(secrets), secrets / DEVICE_FILE
    with Agent(held, tmp_path / "o") as agent:
        port = agent.place[1]
        exe = ts.compile(model).deploy(RemoteDevice(f"tls://127.0.0.1:{port}", key))
        expected = exe(X)
    with pytest.raises(LostError, match="agent serve"):
        exe(X)
    with Agent(held, tmp_path / "o", port=port):
        np.testing.assert_array_equal(exe(X), expected)


def test_only_the_pinned_certificate_and_the_token_open_a_device(place, secrets, tmp_path):
    init(tmp_path / "other")
    other = (tmp_path / "other" / DEVICE_FILE).read_text()
    mixed = tmp_path / "mixed.json"
    mixed.write_text(re.sub(r'"token": "\w+"', f'"token": "{"0" * 64}"', place.key.read_text()))
    (tmp_path / "key.json").write_text(other)
    with pytest.raises(LostError, match="certificate"):
        RemoteDevice(place.address, tmp_path / "key.json")
    with pytest.raises(ts.UsageError, match="does not have the token"):
        RemoteDevice(place.address, mixed)
    old = Key.load(place.key).context()
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with socket.create_connection(place.agent.place) as s, pytest.raises(ssl.SSLError):
        old.wrap_socket(s)


def test_keys_and_addresses_that_are_none_are_refused(tmp_path, secrets):
    (tmp_path / "no.json").write_text("{}")
    for address, key, message in (
        ("board:9100", None, "expected an address"),
        ("tls://board:9100/x", None, "expected an address"),
        ("tls://board:99999", None, "expected an address"),
        ("tcp://board:9100", None, "ssh -L"),
        ("tls://board", tmp_path / "no.json", "found another file"),
        ("tls://board", tmp_path / "missing", "can't be read"),
    ):
        with pytest.raises(ts.UsageError, match=message):
            RemoteDevice(address, key)
    with pytest.raises(ts.UsageError, match="would lose their access"):
        init(secrets)
    with pytest.raises(ts.UsageError, match=r"expected the host 127\.0\.0\.1"):
        Agent(Secrets.load(secrets), tmp_path / "o", host="0.0.0.0", plain=True)
    os.chmod(tmp_path, 0o777)
    (tmp_path / "agent.json").write_text("{}")
    with pytest.raises(ts.UsageError, match="anybody may write"):
        Secrets.load(tmp_path)


def test_old_objects_make_room_and_wrong_ones_are_not_kept(tmp_path):
    import hashlib

    store = Store(tmp_path / "s", 100)

    def put(content: bytes, digest: str = "") -> str:
        left = memoryview(content)

        def receive(size: int) -> bytes:
            nonlocal left
            piece, left = bytes(left[:size]), left[size:]
            return piece

        digest = digest or hashlib.sha256(content).hexdigest()
        store.put(digest, len(content), receive)
        return digest

    first, second = put(b"a" * 40), put(b"b" * 40)
    os.utime(tmp_path / "s" / second, (1, 1))
    third = put(b"c" * 40)
    assert store.path(first) and store.path(third) and store.path(second) is None
    with pytest.raises(ts.UnavailableError, match="more bytes"):
        put(b"d" * 101)
    with pytest.raises(ts.DeviceError, match="expected contents of this digest"):
        put(b"e", "0" * 64)
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == sorted([first, third])


def test_callers_get_turns_in_the_order_of_asking():
    turns, order = Turns(), []

    def one(number: int) -> None:
        with turns.one():
            order.append(number)
            time.sleep(0.005)

    with ThreadPoolExecutor(8) as pool, turns.one():
        for number in range(8):
            pool.submit(one, number)
            time.sleep(0.01)
    assert order == list(range(8))


def test_a_rate_of_requests_is_kept():
    pace, start = Pace(50.0), time.monotonic()
    for _ in range(75):  # a burst of 50, then half a second's
        pace.wait()
    assert 0.4 < time.monotonic() - start < 2.0


def test_too_many_callers_are_turned_away(secrets, tmp_path):
    with Agent(Secrets.load(secrets), tmp_path / "o", limits=Limits(callers=1)) as agent:
        with socket.create_connection(agent.place):
            time.sleep(0.1)
            with socket.create_connection(agent.place, 5) as second:
                second.settimeout(5)
                assert second.recv(1) == b""
        with pytest.raises(ts.UsageError, match="positive"):
            Limits(rate=0.0)


def test_a_connection_with_tls_counts_once(secrets, tmp_path):
    with Agent(Secrets.load(secrets), tmp_path / "o", limits=Limits(callers=2)) as agent:
        address = str(Address("tls", *agent.place))
        both = [RemoteDevice(address, secrets / DEVICE_FILE) for _ in range(2)]
        assert [d.counters()["refused"] for d in both] == [0, 0]


class Exhausted:
    """A socket that listens, in a process that had no descriptors left for a while."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening, self.failures = listening, 2

    def accept(self):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str):
        return getattr(self._listening, name)


def test_an_agent_without_descriptors_goes_on_when_it_has_some(secrets, tmp_path):
    agent = Agent(Secrets.load(secrets), tmp_path / "o")
    agent._listening = Exhausted(agent._listening)
    with agent:
        assert RemoteDevice(str(Address("tls", *agent.place)), secrets / DEVICE_FILE).counters()
        assert agent._listening.failures == 0


def test_a_request_in_progress_is_lost_when_the_agent_ends(secrets, tmp_path, model):
    agent = Agent(Secrets.load(secrets), tmp_path / "o").__enter__()
    exe = ts.compile(model).deploy(
        RemoteDevice(str(Address("tls", *agent.place)), secrets / DEVICE_FILE)
    )
    exe(X)
    timer = threading.Timer(0.3, agent.end)
    timer.start()
    with pytest.raises(LostError):
        timed_in_turns([exe.runner], [X], 1000, 1.0)
    timer.join()
    assert "ended_crash" not in agent.counters


def test_a_full_disk_makes_the_device_unavailable(place, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    device = place.connect()
    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(ts.UnavailableError, match="No space left"):
        device.upload(b"content")


def test_objects_are_looked_for_when_the_turn_comes(place, model):
    here = ts.compile(model)
    runner = place.connect().runner(here.program, threads=3)  # which no worker has loaded
    runner._upload()
    with ThreadPoolExecutor(1) as pool:
        with place.agent._turns.one():
            asked = pool.submit(runner.call, (X,), None)
            while len(place.agent._turns._waiting) < 2:
                time.sleep(0.01)
            for path in place.agent._store.folder.iterdir():
                path.unlink()
        np.testing.assert_array_equal(asked.result(), here(X))


def test_a_request_for_an_object_that_is_not_there_says_so(place):
    device = place.connect()
    fields = {"model0": "0" * 64, "weights0": "0" * 64, "threads0": "1"}
    with pytest.raises(AbsentError, match="send it first"):
        device.link.ask(Kind.RUN, fields)
    assert any("RUN object 000000000000 is not here" in line for line in device.logs())


def test_frames_are_what_they_were_and_others_are_refused():
    frame = Frame(Kind.RUN, {"a": "1", "b_c": "x y"}, b"body")
    assert Frame.of_bytes(frame.to_bytes()) == frame
    for fields in ({"A": "1"}, {"a": "1\n"}, {"a": "\0"}, {"a" * 40: ""}, {"a": "x" * 70000}):
        with pytest.raises(FrameError):
            Frame(Kind.RUN, fields).to_bytes()
    for content in (b"TSB1", frame.to_bytes()[:-1], b"\0" * 20):
        with pytest.raises(FrameError):
            Frame.of_bytes(content)


def test_the_program_makes_secrets_and_serves_until_it_is_ended(tmp_path, model):
    command = [sys.executable, "-m", "tilesmith", "agent"]
    folder = ["--folder", str(tmp_path / "a")]
    subprocess.run([*command, "init", *folder], check=True, capture_output=True)
    served = subprocess.Popen(
        [*command, "serve", "--port", "0", *folder], stdout=subprocess.PIPE, text=True
    )
    try:
        assert served.stdout is not None
        address = served.stdout.readline().split(";")[0].removeprefix("listening at ").strip()
        exe = ts.compile(model).deploy(RemoteDevice(address, tmp_path / "a" / DEVICE_FILE))
        np.testing.assert_array_equal(exe(X), ts.compile(model)(X))
    finally:
        served.terminate()
    assert served.wait(20) == 143
