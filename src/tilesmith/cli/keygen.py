"""Make a pair of keys that sign compiled models.

The secret key is written to the named file, and the public key beside it.  Both are Ed25519 keys in
PEM.  Keys made by `openssl genpkey -algorithm ed25519` also work.

Example: tilesmith keygen release.pem
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import print_json
from tilesmith.runtime.signing import make_keys


def command(
    key: Annotated[Path, typer.Argument(metavar="KEY.pem", help="File of the secret key.")],
    json: JsonFlag = False,
) -> None:
    secret, public = make_keys(key)
    if json:
        print_json({"secret": str(secret), "public": str(public)})
        return
    print(f"secret key: {secret} (for --sign; keep it)")
    print(f"public key: {public} (for --require-signature; hand it out)")
