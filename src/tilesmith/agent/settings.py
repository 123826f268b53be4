"""Settings of an agent: its secrets, which `tilesmith agent init` makes, and its limits."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import ssl
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tilesmith.support.arguments import check_fields
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import distrusted, make_private, read_regular
from tilesmith.support.options import option

AGENT_FILE, DEVICE_FILE = "agent.json", "device.json"
CERTIFICATE_DAYS = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What callers may use.  The metadata of a field describes it.

    Raises UsageError if a value is impossible.
    """

    store_bytes: int = option(8 << 30, "Size of all uploaded objects together, in bytes.", None)
    object_bytes: int = option(2 << 30, "Size of one uploaded object, in bytes.", None)
    request_bytes: int = option(1 << 30, "Size of the arrays of one request, in bytes.", None)
    run_seconds: float = option(120.0, "Longest time of one request to run or measure.", None)
    memory_bytes: int | None = option(
        None, "Address space of each process that runs something (default: half the memory).", None
    )
    rate: float = option(500.0, "Most requests per second of one caller, on average.", None)
    penalty: float = option(0.5, "Seconds that a caller without the token waits.", None)
    callers: int = option(32, "Most connections at once.", None)

    def __post_init__(self) -> None:
        check_fields(self, UsageError)
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not value > 0:
                raise UsageError(f"{f.name}: expected a positive number, found {value!r}")


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of an agent.

    token: 32 bytes that its callers have, too.
    folder: where they are kept.
    certificate, key: PEM, of the agent alone; empty for an agent without TLS.
    """

    token: bytes = field(repr=False)
    folder: Path
    certificate: str = ""
    key: str = field(default="", repr=False)

    @staticmethod
    def load(folder: Path) -> Secrets:
        """The secrets in a folder of `init`.  Raises UsageError, also if others may change them."""
        path = folder / AGENT_FILE
        try:
            if why := distrusted(path.resolve()):
                raise UsageError(f"the agent's secrets are not trusted: {why}")
            held = json.loads(read_regular(path))
            token, home = bytes.fromhex(held["token"]), folder.resolve()
            return Secrets(token, home, held["certificate"], held["key"])
        except OSError as e:
            raise UsageError(
                f"{str(path)!r} can't be read: {e.strerror or e}; make it with `tilesmith agent "
                f"init --folder {folder}`"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{str(path)!r} is no file of `tilesmith agent init`") from None

    def context(self, folder: Path) -> ssl.SSLContext:
        """The agent's side of TLS 1.3.

        folder: where the key is written for a moment, since `ssl` reads it from a file.

        Raises UsageError if there is no certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        path = folder / f".{secrets.token_hex(8)}.pem"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
                f.write(self.key + self.certificate)
            context.load_cert_chain(path)
        except (OSError, ssl.SSLError):
            raise UsageError(
                "the agent has no certificate, which TLS needs: make it with `tilesmith agent "
                "init`, or serve on this machine only with --plain"
            ) from None
        finally:
            path.unlink(missing_ok=True)
        return context


def init(folder: Path, plain: bool = False) -> tuple[Path, Path]:
    """Write the secrets of a new agent, and the key for its callers.  Returns both paths.

    plain: whether the agent works without TLS, and so without a certificate.

    Raises UsageError if they are there already or can't be written, or without `cryptography`.
    """
    certificate, key = ("", "") if plain else _certificate()
    token = secrets.token_bytes(32).hex()
    written = []
    try:
        make_private(folder.absolute())
        for name, held in (
            (AGENT_FILE, {"token": token, "certificate": certificate, "key": key}),
            (DEVICE_FILE, {"token": token, "certificate": certificate}),
        ):
            path = folder / name
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
                json.dump(held, f, indent=1)
            written.append(path)
    except FileExistsError:
        raise UsageError(
            f"{str(folder)!r} has the secrets of an agent; expected a folder without, since its "
            "callers would lose their access: remove them first"
        ) from None
    except OSError as e:
        raise UsageError(f"{str(folder)!r} can't be written: {e.strerror or e}") from None
    return written[0], written[1]


def _certificate() -> tuple[str, str]:
    """A new self-signed certificate and its key (P-256), in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise UsageError(
            "a certificate is made with `cryptography`, which is not installed: pip install "
            "'tilesmith[sign]', or make the secrets on another machine and copy the folder"
        ) from None
    key: Any = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tilesmith agent")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of boards are often wrong
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), secret.decode()
