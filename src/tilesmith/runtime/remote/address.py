"""Addresses of agents."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tilesmith.support.errors import UsageError

SCHEMES = ("tls", "tcp")
PORT = 9100
"""The default port of agents."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Address:
    """The place of an agent.

    scheme: "tls", or "tcp" without encryption.
    host, port: the place where it listens.
    """

    scheme: str
    host: str
    port: int = PORT

    @staticmethod
    def of(text: str) -> Address:
        """The address in a text.  Raises UsageError if the text is no address."""
        try:
            parts = urlsplit(text)
            port = parts.port or PORT
        except ValueError:
            parts, port = urlsplit(""), PORT
        rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
        if parts.scheme not in SCHEMES or not parts.hostname or any(rest):
            raise UsageError(
                f"device: expected an address such as tls://board:{PORT}, found {text!r}"
            )
        if parts.scheme == "tcp" and parts.hostname not in LOOPBACK:
            raise UsageError(
                f"device {text!r}: without TLS an agent is reached on this machine only, such as "
                f"through ssh -L {port}:127.0.0.1:{port}; expected tls://, or tcp://127.0.0.1"
            )
        return Address(parts.scheme, parts.hostname, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def is_address(text: object) -> bool:
    """Whether a target or a device is named by an agent's address."""
    return isinstance(text, str) and text.partition("://")[0] in SCHEMES and "://" in text
