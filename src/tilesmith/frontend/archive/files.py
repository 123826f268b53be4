"""The files in an archive of PyTorch, which is a ZIP file without compression.

Nothing is unpacked or unpickled.  A name in the archive is only looked up among the archive's
entries, never on the disk.  Compressed entries are refused, so that no entry is larger than the
archive.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from typing import NoReturn

import numpy as np

from tilesmith.frontend.archive.json_values import Json
from tilesmith.support.errors import ModelError
from tilesmith.support.mapped import ByteStream

_SIGNATURE = b"PK\x03\x04"
_JSON_LIMIT = 1 << 30
"""Upper bound on the bytes of JSON.  A large network has about 10 MB."""


class Archive:
    """The entries of an archive, by their names below the archive's only folder."""

    def __init__(self, content: bytes | memoryview, name: str) -> None:
        """Open an archive.

        content: the archive's bytes.
        name: the archive's name in messages.

        Raises ModelError if `content` is not a valid ZIP file.
        """
        self._content, self.name = memoryview(content), name
        try:
            with zipfile.ZipFile(ByteStream(self._content)) as z:
                entries = z.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError) as e:
            raise ModelError(
                f"{name}: expected an archive of PyTorch, found a damaged ZIP file ({e}); save "
                "or copy it again"
            ) from None
        self._entries: dict[str, zipfile.ZipInfo] = {}
        self._sound: set[str] = set()
        """Entries whose checksums were found correct."""
        for info in entries:
            _, slash, inner = info.filename.partition("/")
            inner = inner if slash else info.filename
            if inner in self._entries:
                self.bad(f"entry {info.filename!r} is there twice")
            self._entries[inner] = info

    def bad(self, why: str) -> NoReturn:
        raise ModelError(f"{self.name}: not a sound archive of PyTorch: {why}")

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """Names of all entries, in the archive's order."""
        return [*self._entries]

    def bytes(self, name: str) -> np.ndarray:
        """The contents of an entry, as a view of the archive.  Raises ModelError."""
        if name not in self._entries:
            self.bad(f"it has no entry {name!r}")
        info = self._entries[name]
        start, size = self._place(info)
        contents = self._content[start : start + size]
        if name not in self._sound:
            if zlib.crc32(contents) != info.CRC:
                self.bad(
                    f"the checksum of entry {info.filename!r} is not that of its contents; save or "
                    "copy the archive again"
                )
            self._sound.add(name)
        return np.frombuffer(contents, np.uint8)

    def json(self, name: str) -> Json:
        """The contents of an entry as JSON.  Raises ModelError."""
        contents = self.bytes(name)
        if contents.size > _JSON_LIMIT:
            self.bad(f"{name} has {contents.size} bytes, more than {_JSON_LIMIT}")
        try:
            return Json(json.loads(contents.tobytes()), f"{self.name}: {name}")
        except (ValueError, RecursionError) as e:
            self.bad(f"{name} is not JSON ({e})")

    def _place(self, info: zipfile.ZipInfo) -> tuple[int, int]:
        """The offset and the size in bytes of an entry's contents."""
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            self.bad(
                f"entry {info.filename!r} is compressed or encrypted; expected entries as "
                "torch.export.save writes them"
            )
        begin = info.header_offset
        header = bytes(self._content[begin : begin + 30]) if begin >= 0 else b""
        if len(header) < 30 or header[:4] != _SIGNATURE:
            self.bad(f"entry {info.filename!r} begins outside of the file")
        start = begin + 30 + sum(struct.unpack("<HH", header[26:30]))
        if info.file_size != info.compress_size or start + info.file_size > len(self._content):
            self.bad(f"entry {info.filename!r} ends outside of the file")
        return start, info.file_size
