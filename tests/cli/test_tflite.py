"""TFLite's signatures on the command line."""

from __future__ import annotations

from tflite_models import ModelWriter


def test_a_signature_is_chosen(tilesmith, tmp_path):
    model = ModelWriter()
    for number, (key, kind) in enumerate((("up", "EXP"), ("down", "NEG"))):
        g = model.graph(key)
        x, y = g.input((2,), name="x"), g.tensor((2,), name="y")
        g.op(kind, [x], [y])
        g.output(y)
        model.signatures.append(
            {
                "inputs": [{"name": "given", "tensor_index": x}],
                "outputs": [{"name": f"y_{key}", "tensor_index": y}],
                "signature_key": key,
                "subgraph_index": number,
            }
        )
    path = tmp_path / "m.tflite"
    path.write_bytes(model.bytes())
    shown = tilesmith("inspect", path).out
    assert "signature down: given: float32[2] -> y_down: float32[2]" in shown
    for options, name in (((), "y_up"), (("--signature", "down"), "y_down")):
        done = tilesmith("run", path, *options, "--json").json
        assert [o["name"] for o in done["outputs"]] == [name]
    assert tilesmith("compile", path, "-o", tmp_path / "m.tsm").code == 0
    done = tilesmith("run", tmp_path / "m.tsm", "--signature", "down")
    assert done.code == 1 and "--signature has no effect on a compiled .tsm file" in done.err
