"""The frontend for OpenVINO's intermediate representation: an `.xml` with its `.bin`."""

from __future__ import annotations

import re

from tilesmith.frontend.common.source import Frontend, Source

_START = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)?<net\s", re.DOTALL
)


def recognises(source: Source) -> bool:
    """Whether the source is XML whose root is <net>."""
    content = source.content
    return content is not None and _START.match(memoryview(content)[:4096]) is not None


OPENVINO = Frontend(
    "an OpenVINO model",
    ("a path to an OpenVINO model (.xml)", "the paths of its .xml and .bin as a pair"),
    recognises,
    "tilesmith.frontend.openvino.operators",
)

__all__ = ["OPENVINO"]
