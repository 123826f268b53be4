"""Fixtures for all tests: golden texts."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden texts instead of comparing them",
    )


def pytest_configure() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, which tests send."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup() -> None:
    """Each test of modules draws the same numbers, in whatever order tests run."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text)` compares with tests/golden/<area>/<file>/<test>.txt; --update-golden writes
    it.

    Called several times in one test, the texts are numbered: `<test>.2.txt` is the second.
    `golden(text, "fold")` compares with `<test>.fold.txt`.
    """
    here = Path(str(request.path)).relative_to(GOLDEN.parent)
    name = request.node.name.replace("/", "_")
    calls = 0

    def check(text: str, label: str = "") -> None:
        nonlocal calls
        calls += not label
        ending = f".{label}" if label else f".{calls}" if calls > 1 else ""
        path = GOLDEN / here.parent / here.stem / f"{name}{ending}.txt"
        if not text.endswith("\n"):
            text += "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        shown = path.relative_to(GOLDEN.parent.parent)
        assert path.exists(), (
            f"{shown} does not exist; run pytest with --update-golden and review it"
        )
        expected = path.read_text(encoding="utf-8")
        assert text == expected, (
            f"the text differs from {shown}; --update-golden if the change is right"
        )

    return check
