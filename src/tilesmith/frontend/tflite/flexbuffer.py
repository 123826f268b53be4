"""Bounded reading of FlexBuffers, from a file that is not trusted.

Custom operators have their options in this format: maps of numbers, strings and lists.

A value's type and field width are packed into one byte, stored outside of the value.  A value's
contents lie before the reference to it, so offsets are subtracted.
"""

from __future__ import annotations

import struct
from typing import Any

from tilesmith.support.errors import ModelError

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_MAP, _VECTOR, _BOOL = 9, 10, 26
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 36: _BOOL}
_TUPLES = {16 + i: ((_INT, _UINT, _FLOAT)[i % 3], 2 + i // 3) for i in range(9)}
"""Types of vectors of fixed length -> the type and the number of the elements."""
_FORMATS = {
    _INT: {1: "<b", 2: "<h", 4: "<i", 8: "<q"},
    _UINT: {1: "<B", 2: "<H", 4: "<I", 8: "<Q"},
    _FLOAT: {2: "<e", 4: "<f", 8: "<d"},
}
_MOST = 1 << 16
"""Upper bound on the values in an operator's options.  More values mean that they are damaged."""
_DEEPEST = 16


def read_options(content: bytes, what: str) -> dict[str, Any]:
    """The map at the root.  `what` names the operator for messages.

    Raises ModelError for damaged contents.
    """
    if not content:
        return {}
    reader = _Reader(content, what)
    if len(content) < 3:
        reader.damaged()
    width, packed = content[-1], content[-2]
    root = reader.value(len(content) - 2 - width, width, packed, 0)
    if not isinstance(root, dict):
        raise ModelError(f"options of {what}: expected a map, found {type(root).__name__}")
    return root


class _Reader:
    def __init__(self, content: bytes, what: str) -> None:
        self._content, self._what, self._count = content, what, 0

    def damaged(self) -> Any:
        raise ModelError(f"options of {self._what}: the {len(self._content)} bytes are damaged")

    def _scalar(self, at: int, width: int, kind: int) -> Any:
        form = _FORMATS[kind].get(width)
        if form is None or at < 0 or at + width > len(self._content):
            return self.damaged()
        return struct.unpack_from(form, self._content, at)[0]

    def _behind(self, at: int, width: int) -> int:
        """The position to which a reference at `at` points."""
        return at - self._scalar(at, width, _UINT)

    def value(self, at: int, width: int, packed: int, depth: int) -> Any:
        """The value whose field of `width` bytes is at `at`."""
        self._count += 1
        if self._count > _MOST or depth > _DEEPEST:
            return self.damaged()
        kind, inner = packed >> 2, 1 << (packed & 3)
        if kind == _NULL:
            return None
        if kind in _FORMATS:
            return self._scalar(at, width, kind)
        if kind == _BOOL:
            return bool(self._scalar(at, width, _UINT))
        start = self._behind(at, width)
        if kind in _INDIRECT:
            return self._scalar(start, inner, _INDIRECT[kind])
        if kind == _KEY:
            return self._key(start)
        if kind in _TUPLES:
            element, count = _TUPLES[kind]
            return [self._scalar(start + i * inner, inner, element) for i in range(count)]
        count = self._scalar(start - inner, inner, _UINT)
        if start + count > len(self._content):
            return self.damaged()
        if kind == _STRING:
            return self._text(start, start + count)
        if kind in _TYPED:
            packed = _TYPED[kind] << 2
            return [self.value(start + i * inner, inner, packed, depth + 1) for i in range(count)]
        if kind not in (_MAP, _VECTOR):
            raise ModelError(f"options of {self._what}: values of type {kind} are not known")
        kinds = self._content[start + count * inner : start + count * inner + count]
        if len(kinds) != count:
            return self.damaged()
        values = [self.value(start + i * inner, inner, k, depth + 1) for i, k in enumerate(kinds)]
        return values if kind == _VECTOR else dict(zip(self._keys(start, inner, count), values))

    def _keys(self, at: int, width: int, count: int) -> list[str]:
        """The keys of the map whose values are at `at`."""
        own = self._scalar(at - 2 * width, width, _UINT)
        start = self._behind(at - 3 * width, width)
        return [self._key(self._behind(start + i * own, own)) for i in range(count)]

    def _key(self, at: int) -> str:
        end = self._content.find(0, at) if at >= 0 else -1
        return self._text(at, end) if end >= 0 else self.damaged()

    def _text(self, at: int, end: int) -> str:
        try:
            return str(self._content[at:end], "utf-8")
        except UnicodeDecodeError:
            return self.damaged()
