"""Files of `jax.export.Exported.serialize()`: a FlatBuffer around MLIR's bytecode."""

from __future__ import annotations

from tilesmith.frontend.common.flatbuffer import Buffer, Schema
from tilesmith.support.errors import ModelError

from .bytecode import MAGIC

EXPORTED = Schema(
    {
        "Exported": "version:u16 name:string in_tree:_ in_avals:[_] out_tree:_ out_avals:[_] "
        "devices:i16 in_shardings:[_] out_shardings:[_] platforms:[string] ordered_effects:[_] "
        "unordered_effects:[_] disabled_checks:[_] module:[u8]"
    },
    {},
)
"""The table at the root of `jax.export.Exported.serialize()`, up to the module.  Its first fields
have the same meaning in all versions.
"""


def exported_module(content: bytes | memoryview) -> memoryview | None:
    """The bytecode in a file of `jax.export`; None if the content is no such file."""
    try:
        module = Buffer(content, EXPORTED).root("Exported").module
    except ModelError:
        return None
    held = memoryview(b"") if module is None else memoryview(module)
    return held if held[: len(MAGIC)] == MAGIC else None
