"""Files that try to crash, hang, fill memory or read what they must not: one line of ModelError."""

from __future__ import annotations

import os
import random
import resource
import time

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilesmith.frontend.load import load
from tilesmith.support.errors import ModelError


def refused(source, match=".", **options):
    """Loading raises a ModelError of one line."""
    with pytest.raises(ModelError, match=match) as found:
        load(source, **options)
    assert "\n" not in str(found.value)


# Files


@pytest.mark.parametrize("content", [b"", b"\x00", b"hello world", b"\xff" * 100])
def test_files_that_are_no_models(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    refused(path, match="expected an ONNX")
    refused(content, match="expected an ONNX")


def test_every_truncation_of_a_model():
    content = om.with_weight(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    content = content.SerializeToString()
    for n in range(len(content)):
        try:
            load(content[:n])
        except ModelError as e:
            assert "\n" not in str(e)  # a cut between two fields may leave a whole model


def test_paths_that_are_no_files(tmp_path):
    refused(tmp_path, match="found a folder")
    refused(tmp_path / "absent.onnx", match="No such file")
    refused("bad\0name.onnx", match="null")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    refused(fifo, match="found a pipe or device.*write the model to a file")
    huge = tmp_path / "huge.onnx"
    with huge.open("wb") as f:
        f.truncate(1 << 31)  # takes no room on the disk
    refused(huge, match="an ONNX file holds at most 2147483647: save the model with its weights as")


def test_names_that_are_not_text():
    content = om.relu().SerializeToString()
    refused(content.replace(b"\x04Relu", b"\x04\xff\xfe\xfd\xfc"), match="UTF-8")


def test_control_characters_stay_out_of_messages():
    node = helper.make_node("Bad\nOp\x1b[31m", ["x"], ["y"], name="a\nb")
    refused(om.model([node], [om.value("x", [1])], ["y"]), match=r"Bad\\nOp\\x1b\[31m")


def test_random_damage_never_escapes():
    """Bytes changed, cut and inserted; the seed is in the message of a failure."""
    seed = random.randrange(1 << 32)
    source = random.Random(seed)
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    contents = [m.SerializeToString() for m in (om.relu(), om.with_weight(weight), _gemm_model())]
    for _ in range(3000):
        content = bytearray(source.choice(contents))
        for _ in range(source.choice((1, 2, 5))):
            at = source.randrange(len(content))
            content[at : at + source.randrange(3)] = source.randbytes(source.randrange(3))
            content = content or bytearray(b"\0")
        try:
            load(bytes(content))
        except ModelError:
            pass
        except BaseException as e:
            raise AssertionError(f"seed {seed}: {bytes(content)!r}") from e


def _gemm_model():
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5)
    constants = {"w": np.ones((4, 3), np.float32), "b": np.zeros(4, np.float32)}
    return om.model([node], [om.value("x", [2, 3])], [om.value("y", [2, 4])], constants)


# The program


def _node(*nodes, inputs=None, outputs=("y",), **more):
    return om.model(nodes, inputs or [om.value("x", [2, 3])], list(outputs), **more)


RELU = helper.make_node("Relu", ["x"], ["y"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            _node(
                helper.make_node("Add", ["x", "b"], ["a"]),
                helper.make_node("Relu", ["a"], ["b"]),
                outputs=["b"],
            ),
            "in a cycle",
        ),
        (_node(helper.make_node("Relu", ["nowhere"], ["y"])), "'nowhere', which nothing defines"),
        (_node(RELU, outputs=["z"]), "output 'z' is defined by no"),
        (_node(RELU, RELU), "'y' is defined twice"),
        (_node(helper.make_node("Neg", ["x"], ["x"]), outputs=["x"]), "'x' is defined twice"),
        (_node(RELU, inputs=[om.value("x", [2]), om.value("x", [2])]), "two inputs are named 'x'"),
        (_node(RELU, inputs=[om.value("x", [1 << 20, 1 << 20])]), "more than .* elements"),
        (
            _node(
                helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=1 << 31),
                inputs=[om.value("x", [3, 3, "h", "w"])],
            ),
            "result of space_to_depth has shape .*: more than .* elements",
        ),
        (_node(RELU, inputs=[om.value("x", [2], 99)]), "element type"),
        (_node(RELU, inputs=[onnx.ValueInfoProto(name="x")]), "has no type"),
        (_node(RELU, outputs=[om.value("y", [2, 3], TensorProto.INT64)]), "declared as i64"),
        (_node(helper.make_node("Relu", [], ["y"])), "expected input number 1"),
        (_node(helper.make_node("Relu", ["x", "x"], ["y"])), "expected at most 1 inputs"),
        (_node(helper.make_node("Relu", ["x"], ["y"], beta=1)), "unknown attributes 'beta'"),
        (_node(helper.make_node("LeakyRelu", ["x"], ["y"], alpha=3)), "expected float, found int"),
        (_node(helper.make_node("MatMul", ["x", "x"], ["y"])), "equal inner dimensions"),
        (_node(helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0])), "permutation"),
        (_node(helper.make_node("Softmax", ["x"], ["y"], axis=5)), "axis: expected -2 to 1"),
        (
            _node(helper.make_node("Foo", ["x"], ["y"], domain="no.such")),
            "imports no opset of domain",
        ),
    ],
)
def test_programs_that_make_no_sense(model, message):
    refused(model, match=message)


def test_duplicate_initializers_and_attributes():
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    made = om.with_weight(weight)
    made.graph.initializer.append(weight)
    refused(made, match="initializer 'w' is defined twice")
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    node.attribute.append(node.attribute[0])
    refused(_node(node), match="'alpha' is given twice")


def test_deep_subgraphs():
    def field(number, content):
        size = len(content)
        length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
        return bytes([number << 3 | 2]) + length + content

    graph = b""
    for _ in range(500):
        graph = field(1, field(5, field(6, graph)))  # graph.node.attribute.g
    refused(b"\x08\x0a" + field(7, graph), match="at most 100 deep")


# Memory and time


@pytest.fixture
def tight_memory():
    """At most 2 GiB more than now."""
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("tight_memory")
@pytest.mark.parametrize(
    "model",
    [
        om.with_weight(TensorProto(name="w", dims=[1 << 40], data_type=1, raw_data=b"1234")),
        om.with_weight(TensorProto(name="w", dims=[1 << 20] * 3, data_type=1)),
        _node(
            helper.make_node("ConstantOfShape", ["s"], ["y"]), constants={"s": np.array([1 << 40])}
        ),
        _node(
            helper.make_node("Expand", ["x", "s"], ["y"]),
            constants={"s": np.array([1 << 38, 2, 3])},
        ),
        _node(
            helper.make_node("Tile", ["x", "r"], ["y"]),
            constants={"r": np.array([1 << 30, 1 << 30])},
        ),
        _node(
            helper.make_node("Pad", ["x", "p"], ["y"]),
            constants={"p": np.array([0, 0, 1 << 30, 1 << 30])},
        ),
        _node(
            helper.make_node("Range", ["a", "b", "c"], ["y"]),
            constants={"a": np.array(0), "b": np.array(1 << 60), "c": np.array(1)},
        ),
        _node(
            *(
                helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0)
                for i in range(60)
            ),
            inputs=[om.value("v0", [2])],
            outputs=["v60"],
        ),
        _node(
            helper.make_node(
                "Loop",
                ["n", "", "x"],
                ["y"],
                body=helper.make_graph(
                    [
                        helper.make_node("Identity", ["g"], ["h"]),
                        helper.make_node("Neg", ["s"], ["t"]),
                    ],
                    "b",
                    [om.value("i", [], 7), om.value("g", [], 9), om.value("s", None)],
                    [onnx.ValueInfoProto(name="h"), onnx.ValueInfoProto(name="t")],
                ),
            ),
            constants={"n": np.array(1 << 60)},
        ),
    ],
)
def test_small_files_that_want_much(model):
    start = time.perf_counter()
    refused(model)
    assert time.perf_counter() - start < 20


# External data


def _external(path, location, dims=(3,), **entries):
    tensor = TensorProto(name="w", dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    onnx_path = path / "m.onnx"
    onnx_path.write_bytes(om.with_weight(tensor, [2, 3]).SerializeToString())
    return onnx_path


def _weights(path, n=12):
    path.write_bytes(np.arange(1, 1 + n // 4, dtype=np.float32).tobytes())


def test_external_data_is_read(tmp_path):
    (tmp_path / "sub").mkdir()
    _weights(tmp_path / "sub" / "w.bin", 20)
    graph = load(_external(tmp_path, "sub/w.bin", offset=8, length=12))
    assert graph.constants[0].data.array.tolist() == [3.0, 4.0, 5.0]


def test_external_data_without_offset_and_length(tmp_path):
    _weights(tmp_path / "w.bin")
    assert load(_external(tmp_path, "./w.bin")).constants[0].data.array.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../w.bin",
        "sub/../../w.bin",
        "",
        "C:\\w.bin",
        "..\\w.bin",
        "w.bin\0",
        "sub//w.bin",
        ".",
    ],
)
def test_external_locations_outside(tmp_path, location):
    _weights(tmp_path / "w.bin")
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    refused(_external(folder, location), match="w'")


def test_external_links_are_not_followed(tmp_path):
    _weights(tmp_path / "secret.bin")
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    refused(_external(folder, "w.bin"), match="links are not followed")
    (folder / "up").symlink_to(tmp_path)
    refused(_external(folder, "up/secret.bin"), match="links are not followed")


def test_external_links_to_where_the_model_lies(tmp_path):
    """The cache of Hugging Face: names are links to a folder of contents."""
    blobs, names = tmp_path / "blobs", tmp_path / "snapshots" / "1" / "onnx"
    blobs.mkdir()
    names.mkdir(parents=True)
    _weights(blobs / "b1")
    _external(blobs, "w.bin").rename(blobs / "b0")
    model = names / "model.onnx"
    model.symlink_to("../../../blobs/b0")
    (names / "w.bin").symlink_to("../../../blobs/b1")
    assert load(model).constants
    (blobs / "b1").rename(tmp_path / "secret.bin")
    (blobs / "b1").symlink_to(tmp_path / "secret.bin")  # contents are files, not links
    refused(model, match="links are not followed")
    (blobs / "b1").unlink()
    (blobs / "b1").symlink_to("b1")
    refused(model, match="links are not followed")


def test_external_files_that_are_not_regular(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    refused(_external(tmp_path, "w.bin"), match="regular file")
    (tmp_path / "d").mkdir()
    refused(_external(tmp_path, "d"), match="regular file|Is a directory")
    refused(_external(tmp_path, "absent.bin"), match="No such file")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 4}, "which has 12 bytes"),
        ({"offset": 1 << 62}, "a number >= 0|which has 12 bytes"),
        ({"offset": -4}, "a number >= 0"),
        ({"offset": "0x0"}, "a number >= 0"),
        ({"offset": "٣"}, "a number >= 0"),
        ({"length": 8}, "expected 12 bytes"),
        ({"length": 1 << 40}, "expected 12 bytes"),
    ],
)
def test_external_ranges(tmp_path, entries, message):
    _weights(tmp_path / "w.bin")
    refused(_external(tmp_path, "w.bin", **entries), match=message)


def test_external_data_of_a_huge_tensor(tmp_path):
    with open(tmp_path / "w.bin", "wb") as f:
        f.truncate(1 << 43)  # a hole: no blocks on disk
    refused(_external(tmp_path, "w.bin", dims=(1 << 40,)), match="more than .* elements")


def test_external_data_needs_a_path(tmp_path):
    _weights(tmp_path / "w.bin")
    refused(_external(tmp_path, "w.bin").read_bytes(), match="give the path of the model's file")


def test_external_file_that_shrinks_after_loading(tmp_path):
    _weights(tmp_path / "w.bin")
    graph = load(_external(tmp_path, "w.bin"))
    os.truncate(tmp_path / "w.bin", 4)
    with pytest.raises(ModelError, match="became shorter"):
        _ = graph.constants[0].data.array


def test_external_file_that_changes_after_loading(tmp_path):
    _weights(tmp_path / "w.bin")
    graph = load(_external(tmp_path, "w.bin"))
    content = (tmp_path / "w.bin").read_bytes()
    with (tmp_path / "w.bin").open("r+b") as f:
        f.write(bytes(len(content)))
    os.utime(tmp_path / "w.bin", (1, 1))
    with pytest.raises(ModelError, match="changed while the model was compiled"):
        _ = graph.constants[0].data.array


def test_external_data_beside_data(tmp_path):
    path = _external(tmp_path, "w.bin")
    made = onnx.ModelProto.FromString(path.read_bytes())
    made.graph.initializer[0].raw_data = bytes(12)
    _weights(tmp_path / "w.bin")
    path.write_bytes(made.SerializeToString())
    refused(path, match="found both")
