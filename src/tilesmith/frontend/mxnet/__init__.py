"""The frontend for models of MXNet and Gluon: `NAME-symbol.json` and `NAME-0000.params`.

Both files are read without MXNet.
"""

from __future__ import annotations

from tilesmith.frontend.common.source import Frontend, Source


def recognises(source: Source) -> bool:
    """Whether a source is the json of an MXNet symbol."""
    content = source.content
    if content is None:
        return False
    start = bytes(content[:64]).lstrip()
    if not start.startswith(b"{"):
        return False
    text = bytes(content)
    return b'"arg_nodes"' in text and (
        b'"mxnet_version"' in text or b'"backward_source_id"' in text
    )


MXNET = Frontend(
    "an MXNet symbol",
    ("a path to an MXNet symbol, or to it and its parameters",),
    recognises,
    "tilesmith.frontend.mxnet.operators",
)

__all__ = ["MXNET"]
