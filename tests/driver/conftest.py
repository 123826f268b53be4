"""Fixtures of all tests that compile models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilesmith.program.json_values import from_json, to_json
from tilesmith.program.main import Main
from tilesmith.program.parse import parse_program
from tilesmith.program.text import print_program
from tilesmith.runtime.program import Program


@pytest.fixture(autouse=True)
def read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that a test makes is read back from its text and from JSON as the same one."""
    create = Program.__init__

    def created(self: Program, *args: Any, **named: Any) -> None:
        create(self, *args, **named)
        assert parse_program(print_program(self.main)) == self.main
        assert from_json(Main, json.loads(json.dumps(to_json(self.main)))) == self.main

    monkeypatch.setattr(Program, "__init__", created)
