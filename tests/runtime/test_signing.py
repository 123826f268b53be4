"""Signatures of compiled models: what they cover, what is refused, and openssl's view of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.cli import execute as run
from tilesmith.runtime.signing import make_keys


@pytest.fixture(scope="module")
def exe() -> ts.Executable:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 17)]
    return ts.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return make_keys(tmp_path / "release.pem")


@pytest.fixture
def saved(tmp_path: Path, exe: ts.Executable, keys: tuple[Path, Path]) -> Path:
    """A signed model."""
    path = tmp_path / "negate.tsm"
    exe.save(path, sign=keys[0])
    return path


def test_a_signed_model_loads_with_its_public_key(saved, keys):
    exe = ts.load(saved, require_signature=keys[1])
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(exe(x), -x)
    assert ts.verify(saved, keys[1]) == (saved,)
    assert keys[0].stat().st_mode & 0o777 == 0o600


def test_a_changed_model_is_refused(saved, keys):
    contents = bytearray(saved.read_bytes())
    contents[len(contents) // 2] ^= 1
    saved.write_bytes(contents)
    with pytest.raises(ts.SignatureError, match=r"the signature of .*negate\.tsm does not fit"):
        ts.load(saved, require_signature=keys[1])


def test_another_key_is_refused(saved, tmp_path):
    _, other = make_keys(tmp_path / "other.pem")
    with pytest.raises(ts.SignatureError, match=r"another key than that of '.*other\.pub\.pem'"):
        ts.load(saved, require_signature=other)


def test_a_missing_or_damaged_signature_is_refused(saved, keys):
    signature = saved.with_name("negate.tsm.sig")
    whole = signature.read_bytes()
    signature.write_bytes(whole[:-1])
    with pytest.raises(ts.SignatureError, match=r"is damaged: expected 64 bytes, found 63"):
        ts.load(saved, require_signature=keys[1])
    signature.write_bytes(bytes(64))
    with pytest.raises(ts.SignatureError, match="does not fit"):
        ts.load(saved, require_signature=keys[1])
    signature.unlink()
    with pytest.raises(ts.SignatureError, match=r"has no signature: expected it in .*\.tsm\.sig"):
        ts.load(saved, require_signature=keys[1])
    ts.load(saved)  # nobody asked
    with pytest.raises(ts.SignatureError, match="can't be read: No such file"):
        ts.load(saved.with_name("no.tsm"), require_signature=keys[1])


def test_keys_of_other_kinds_are_refused(saved, keys, tmp_path, exe):
    secret, public = keys
    target = tmp_path / "again.tsm"
    for key, text in (
        (public, "expected a secret Ed25519 key"),
        (saved, "expected a secret Ed25519 key in PEM"),
        (tmp_path / "none.pem", "can't be read: No such file"),
    ):
        with pytest.raises(ts.UsageError, match=text):
            exe.save(target, sign=key)
        with pytest.raises(ts.UsageError, match=text):
            exe.export(tmp_path / "library", sign=key)
    assert not target.exists() and not (tmp_path / "library").exists()
    with pytest.raises(ts.UsageError, match="expected a public Ed25519 key"):
        ts.load(saved, require_signature=secret)
    with pytest.raises(ts.UsageError, match=r"release\.pem' exists; expected the name of a new"):
        make_keys(secret)
    with pytest.raises(ts.UsageError, match="can't be written"):
        make_keys(tmp_path / "no" / "key.pem")


def test_a_key_of_another_algorithm_is_refused(saved, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "ec.pem").write_bytes(key.public_bytes(serialization.Encoding.PEM, form))
    with pytest.raises(ts.UsageError, match="expected a public Ed25519 key, found another kind"):
        ts.load(saved, require_signature=tmp_path / "ec.pem")


def test_without_the_library_is_said(saved, keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ts.UsageError, match=r"pip install 'tilesmith\[sign\]'"):
        ts.load(saved, require_signature=keys[1])
    ts.load(saved)


def test_a_library_is_signed_as_a_whole(exe, keys, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to compile C")
    folder = tmp_path / "library"
    made = exe.export(folder, "negate", sign=keys[0])
    covered = ts.verify(folder, keys[1])
    assert {*covered} == {f for f in made.files if not f.name.startswith("negate.sha256")}
    assert made.library in covered and made.header in covered
    subprocess.run(["sha256sum", "--check", "--quiet", "negate.sha256"], cwd=folder, check=True)
    listed = folder / "negate.sha256"
    with made.library.open("ab") as f:
        f.write(b"more")
    with pytest.raises(ts.SignatureError, match=r"libnegate\.so was changed"):
        ts.verify(folder, keys[1])
    made.library.unlink()
    with pytest.raises(ts.SignatureError, match=r"libnegate\.so is missing"):
        ts.verify(folder, keys[1])
    listed.write_text(listed.read_text().replace("lib/", "../"))
    with pytest.raises(ts.SignatureError, match=r"the signature of .*negate\.sha256 does not fit"):
        ts.verify(folder, keys[1])
    listed.unlink()
    with pytest.raises(ts.SignatureError, match="has no signed library"):
        ts.verify(folder, keys[1])


def test_a_list_names_files_of_its_folder_only(keys, tmp_path):
    from tilesmith.runtime.signing import sign_file

    folder = tmp_path / "library"
    folder.mkdir()
    for name in ("../release.pem", "/etc/passwd"):
        (folder / "a.sha256").write_text(f"{'0' * 64}  {name}\n")
        sign_file(folder / "a.sha256", keys[0])
        with pytest.raises(ts.SignatureError, match="expected a digest and a file of its folder"):
            ts.verify(folder, keys[1])


def test_openssl_makes_the_keys_and_checks_the_signature(exe, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    secret, public, model = (tmp_path / n for n in ("s.pem", "p.pem", "m.tsm"))

    def openssl(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    openssl("genpkey", "-algorithm", "ed25519", "-out", secret)
    openssl("pkey", "-in", secret, "-pubout", "-out", public)
    exe.save(model, sign=secret)
    ts.verify(model, public)
    openssl(
        "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", model,
        "-sigfile", f"{model}.sig",
    )  # fmt: skip


def test_the_command_line(saved, tmp_path, capsys):
    key = tmp_path / "mine.pem"
    assert run(["keygen", str(key)]) == 0
    assert str(tmp_path / "mine.pub.pem") in capsys.readouterr().out
    public = ["--require-signature", str(tmp_path / "release.pub.pem")]
    assert run(["verify", str(saved), *public]) == 0
    assert capsys.readouterr().out == f"{saved}: signed\n"
    assert run(["run", str(saved), *public]) == 0
    assert run(["run", str(saved), "--require-signature", str(tmp_path / "mine.pub.pem")]) == 2
    assert "does not fit" in capsys.readouterr().err
    source = tmp_path / "negate.onnx"
    source.write_bytes(b"")
    assert run(["run", str(source), *public]) == 1
    assert "--require-signature is for a compiled .tsm file" in capsys.readouterr().err
