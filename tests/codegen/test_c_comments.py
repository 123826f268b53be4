"""Whatever names a model has, none of them leaves the comment that it is printed in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesmith.codegen.c.emit import comment, comment_line

PIECES = ("*", "/", "\\", "\n", "\r", "??/", "?", "*/", "//", "/*", "\0", '"', "'", "$(x)", "<b>",
          "@", "%", "\u202e", "\u2028", "é", "x", " ", "\x0b", "\x0c", "*\\\n/",
          "*??/\n/")  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(NAMES)
def test_a_comment_ends_at_its_end(name: str) -> None:
    found = comment(name)
    assert found.index("*/") == len(found) - 2
    assert "/*" not in found[2:]
    assert "\\" not in found
    assert "??" not in found
    assert found.isascii()
    assert found.replace("\n", "").isprintable()
    assert "\n" not in comment_line(name)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("splice", ("*/", "*\\\n/", "*??/\n/", "*\\\r\n/", "*\\ \n/"))
def test_a_compiler_sees_no_code_in_a_name(splice: str, tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text(comment(f"{splice} int hidden; /*") + "\nint seen;\n", newline="")
    command = ["cc", "-std=c99", "-trigraphs", "-w", "-E", "-P", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["int", "seen;"]
