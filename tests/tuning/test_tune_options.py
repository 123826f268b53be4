"""Options of a search: one list of fields behind keywords, command line and documentation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tilesmith as ts
from tilesmith.support.errors import UsageError
from tilesmith.support.options import option_table
from tilesmith.tuning.options import TuneChoices, TuneOptions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning.md"


def test_keywords_are_the_fields() -> None:
    names = [f.name for f in dataclasses.fields(TuneOptions)]
    assert list(TuneChoices.__annotations__) == names
    assert get_type_hints(TuneChoices) == get_type_hints(TuneOptions)


def test_the_documentation_lists_the_fields(request: pytest.FixtureRequest) -> None:
    """`pytest --update-golden` writes the table anew."""
    begin, end = "<!-- tune options -->\n", "<!-- /tune options -->"
    before, rest = PAGE.read_text().split(begin)
    table, after = rest.split(end)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{before}{begin}\n{option_table(TuneOptions)}\n{end}{after}")
    else:
        assert table.strip() == option_table(TuneOptions).strip()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seconds": 0}, "seconds must be positive, not 0"),
        ({"seconds": float("nan")}, "seconds must be positive"),
        ({"trials": 0}, "trials must be at least 1, not 0"),
        ({"search": "best"}, "there is no search 'best'; there are coordinate"),
        ({"workers": "all"}, "workers must be 'ray' or 'ray://host:port', not 'all'"),
        ({"cost_model": 3, "search": "model"}, "int has no fit and no predict"),
        ({"html": "."}, "needs a file name in a folder that exists"),
        ({"html": "absent/r.html"}, "needs a file name in a folder that exists"),
    ],
)
def test_what_is_impossible_is_said_at_once(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TuneOptions(**given)
    with pytest.raises(UsageError, match=message):
        ts.tune("never read.onnx", **given)
    with pytest.raises(UsageError, match=message):
        ts.tune_template(lambda cfg: None, **given)  # type: ignore[arg-type,return-value]  # never called


def test_a_kernel_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a report is about a whole model"):
        ts.tune_template(lambda cfg: None, html=tmp_path / "r.html")  # type: ignore[arg-type,return-value]  # never called
