"""ncnn's networks with compiled layers: unchanged files, equal answers."""

from __future__ import annotations

import gc
import logging
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from written_models.ncnn import written

ncnn = pytest.importorskip("ncnn", reason="ncnn's wheel is not installed")

RANDOM = np.random.default_rng(0)
SHAPE = (4, 9, 7)
X = RANDOM.standard_normal(SHAPE).astype(np.float32)
LAYERS = (
    "Input data 0 1 data",
    "Convolution c 1 1 data c 0=6 1=3 4=1 5=1 6=216 9=1",
    "Split s 1 2 c c1 c2",
    "ConvolutionDepthWise d 1 1 c1 d 0=6 1=3 4=1 6=54 7=6",
    "Eltwise e 2 1 c2 d e 0=1",
    "Pooling p 1 1 e p 0=1 4=1",
    "InnerProduct y 1 1 p y 0=5 1=1 2=30",
    "Softmax z 1 1 y z",
)


def weights(*counts: int) -> bytes:
    """Tensors in f32, the flagged ones negative."""
    parts = []
    for count in counts:
        values = (RANDOM.standard_normal(abs(count)) / 4).astype("<f4").tobytes()
        parts += [bytes(4), values] if count < 0 else [values]
    return b"".join(parts)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A `.param` and a `.bin` file."""
    written(tmp_path, *LAYERS, weights=weights(-216, 6, -54, -30, 5))
    text = (tmp_path / "net.param").read_text().replace("8 8", "8 9", 1)  # a layer has two outputs
    (tmp_path / "net.param").write_text(text)
    return tmp_path / "net.param", tmp_path / "net.bin"


def alone(files: tuple[Path, Path]) -> ncnn.Net:
    net = ncnn.Net()
    net.opt.num_threads = 1
    assert net.load_param(str(files[0])) == 0
    assert net.load_model(str(files[1])) == 0
    return net


def extracted(net: ncnn.Net, *blobs: str, x: np.ndarray = X) -> list[np.ndarray]:
    extractor = net.create_extractor()
    extractor.input("data", ncnn.Mat(x))
    found = []
    for blob in blobs:
        status, mat = extractor.extract(blob)
        assert status == 0
        found.append(np.array(mat))
    return found


def types_of(net: ncnn.Net) -> list[str]:
    return [layer.type for layer in net.layers()]


def test_consecutive_layers_are_one_compiled_layer(files: tuple[Path, Path]) -> None:
    before = [f.read_bytes() for f in files]
    net = ts.ncnn.load(*files, shapes={"data": SHAPE}, threads=1)
    assert types_of(net) == ["Input", "Tilesmith"]
    np.testing.assert_allclose(
        extracted(net, "z")[0], extracted(alone(files), "z")[0], rtol=1e-3, atol=1e-5
    )
    assert [f.read_bytes() for f in files] == before


def test_layers_of_some_types_are_compiled(files: tuple[Path, Path]) -> None:
    types = {"ConvolutionDepthWise", "Pooling", "InnerProduct"}
    net = ts.ncnn.load(*files, shapes={"data": SHAPE}, types=types, threads=1)
    assert types_of(net) == [
        "Input", "Convolution", "Split", "Tilesmith", "Eltwise", "Tilesmith", "Softmax",
    ]  # fmt: skip
    for found, wanted in zip(
        extracted(net, "c1", "d", "y", "z"), extracted(alone(files), "c1", "d", "y", "z")
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_blobs_that_are_kept_can_be_extracted(files: tuple[Path, Path]) -> None:
    net = ts.ncnn.load(*files, shapes={"data": SHAPE}, keep=["e", "p"], threads=1)
    assert types_of(net) == ["Input", "Tilesmith", "Tilesmith", "Tilesmith"]
    for found, wanted in zip(extracted(net, "e", "p"), extracted(alone(files), "e", "p")):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_layers_that_we_lack_stay_with_those_after_them(tmp_path: Path) -> None:
    layers = (
        "Input data 0 1 data 0=7 1=9 2=4",
        "ReLU r 1 1 data r",
        "Spectrogram s 1 1 r s 0=4",
        "ReLU y 1 1 s y",
    )
    written(tmp_path, *layers)
    net = ncnn.Net()
    ts.ncnn.load(tmp_path / "net.param", tmp_path / "net.bin", net=net)
    assert types_of(net) == ["Input", "Tilesmith", "Spectrogram", "ReLU"]


def test_another_shape_is_a_status_and_a_message(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    net = ts.ncnn.load(*files, shapes={"data": SHAPE}, threads=1)
    extractor = net.create_extractor()
    extractor.input("data", ncnn.Mat(X[:, :8]))
    with caplog.at_level(logging.ERROR, "tilesmith.engines"):
        status, _ = extractor.extract("z")
    assert status != 0
    assert "blob data: expected shape (4, 9, 7), found (4, 8, 7)" in caplog.text


def test_a_net_gives_its_layers_back(files: tuple[Path, Path]) -> None:
    from tilesmith.engines.ncnn.layers import _ALIVE

    gc.collect()
    before = len(_ALIVE)
    net = ts.ncnn.load(*files, shapes={"data": SHAPE}, threads=1)
    assert len(_ALIVE) == before + 1
    net.clear()
    del net
    gc.collect()
    assert len(_ALIVE) == before


def test_damaged_files_are_refused(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:100])
    with pytest.raises(ts.ModelError, match=r"net\.param: .*expected 864 bytes"):
        ts.ncnn.load(*files, shapes={"data": SHAPE})
    with pytest.raises(ts.ModelError, match="No such file"):
        ts.ncnn.load(files[0].with_name("absent.param"), files[1])
    files[0].write_bytes((7767517).to_bytes(4, "little") + bytes(8))
    with pytest.raises(ts.ModelError, match=r"expected a \.param file in text"):
        ts.ncnn.load(*files)
