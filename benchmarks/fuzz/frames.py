"""Attacks on an agent: malformed frames, wrong tokens, replayed handshakes, oversized uploads and
names of objects that are paths.

None may be accepted: before the token was proved an agent answers nothing but a greeting, and
afterwards each attack is refused or ends the connection.  The agent must answer the next caller.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesmith.agent.server import Agent
from tilesmith.agent.settings import Limits, Secrets, init
from tilesmith.runtime.remote.frames import HEAD_BYTES, MAGIC, Frame, FrameError, Kind, read_frame
from tilesmith.runtime.remote.keys import Key

from .judge import CRASHED, WRONG

SECONDS = 20.0
"""Longest wait for an answer."""
_NAMES = ("../../etc/passwd", "/etc/passwd", "..%2f..%2fetc%2fpasswd", "a" * 63, "A" * 64, "",
          "a" * 63 + "/", "." * 64, "a" * 64 + "\u2028")  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """What is sent to an agent.

    name: its kind.
    sent: bytes.
    is_admitted: whether the handshake comes before it.
    allowed: answers that may say DONE: greetings.
    """

    name: str
    sent: bytes
    is_admitted: bool = False
    allowed: int = 0


class Target:
    """An agent without TLS, a handshake that it accepted earlier, and garbage that it keeps."""

    def __init__(self, agent: Agent, key: Key) -> None:
        self.agent, self.key = agent, key
        with self.connected() as held:
            self.old = self.greet(held)
            self.garbage = []
            for n in (0, 1, 100, 5000):
                content = random.Random(n).randbytes(n)
                digest = hashlib.sha256(content).hexdigest()
                held.sendall(Frame(Kind.PUT, {"digest": digest}, content).to_bytes())
                assert answer_of(held).kind is Kind.DONE
                self.garbage.append(digest)

    def connected(self) -> socket.socket:
        held = socket.create_connection(self.agent.place, SECONDS)
        held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return held

    def greet(self, held: socket.socket) -> bytes:
        """The handshake.  Returns what was sent."""
        nonce = os.urandom(32)
        hello = Frame(Kind.HELLO, {"nonce": nonce.hex()}).to_bytes()
        held.sendall(hello)
        theirs = bytes.fromhex(answer_of(held).digest("nonce"))
        prove = Frame(Kind.PROVE, {"proof": self.key.proof("caller", theirs, nonce)}).to_bytes()
        held.sendall(prove)
        assert answer_of(held).kind is Kind.DONE
        return hello + prove

    def attack(self, seed: int) -> Attack:
        """The attack of a seed."""
        rng = random.Random(seed)
        hello = Frame(Kind.HELLO, {"nonce": rng.randbytes(32).hex()}).to_bytes()
        request = self._request(rng)
        match rng.randrange(11):
            case 0:
                return Attack("noise", rng.randbytes(rng.randrange(1, 400)))
            case 1:
                return Attack("damaged greeting", _damaged(hello, rng), allowed=1)
            case 2:
                proof = Frame(Kind.PROVE, {"proof": rng.randbytes(32).hex()}).to_bytes()
                return Attack("wrong token", hello + proof, allowed=1)
            case 3:
                return Attack("replayed handshake", self.old, allowed=1)
            case 4:
                return Attack("no handshake", request)
            case 5:
                return Attack("request in a handshake", hello + request, allowed=1)
            case 6:
                return Attack("noise, admitted", rng.randbytes(rng.randrange(1, 400)), True)
            case 7:
                return Attack("damaged request", _damaged(request, rng), True)
            case 8:
                head = Frame(Kind.PUT, {"digest": rng.randbytes(32).hex()}).to_bytes()
                size = rng.choice([1 << 26, 1 << 40, (1 << 64) - 1])
                sent = head[: HEAD_BYTES - 8] + size.to_bytes(8, "little") + head[HEAD_BYTES:]
                return Attack("oversized upload", sent + rng.randbytes(100), True)
            case 9:
                kind = rng.choice([Kind.HAS, Kind.PUT, Kind.RUN, Kind.MEASURE])
                name = rng.choice(_NAMES)
                fields = dict.fromkeys(("digest", "model0", "arrays", "baseline"), name)
                return Attack("path", _raw(kind, fields, b"x"), True)
        return Attack("garbage", request, True)

    def _request(self, rng: random.Random) -> bytes:
        """A request that is well formed, about objects that are garbage."""
        pick = iter(lambda: rng.choice(self.garbage), None)
        threads = str(rng.choice([1, 2]))
        match rng.randrange(4):
            case 0:
                content = rng.randbytes(rng.randrange(1, 2000))
                wrong = hashlib.sha256(content + b"!").hexdigest()
                return Frame(Kind.PUT, {"digest": wrong}, content).to_bytes()
            case 1:
                kind = rng.choice([Kind.RUN, Kind.PROFILE, Kind.TIME])
                shape = ",".join(str(rng.choice([0, 1, 10**9])) for _ in range(rng.randrange(4)))
                named = {"model0": next(pick), "weights0": next(pick), "threads0": threads}
                more = {"repeats": "3", "both": "1", "rounds": "2", "turn": "0.01"}
                array = f"{rng.choice(['f32', 'i64', 'object', 'q7'])}[{shape}]"
                fields = {**named, **more, "array0": array}
                return Frame(kind, fields, rng.randbytes(rng.randrange(64))).to_bytes()
            case 2:
                plan = rng.choice(['{"threads": 1}', "[]", "{", '{"threads": 1, "bounds": 3}'])
                named = {k: next(pick) for k in ("arrays", "baseline", "candidate")}
                return Frame(Kind.MEASURE, {**named, "plan": plan}).to_bytes()
        fields = {f"f{i}": "x" * rng.choice([0, 10, 7000]) for i in range(rng.choice([1, 9]))}
        return _raw(rng.choice([Kind.ABOUT, Kind.COUNTERS, Kind.RATES]), fields, b"")

    def outcome(self, attack: Attack) -> str:
        """How an agent took an attack: "refused", "closed", or what is wrong."""
        with self.connected() as held:
            if attack.is_admitted:
                self.greet(held)
            try:
                held.sendall(attack.sent)
                held.shutdown(socket.SHUT_WR)
            except OSError:  # the agent has closed the connection
                pass
            answers = list(_answers(held))
        done = sum(a.kind is Kind.DONE for a in answers)
        if done > attack.allowed:
            return f"accepted: {attack.name}"
        return "refused" if any(a.kind is Kind.REFUSED for a in answers) else "closed"


def outcomes(target: Target, seeds: Iterable[int]) -> Iterator[tuple[str, str]]:
    """For each seed, the kind of attack and how the agent took it."""
    for seed in seeds:
        attack = target.attack(seed)
        try:
            yield attack.name, target.outcome(attack)
        except TimeoutError:
            yield attack.name, f"no end within {SECONDS:g} s: {attack.name}, seed {seed}"


def fuzz_frames(seeds: Sequence[int]) -> Counter[str]:
    """Attack an agent of this process with the attacks of `seeds`; prints what goes wrong."""
    found: Counter[str] = Counter()
    if not seeds:
        return found
    limits = Limits(object_bytes=1 << 20, request_bytes=1 << 20, rate=1e6, penalty=1e-3)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        init(folder / "secrets", plain=True)
        secrets = Secrets.load(folder / "secrets")
        with Agent(secrets, folder / "objects", limits=limits, plain=True) as agent:
            target = Target(agent, Key(secrets.token))
            for name, outcome in outcomes(target, seeds):
                is_right = outcome in ("refused", "closed")
                found["refused" if is_right else WRONG] += 1
                if not is_right:
                    print(f"{name}: {outcome}", flush=True)
            told = counters(target)
            ended = [name for name in told if name.startswith("ended_")]
            for wrong in (*ended, *strange_files(folder / "objects")):
                print(f"frames: {wrong}", flush=True)
                found[CRASHED] += 1
    return found


def strange_files(folder: Path) -> list[str]:
    """Files in the folder of an agent's objects that are no objects."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_dir() or path.name != hashlib.sha256(path.read_bytes()).hexdigest()
    ]


def answer_of(held: socket.socket) -> Frame:
    return read_frame(lambda size: _received(held, size), 1 << 30)


def _answers(held: socket.socket) -> Iterator[Frame]:
    try:
        while True:
            yield answer_of(held)
    except (EOFError, FrameError, ConnectionError):
        return


def _received(held: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := held.recv(size - len(parts))):
        parts += part
    return parts


def _damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with some bytes changed, removed or added."""
    made = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(made))
        match rng.randrange(4):
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                del made[at : at + rng.randrange(1, 8)]
            case 2:
                made[at:at] = rng.randbytes(rng.randrange(1, 8))
            case 3:
                made[at:] = made[at:][: rng.randrange(1, 40)]
        if not made:
            return b"\0"
    return bytes(made) if bytes(made) != content else bytes(made) + b"\n"


def _raw(kind: Kind, fields: dict[str, str], body: bytes) -> bytes:
    """A frame whose fields are not checked."""
    text = "".join(f"{k}={v}\n" for k, v in fields.items()).encode()
    head = MAGIC + bytes([kind, 0, 0, 0]) + len(text).to_bytes(4, "little")
    return head + len(body).to_bytes(8, "little") + text + body


def counters(target: Target) -> dict[str, float]:
    """The counters of the agent, asked by a new caller."""
    with target.connected() as held:
        target.greet(held)
        held.sendall(Frame(Kind.COUNTERS).to_bytes())
        return json.loads(bytes(answer_of(held).body))
