"""TVM's downloads, which are refused: nothing here uses the network unasked."""

from __future__ import annotations

from typing import Any, NoReturn

from tilesmith.support.errors import UsageError


def download(url: str, *_: Any, **__: Any) -> NoReturn:
    raise UsageError(f"contrib.download: fetch {url} yourself, and give the path of the file")


download_testdata = download
