"""The driver that runs nothing, for the tests that ask for it."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import Fake, forget

from tilesmith.codegen.c.compiler import find_compiler
from tilesmith.codegen.cuda import driver


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("driver") / "fake.so"
    source = Path(__file__).with_name("fake_driver.c")
    command = [*find_compiler(), "-shared", "-fPIC", "-w", "-O1", str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def fake(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(driver, "NAMES", (str(library),))
    forget()
    made = Fake(library)
    made.library.fake_devices(1, 8, 0)
    made.calls()
    yield made
    gc.collect()  # memory is given back to the library that it came from
    made.fail("", 0)
    made.library.fake_note(0)
    forget()
