"""Machines of other parameters: cycles against area, from the library and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilesmith.accel.clock import count_cycles
from tilesmith.accel.convolution import Convolution, compiled
from tilesmith.accel.machine import Machine
from tilesmith.accel.report import hidden_latency
from tilesmith.accel.sweep import Point, machines, pareto, sweep
from tilesmith.cli import execute
from tilesmith.support.cache import Cache
from tilesmith.support.errors import UsageError

from .quantised_models import Model, residual_block

LAYER = Convolution(inputs=16, outputs=32, height=6, width=6, kernel=(3, 3))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    return residual_block(tmp_path / "model.onnx")


def test_counts_are_those_of_the_simulator_times_the_number_of_layers(tmp_path: Path):
    chips = machines({"block_out": [16, 32]})
    points = sweep({LAYER: 3}, chips, Cache(tmp_path), 2, lambda done, total: None)
    for chip, point in zip(chips, points, strict=True):
        assert point.machine == chip
        assert point.cycles == 3 * count_cycles(compiled(LAYER, chip).program, chip).cycles


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path):
    chips = machines({"block_in": [8, 16, 32]})
    cache = Cache(tmp_path)

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep({LAYER: 1}, chips, cache, 1, interrupt)
    again = Cache(tmp_path)
    points = sweep({LAYER: 1}, chips, again, 1, lambda done, total: None)
    assert again.hits >= 2 and all(p.cycles for p in points)


def test_a_machine_without_room_for_a_layer_has_no_cycles(tmp_path: Path):
    (chip,) = machines({"wgt_bytes": [256]})
    (point,) = sweep({LAYER: 1}, [chip], Cache(tmp_path), 1, lambda done, total: None)
    assert point.cycles is None and pareto([point]) == []


def test_area_is_multipliers_and_bits_of_all_buffers():
    point = Point(Machine(block_in=32, gemm_cycles=2), None)
    assert point.multipliers == 256
    assert point.memory_bits == 8 * (32 + 256 + 128 + 32 + 32) * 1024


def test_the_front_has_what_no_other_machine_beats():
    small, large = Machine(block_in=8), Machine(block_in=32)
    slow, fast = Point(small, 20), Point(large, 10)
    beaten, same = Point(large, 20), Point(small, 20)
    assert pareto([beaten, slow, fast]) == [slow, fast]
    assert pareto([slow, same]) == [slow, same]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"block": [8]}, "parameter 'block': expected one of block_in"),
        ({"wgt_bytes": [100]}, "wgt_bytes: expected a multiple of a tile's 256 bytes, found 100"),
        ({"acc_bytes": [1 << 17, 1 << 22]}, "Gemm: the buffers of this machine are too deep"),
    ],
)
def test_impossible_parameters_are_refused(values: dict[str, list[int]], told: str):
    with pytest.raises(UsageError, match=told):
        machines(values)


def test_the_verb_prints_and_draws_each_machine(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "sweep.html"
    words = ["accel", "sweep", "--model", str(model), "--vary", "block_in=8,16"]
    assert execute([*words, "--json", "--html", str(page)]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["layers"] == 4 and counted["counted"]
    assert {m["block_in"]: m["multipliers"] for m in counted["machines"]} == {8: 128, 16: 256}
    assert [m["cycles"] for m in counted["machines"]] == sorted(
        m["cycles"] for m in counted["machines"]
    )
    text = page.read_text()
    assert text.count("<svg") == 2
    for m in counted["machines"]:
        assert text.count(f"block_in {m['block_in']}: {m['cycles']} cycles") == 2
    assert execute([*words, "--predict"]) == 0
    assert "multipliers" in capsys.readouterr().out


def test_the_table_shows_a_parameter_of_zero(model: Path, capsys: pytest.CaptureFixture[str]):
    words = ["accel", "sweep", "--model", str(model), "--predict", "--vary", "dma_latency=0,64"]
    assert execute(words) == 0
    _, *rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert {row[0] for row in rows} == {"0", "64"}


def test_layers_show_how_virtual_threads_hide_latency(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "layers.html"
    words = ["accel", "layers", "--model", str(model)]
    assert execute([*words, "--json", "--html", str(page)]) == 0
    rows = json.loads(capsys.readouterr().out)["layers"]
    assert sum(row["count"] for row in rows) == 4
    for row in rows:
        assert row["threads"] == 2
        assert 0 < row["alone"] <= 1 and 0 < row["together"] <= 1 <= row["of_bound"]
    text = page.read_text()
    assert text.count("8 x 8, 16 to 32, 3 x 3 / 1") == 2 + 2 + 1  # points, bar, row
    assert "multiplications in a cycle" in text
    assert execute(words) == 0
    assert "8 x 8, 16 to 32, 3 x 3 / 1" in capsys.readouterr().out
    assert execute([*words, "--predict"]) == 1
    assert "--vary and --predict are of sweep" in capsys.readouterr().err


@pytest.mark.parametrize(("side", "threads"), [(7, 1), (8, 2)])
def test_a_layer_tells_the_threads_of_its_tiles(side: int, threads: int):
    conv = Convolution(inputs=16, outputs=16, height=side, width=side)
    (told,) = hidden_latency({conv: 1}, Machine())
    assert told.threads == threads
    assert (told.alone == told.together) == (threads == 1)


def test_a_model_without_layers_for_the_accelerator_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    m = Model(np.int8)
    path = m.saved(tmp_path / "m.onnx", [1, 4], m.node("Relu", ["x"]))
    assert execute(["accel", "sweep", "--model", str(path)]) == 2
    assert "expected layers for the accelerator, found none" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["block_in", "block_in=", "block_in=8,x", "block_in=-8"])
def test_values_of_another_form_are_refused(
    text: str, model: Path, capsys: pytest.CaptureFixture[str]
):
    assert execute(["accel", "sweep", "--model", str(model), "--vary", text]) == 1
    assert "--vary wants NAME=8,16,..." in capsys.readouterr().err
