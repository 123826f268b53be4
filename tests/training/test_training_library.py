"""A C library trains as `ts.Trainer` does, and both read the other's checkpoints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_training import classifier, samples

import tilesmith as ts
from tilesmith.support.errors import UsageError
from tilesmith.training import Adam

X, Y = samples(32)

MAIN = """
#include "small_train.h"

int main(int argc, char **argv) {
    static float x[32 * 8], loss;
    static int64_t y[32];
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options, .threads = 1};
    struct tilesmith_model *model;
    struct tilesmith_instance *instance;
    const void *batch[] = {x, y};
    FILE *data = fopen(argv[1], "rb");
    if (fread(x, sizeof x, 1, data) != 1 || fread(y, sizeof y, 1, data) != 1)
        return 1;
    fclose(data);
    if (small_create(&options, &model) || small_instance_create(model, NULL, &instance))
        return 2;
    if (argc > 3 && small_load(instance, argv[3]))
        return 3;
    for (int i = 0; i < 3; i++) {
        if (small_step(instance, batch, &loss))
            return 4;
        printf("%.9g\\n", loss);
    }
    return small_save(instance, argv[2]) ? 5 : 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_library_trains_and_its_checkpoints_are_those_of_a_trainer(tmp_path: Path) -> None:
    trainer = ts.Trainer(classifier(), optimizer=Adam(0.01), threads=1)
    made = trainer.export(tmp_path / "lib", "small", batch=(X, Y))
    assert made.header.with_name("small_train.h") in made.files
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "data").write_bytes(X.tobytes() + Y.tobytes())
    program, saved, again = (tmp_path / name for name in ("main", "saved", "again"))
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", tmp_path / "main.c", "-o", program,
         f"-I{made.header.parent}", made.library, f"-Wl,-rpath,{made.library.parent}"],
        check=True,
    )  # fmt: skip

    def run(*paths: Path) -> list[float]:
        found = subprocess.run([program, tmp_path / "data", *paths], capture_output=True, text=True)
        assert found.returncode == 0, found
        return [float(line) for line in found.stdout.splitlines()]

    losses = run(saved)
    other = ts.Trainer(classifier(), optimizer=Adam(0.01), threads=1)
    history = other.fit([(X, Y)], epochs=3)
    assert losses == pytest.approx([e.measures["loss"] for e in history], rel=1e-6)
    trainer.restore(saved)
    assert trainer.steps == 3
    for name, w in other.weights.items():
        np.testing.assert_allclose(trainer.weights[name], w, rtol=1e-6, atol=1e-7)
    trainer.save(tmp_path / "from_python")
    assert run(again, tmp_path / "from_python") == run(tmp_path / "third", saved)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(saved.read_bytes()[:-200])
    assert subprocess.run([program, tmp_path / "data", again, damaged]).returncode == 3


def test_a_library_needs_sizes_and_one_program() -> None:
    with pytest.raises(UsageError, match="the model has open sizes: expected a batch"):
        ts.Trainer(classifier()).export("lib")
    with pytest.raises(UsageError, match="expected accumulate=1"):
        ts.Trainer(classifier(), accumulate=2).export("lib")
