"""The pages of docs/ that have code are run from top to bottom, and their output is compared.

A ```python block is executed in the namespace of its page; a ```text block after the comment
`<!-- output -->` is what was printed since the last one.  `pytest tests/docs --update-golden`
writes the outputs anew.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "getting-started.md",
    "miniature.md",
    "custom-operators.md",
    "accuracy.md",
    "host.md",
    "te.md",
    "te-windows.md",
    "te-threads.md",
    "te-scan.md",
    "te-extern.md",
    "from-tvm-and-halide.md",
    "serving.md",
    "accelerator.md",
    "troubleshooting.md",
)
_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$|^<!-- output -->\n```text\n(?P<output>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DOCS / page
    text = path.read_text()
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    printed = io.StringIO()
    update = request.config.getoption("--update-golden", default=False)
    renewed, end = [], 0
    outputs = 0
    for block in _BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 2
        if block["code"] is not None:
            source = "\n" * (line - 1) + block["code"]
            code = compile(source, str(path), "exec", dont_inherit=True)  # of our __future__
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            continue
        outputs += 1
        got = printed.getvalue()
        printed = io.StringIO()
        got = "\n".join(row.rstrip() for row in got.splitlines()) + "\n"
        if update:
            renewed.append(text[end : block.start("output")] + got)
            end = block.end("output")
        else:
            assert got == block["output"], f"{page}, line {line}: the page shows something else"
    assert outputs, f"{page} has no output block"
    assert not printed.getvalue().strip(), f"{page}: output that the page does not show"
    if update:
        path.write_text("".join(renewed) + text[end:])
