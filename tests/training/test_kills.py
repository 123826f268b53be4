"""Trainings that are killed at random moments and begin again."""

from __future__ import annotations

from pathlib import Path

import training_kills


def test_a_kill_costs_no_more_than_an_interval_of_checkpoints(tmp_path: Path) -> None:
    assert len(training_kills.run(tmp_path, kills=3, seed=1)) == 3
