"""Check the signature of a compiled model or library.

Example: tilesmith verify resnet50.tsm --require-signature release.pub.pem
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import print_json
from tilesmith.runtime.signing import verify


def command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A .tsm file, or export's folder.")],
    require_signature: Annotated[
        Path,
        typer.Option("--require-signature", metavar="PUBLIC.pem", help="Key of who signed it."),
    ],
    json: JsonFlag = False,
) -> None:
    files = verify(path, require_signature)
    if json:
        print_json({"signed": [str(f) for f in files]})
        return
    for file in files:
        print(f"{file}: signed")
