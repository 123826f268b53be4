"""Whatever is sent to an agent, it accepts nothing that it should not, and goes on.

`python -m benchmarks.fuzz --frames` sends 20,000 attacks.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fuzz.frames import Target, counters, outcomes, strange_files
from tilesmith.agent.server import Agent
from tilesmith.agent.settings import Limits, Secrets
from tilesmith.runtime.remote.keys import Key

ATTACKS = 300


@pytest.fixture(scope="module")
def target(secrets: Path, tmp_path_factory: pytest.TempPathFactory):
    limits = Limits(object_bytes=1 << 20, request_bytes=1 << 20, rate=1e6, penalty=1e-3)
    held, folder = Secrets.load(secrets), tmp_path_factory.mktemp("attacked") / "objects"
    with Agent(held, folder, limits=limits, plain=True) as agent:
        yield Target(agent, Key(held.token)), folder


def test_attacks_are_refused_and_the_agent_goes_on(target):
    attacked, folder = target
    found: dict[str, Counter[str]] = {}
    for name, outcome in outcomes(attacked, range(ATTACKS)):
        found.setdefault(name, Counter())[outcome] += 1
    assert {o for outcome in found.values() for o in outcome} <= {"refused", "closed"}, found
    assert len(found) == 11
    told = counters(attacked)
    assert not any(name.startswith("ended_") for name in told), told
    assert told["denied"] >= found["wrong token"].total() + found["replayed handshake"].total()
    assert strange_files(folder) == []


def test_the_judge_finds_what_an_agent_accepts(target):
    attacked, _ = target
    from fuzz.frames import Attack
    from tilesmith.runtime.remote.frames import Frame, Kind

    welcome = Attack("about", Frame(Kind.ABOUT).to_bytes(), is_admitted=True)
    assert attacked.outcome(welcome) == "accepted: about"
