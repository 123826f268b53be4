"""Networks of named layers: the walk, attributes that are text, messages, and models of files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.common.inputs import Declared, Given
from tilesmith.frontend.common.networks import (
    Layer,
    LayerNode,
    Layers,
    Network,
    inspect_network,
    load_network,
    network_nodes,
)
from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.load import inspect, load
from tilesmith.ir.dtypes import f32
from tilesmith.support.errors import ModelError, UnsupportedError

TABLE: Layers = Registry()


@TABLE.register("Scale")
def scale(n: LayerNode):
    return n.input() * n.weight(0, (1, -1 if n.attr_flag("wrong", False) else 3))


@TABLE.register("Power")
def power(n: LayerNode):
    return n.input() ** n.attr_float("power", 1.0)


@TABLE.register("Halves")
def halves(n: LayerNode):
    return n.input() * 0.5, n.input() * 0.25


NETWORK = Network(
    "Layers, version 1",
    (Declared("x", f32, ("N", 3)),),
    {"y": "data", "z": "b"},
    (
        Layer("Scale", "s", ("x",), ("data",), {}, ("s.0",)),
        Layer("Power", "p", ("data",), ("data",), {"power": "2"}),
        Layer("Halves", "h", ("data",), ("a", "b")),
    ),
    {"s.0": lambda: np.array([1, 2, 3], np.float32)},
)


def test_a_network_becomes_a_graph():
    graph = load_network(NETWORK, TABLE, Given(shapes={"N": 2}))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, z = ts.compile(graph).run({"x": x}).values()
    np.testing.assert_allclose(y, (x * [1, 2, 3]) ** 2)
    np.testing.assert_allclose(z, y / 4)
    assert network_nodes(NETWORK) == [("s", "Scale"), ("p", "Power"), ("h", "Halves")]
    facts = inspect_network(NETWORK, TABLE)
    assert facts.inputs == {"x": "f32[N,3]"} and facts.weight_bytes == 12


def test_all_layers_that_lack_support_are_reported_at_once():
    layers = [Layer(k, k.lower(), ("x",), (k,)) for k in ("Warp", "Fold")]
    network = replace(NETWORK, layers=(*layers, *NETWORK.layers))
    with pytest.raises(UnsupportedError, match=r"Warp at 'warp'.*Fold at 'fold'"):
        load_network(network, TABLE, Given())
    assert inspect_network(network, TABLE).unsupported == {"Warp", "Fold"}


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (Layer("Power", "q", ("no",), ("data",)), "node 'q' .*'no' is used, which nothing before"),
        (Layer("Power", "q", (), ("data",)), "expected input number 1"),
        (Layer("Power", "q", ("x",), ("data",), {"power": "a"}), "expected a number, found 'a'"),
        (Layer("Scale", "q", ("x",), ("data",)), "expected at least 1 stored tensors, found 0"),
        (Layer("Scale", "q", ("x",), ("data",), {}, ("t",)), "stored tensor 't' is used"),
    ],
)
def test_a_wrong_layer_is_named(layer, said):
    network = replace(NETWORK, layers=(layer, *NETWORK.layers[1:]))
    with pytest.raises(ModelError, match=said):
        load_network(network, TABLE, Given())


def node(**attributes: object) -> LayerNode:
    return LayerNode(None, "", "", None, None, Layer("K", "k", (), (), attributes), (), None)  # type: ignore


def test_attributes_may_be_text():
    n = node(a="(1, 2)", b="3", c=np.array([4, 5]), d="1e-3, 2", e="True", f=7, g="1.5", h="x",
             i=float("inf"))  # fmt: skip
    assert n.attr_ints("a") == (1, 2) and n.attr_ints("b") == (3,) and n.attr_ints("c") == (4, 5)
    assert n.attr_floats("d") == (1e-3, 2.0) and n.attr_flag("e") and n.attr_ints("f") == (7,)
    assert n.attr_int("b") == 3 and n.attr_int("none", 2) == 2 and n.attr_string("h") == "x"
    for read in (
        lambda: n.attr_int("g"),
        lambda: n.attr_int("i"),
        lambda: n.attr_ints("g"),
        lambda: n.attr_ints("i"),
        lambda: n.attr_ints("h"),
        lambda: n.attr_flag("f"),
        lambda: n.attr_int("b", low=4),
        lambda: n.attr_string("h", among=("y",)),
        lambda: n.attr_int("missing"),
    ):
        with pytest.raises(ModelError, match="attribute '"):
            read()


def test_models_of_several_files(tmp_path):
    (tmp_path / "net.cfg").write_bytes(b"first")
    assert Source.of(tmp_path / "net.cfg", "").companion(".bin", ".w") is None
    (tmp_path / "net.w").write_bytes(b"second")
    (tmp_path / "other").write_bytes(b"third")
    source = Source.of(str(tmp_path / "net.cfg"), "")
    assert bytes(source.companion(".bin", ".w") or b"") == b"second" and source.opened == {"net.w"}
    pair = Source.of((tmp_path / "net.cfg", tmp_path / "other"), "")
    assert bytes(pair.content or b"") == b"first" and bytes(pair.companion() or b"") == b"third"


def test_a_model_may_be_a_folder(tmp_path):
    (tmp_path / "m" / "inner").mkdir(parents=True)
    (tmp_path / "m" / "inner" / "w").write_bytes(b"weights")
    (tmp_path / "secret").write_bytes(b"secret")
    source = Source.of(tmp_path / "m", "")
    assert source.is_folder and bytes(source.file("inner/w") or b"") == b"weights"
    assert source.file("inner/v") is None
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    for name in ("../secret", "link", str(tmp_path / "secret")):
        with pytest.raises(ModelError, match="expected a file in the model's folder"):
            source.file(name)
    for read in (load, inspect):
        with pytest.raises(ModelError, match=r"expected an ONNX file or .*found a folder"):
            read(tmp_path / "m")
