"""Ed25519 signatures of compiled models, in separate files: `FILE.sig` contains the 64 bytes.

A `.tsm` file is signed directly.  A library consists of several files: `NAME.sha256` lists their
digests, as `sha256sum` writes them, and that list is signed.  Keys are PEM files, and signatures
follow RFC 8032 over the file's contents, so `openssl` can also make and check them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from tilesmith.support.arguments import checked
from tilesmith.support.errors import SignatureError, UsageError
from tilesmith.support.folders import read_regular, write_text, written

SIGNATURE_BYTES = 64
_LIST = ".sha256"


@checked(UsageError)
def make_keys(path: str | Path) -> tuple[Path, Path]:
    """Write a new pair of keys: the secret one to `path`, which only its owner may read, the public
    one to `path` with `.pub` before its suffix.  Returns both paths.

    Raises UsageError if a file is there already or can't be written, or if `cryptography` is not
    installed.
    """
    lib = _cryptography()
    secret = Path(path)
    if not secret.name:
        raise UsageError(f"{str(path)!r}: expected the name of a new file, such as release.pem")
    public = secret.with_name(f"{secret.stem}.pub{secret.suffix}")
    pair = lib.ed25519.Ed25519PrivateKey.generate()
    form = lib.serialization
    for file, mode, data in (
        (
            secret, 0o600,
            pair.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()),
        ),
        (
            public, 0o644,
            pair.public_key().public_bytes(
                form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
            ),
        ),
    ):  # fmt: skip
        try:
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as f:
                f.write(data)
        except FileExistsError:
            raise UsageError(f"{str(file)!r} exists; expected the name of a new file") from None
        except OSError as e:
            raise UsageError(f"{str(file)!r} can't be written: {e.strerror or e}") from e
    return secret, public


def sign_file(path: Path, key: str | Path) -> Path:
    """Write the signature of a file to `path`.sig.

    key: a secret key.  Raises UsageError if it is not a secret key.
    """
    signature = secret_key(key).sign(path.read_bytes())
    beside = _signature_of(path)
    with written(beside) as f:
        f.write(signature)
    return beside


def sign_files(folder: Path, name: str, files: Iterable[Path], key: str | Path) -> list[Path]:
    """Write `folder/NAME.sha256`, a list of files in the folder, and its signature."""
    names = sorted((f.relative_to(folder).as_posix(), f) for f in files)
    listed = folder / f"{name}{_LIST}"
    text = "".join(f"{_digest(f)}  {shown}\n" for shown, f in names)
    write_text(listed, text)
    return [listed, sign_file(listed, key)]


def signed_contents(path: Path, key: str | Path) -> bytes:
    """The contents of a signed file, which is read only once.

    key: the public key with which the file must be signed.

    Raises SignatureError if the signature is missing, damaged or made with another key, UsageError
    if the key is not a public key or `cryptography` is missing.
    """
    lib, public = _cryptography(), public_key(key)
    try:
        contents = read_regular(path)
    except OSError as e:
        raise SignatureError(f"{path} can't be read: {e.strerror or e}") from None
    file = _signature_of(path)
    try:
        signature = read_regular(file)
    except OSError:
        raise SignatureError(
            f"{path} has no signature: expected it in {file}.  Sign the file with --sign, or load "
            "it without a required signature if you trust it"
        ) from None
    if len(signature) != SIGNATURE_BYTES:
        raise SignatureError(
            f"{file} is damaged: expected {SIGNATURE_BYTES} bytes, found {len(signature)}"
        )
    try:
        public.verify(signature, contents)
    except lib.InvalidSignature:
        raise SignatureError(
            f"the signature of {path} does not fit: the file or the signature was changed, or it "
            f"was signed with another key than that of {str(key)!r}"
        ) from None
    return contents


@checked(UsageError)
def verify(path: str | Path, key: str | Path) -> tuple[Path, ...]:
    """Check the signatures of a `.tsm` file, or of the libraries that `export` wrote to a folder.
    Returns the files that are covered.

    key: the public key (a PEM file) with which they must be signed.

    Raises SignatureError if a signature is missing, damaged or made with another key, or if a
    signed file was changed; UsageError if the key is not a public key or `cryptography` is missing.
    """
    path = Path(path)
    if not path.is_dir():
        signed_contents(path, key)
        return (path,)
    lists = sorted(path.glob(f"*{_LIST}"))
    if not lists:
        raise SignatureError(
            f"{path} has no signed library: expected NAME{_LIST} there, which export --sign writes"
        )
    return tuple(f for listed in lists for f in _verified_list(listed, key))


def _verified_list(listed: Path, key: str | Path) -> list[Path]:
    entries = []
    for line in signed_contents(listed, key).decode("utf-8", "replace").splitlines():
        digest, _, name = line.partition("  ")
        pure = PurePosixPath(name)
        if not name or pure.is_absolute() or ".." in pure.parts:
            raise SignatureError(f"{listed}: expected a digest and a file of its folder: {line!r}")
        file = listed.parent / pure
        if not file.is_file():
            raise SignatureError(f"{file} is missing, which {listed} covers")
        if _digest(file) != digest:
            raise SignatureError(f"{file} was changed: its contents are not those that were signed")
        entries.append(file)
    return entries


def secret_key(path: str | Path) -> Any:
    """The secret key in a PEM file.  Raises UsageError if there is none."""
    lib = _cryptography()
    return _key(
        path, "a secret", lib.ed25519.Ed25519PrivateKey,
        lambda data: lib.serialization.load_pem_private_key(data, None),
    )  # fmt: skip


def public_key(path: str | Path) -> Any:
    """The public key in a PEM file.  Raises UsageError if there is none."""
    lib = _cryptography()
    return _key(
        path, "a public", lib.ed25519.Ed25519PublicKey, lib.serialization.load_pem_public_key
    )


def _key(path: str | Path, what: str, kind: type, load: Any) -> Any:
    lib = _cryptography()
    try:
        key = load(read_regular(path))
    except OSError as e:
        raise UsageError(f"the key {str(path)!r} can't be read: {e.strerror or e}") from None
    except (ValueError, TypeError, lib.UnsupportedAlgorithm) as e:
        raise UsageError(
            f"{str(path)!r}: expected {what} Ed25519 key in PEM, without a password: {e}"
        ) from None
    if not isinstance(key, kind):
        raise UsageError(
            f"{str(path)!r}: expected {what} Ed25519 key, found another kind; `tilesmith keygen` "
            "makes one"
        )
    return key


def _signature_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


class _Parts:
    """The names that this module uses from the package `cryptography`."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        self.InvalidSignature, self.UnsupportedAlgorithm = InvalidSignature, UnsupportedAlgorithm
        self.serialization = serialization
        self.ed25519 = ed25519


def _cryptography() -> _Parts:
    """The package `cryptography`.  Raises UsageError if it is not installed."""
    try:
        return _Parts()
    except ImportError as e:
        raise UsageError(
            f"signatures need the package cryptography: pip install 'tilesmith[sign]' ({e})"
        ) from None
