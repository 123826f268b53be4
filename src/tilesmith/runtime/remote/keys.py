"""Keys of devices: the token that an agent and its callers share, and the agent's certificate.

`tilesmith agent init` writes two files.  The agent keeps one; the other one belongs to those who
may use the device.  Both sides prove that they have the token without sending it: each side sends a
random number, and answers the other side's number with an HMAC-SHA256.
"""

from __future__ import annotations

import hmac
import json
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from tilesmith.support.errors import DAMAGED, UsageError
from tilesmith.support.folders import read_regular
from tilesmith.support.options import devices_dir_from_environment

from .address import Address


@dataclass(frozen=True, slots=True)
class Key:
    """The key with which a caller opens a device.

    token: 32 bytes.
    certificate: the agent's certificate (PEM); no other is accepted.  Empty without TLS.
    """

    token: bytes = field(repr=False)
    certificate: str = ""

    @staticmethod
    def load(path: Path) -> Key:
        """The key in a file of `tilesmith agent init`.  Raises UsageError."""
        try:
            held = json.loads(read_regular(path))
            token, certificate = bytes.fromhex(held["token"]), held["certificate"]
            if len(token) != 32 or not isinstance(certificate, str):
                raise ValueError
        except OSError as e:
            raise UsageError(
                f"the key of a device, {str(path)!r}, can't be read: {e.strerror or e}; copy "
                "device.json of `tilesmith agent init` there, or name it with key="
            ) from None
        except DAMAGED:
            raise UsageError(
                f"{str(path)!r}: expected device.json of `tilesmith agent init`, found another file"
            ) from None
        return Key(token, certificate)

    def proof(self, side: str, theirs: bytes, ours: bytes) -> str:
        """The proof of one side ("agent" or "caller") that it has the token.

        theirs, ours: the random numbers that this side received and sent.
        """
        message = b"tilesmith " + side.encode() + b"\0" + theirs + ours
        return hmac.new(self.token, message, "sha256").hexdigest()

    def context(self) -> ssl.SSLContext:
        """A context for TLS 1.3 that accepts only this certificate.  Raises UsageError if the key
        has no valid certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate itself is expected, whatever the name
        try:
            context.load_verify_locations(cadata=self.certificate)
        except (ssl.SSLError, ValueError):
            raise UsageError(
                "the key of the device has no certificate, which tls:// needs"
            ) from None
        return context


def key_path(address: Address) -> Path:
    """The file of the key of the agent at an address, unless the caller names another one."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", address.host)
    return devices_dir_from_environment() / f"{name}_{address.port}.json"
