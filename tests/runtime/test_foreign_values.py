"""What is no array never becomes an address: it is refused, whichever way it comes in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.graph.builder import Builder
from tilesmith.graph.parse import parse_graph

ARRAY = np.arange(4, dtype=np.float32)


def doubled(type_: str) -> ts.Executable:
    text = f'graph g(%x: {type_}) {{\n  %y: {type_} = add(%x, %x)\n  return %y as "y"\n}}'
    return ts.compile(parse_graph(text), threads=1)


@pytest.fixture(scope="module")
def exe() -> ts.Executable:
    return doubled("f32[4]")


def instance_run(exe: ts.Executable, value: object) -> None:
    instance = ts.Instance(exe)
    instance.set_input(0, value)
    instance.run()


def instance_output(exe: ts.Executable, value: object) -> None:
    instance = ts.Instance(exe)
    instance.set_input(0, ARRAY)
    instance.set_output(0, value)
    instance.run()


INPUTS: list[Callable[[ts.Executable, object], object]] = [
    lambda exe, v: exe(v),
    lambda exe, v: exe(x=v),
    lambda exe, v: exe.run({"x": v}),
    lambda exe, v: exe.profile(v),
    lambda exe, v: exe.kernel_seconds(v),
    instance_run,
]
OUTPUTS: list[Callable[[ts.Executable, object], object]] = [
    lambda exe, v: exe(ARRAY, out=v),
    lambda exe, v: exe(ARRAY, out=(v,)),
    lambda exe, v: exe.run({"x": ARRAY}, out={"y": v}),
    instance_output,
]
NUMBERS = [3, 0, -1, True, 1 << 70, ARRAY.ctypes.data, id(ARRAY), 2.5]
IDS = ["3", "0", "-1", "True", "2^70", "an address", "an id", "2.5"]


@pytest.mark.parametrize("value", NUMBERS, ids=IDS)
@pytest.mark.parametrize("call", range(len(INPUTS)))
def test_a_number_is_no_array(exe, call, value):
    with pytest.raises(ts.ModelError, match=r"input 'x': expected an array of shape \[4\], found"):
        INPUTS[call](exe, value)


@pytest.mark.parametrize("value", NUMBERS, ids=IDS)
@pytest.mark.parametrize("call", range(len(OUTPUTS)))
def test_a_number_is_no_memory_for_results(exe, call, value):
    with pytest.raises(ts.ModelError, match="expected a NumPy array or a torch tensor, found"):
        OUTPUTS[call](exe, value)


def test_a_number_is_the_value_of_an_input_without_dimensions():
    assert doubled("f32[]")(2) == 4 and doubled("f32[]")(1.5) == 3
    assert doubled("i64[]").run({"x": 1 << 40})["y"] == 1 << 41
    assert np.isposinf(doubled("f32[]")(float("inf")))
    for type_, value in (("i64[]", 1.5), ("i64[]", 1 << 63), ("u8[]", -1), ("i64[]", True),
                         ("f32[]", 1e39), ("f32[]", 10**400), ("f32[]", False)):  # fmt: skip
        with pytest.raises(
            ts.ModelError, match=rf"input 'x': expected a number of type {type_[:-2]}"
        ):
            doubled(type_)(value)


def test_a_built_function_takes_arrays_and_integers():
    a = te.placeholder((4,), "f32", "A")
    b = te.compute((4,), lambda i: a[i] + 1, "B")
    f = ts.build(te.create_schedule(b.op), [a, b])
    for value in NUMBERS:
        with pytest.raises(ts.ModelError, match="argument 'A': expected a NumPy array"):
            f(value, ARRAY.copy())
        with pytest.raises(ts.ModelError, match="argument 'B': expected a NumPy array"):
            f(ARRAY, value)


class Lying:
    """An object whose description as an array is wrong, or raises."""

    def __init__(self, **said: object) -> None:
        for name, value in said.items():
            setattr(self, name, value)


def test_objects_that_describe_themselves_wrongly_are_refused(exe):
    good = ARRAY.__array_interface__
    for said in (
        {"__array_interface__": 7},
        {"__array_interface__": {}},
        {"__array_interface__": {**good, "shape": (-4,)}},
        {"__array_interface__": {**good, "typestr": "<Z9"}},
        {"__dlpack__": lambda **_: 7, "__dlpack_device__": lambda: (1, 0)},
        {"__dlpack__": 3, "__dlpack_device__": lambda: (1, 0)},
        {"__dlpack_device__": lambda: "cpu"},
    ):
        with pytest.raises(ts.ModelError, match="input 'x'"):
            exe(Lying(**said))

    class Raises:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise KeyError("no\nsuch")

    with pytest.raises(ts.ModelError, match="the Raises can't be read as an array: KeyError"):
        exe(Raises())


def test_inputs_by_name(exe):
    assert np.array_equal(exe(x=ARRAY), 2 * ARRAY)
    for call, said in (
        (lambda: exe(ARRAY, x=ARRAY), "given twice"),
        (lambda: exe(z=ARRAY), "no input is called 'z'"),
        (lambda: exe(), "expected 1 inputs"),
    ):
        with pytest.raises(ts.ModelError, match=said):
            call()
    for inputs, out in (
        (None, None),
        ([ARRAY], None),
        ([ARRAY], {"x": ARRAY}),
        ("y", {"x": ARRAY}),
        (["y"], [ARRAY]),
        ({"x": ARRAY}, [ARRAY]),
    ):
        with pytest.raises(ts.UsageError, match=r"expected the inputs by name, as in exe.run"):
            exe.run(inputs, out)


def test_tensors_that_numpy_has_no_view_of_are_refused(exe):
    torch = pytest.importorskip("torch")
    x = torch.arange(4.0)
    for bad in (
        x.to_sparse(),
        torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        x.to("meta"),
        torch.zeros(4, dtype=torch.complex32),
    ):
        with pytest.raises(ts.ModelError, match="input 'x'"):
            exe(bad)
    for good in (
        x.requires_grad_(),
        torch.complex(x, -x).imag.neg(),
        torch.complex(x, -x).conj().imag,
    ):
        assert torch.equal(torch.as_tensor(exe(good)), 2 * good.detach())


def test_tangents_are_not_dropped(exe):
    torch = pytest.importorskip("torch")
    forward_ad = torch.autograd.forward_ad
    x = torch.arange(4.0)
    module = ts.compile(torch.nn.ReLU(), x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(4))
        for call in (*INPUTS, lambda _, v: module(v), lambda _, v: module.run({"input": v})):
            with pytest.raises(ts.ModelError, match=r"found a dual tensor .*unpack_dual"):
                call(exe, dual)
        for plain in (x, forward_ad.unpack_dual(dual).primal):
            assert torch.equal(torch.as_tensor(exe(plain)), 2 * x)


class Quantity(np.ndarray):
    """An array with a unit, as packages of units have it."""

    unit = property(lambda self: "km")


class Wrapped:
    """An array with a unit in an object that NumPy turns into an array."""

    units = property(lambda self: "km")

    def __array__(self, dtype=None, copy=None):
        return ARRAY


class Framed(np.ndarray):
    """As a pandas column: `mask` is a method."""

    def mask(self, condition):
        return self


MASKED = np.ma.array(ARRAY, mask=[False, True, False, False])
MEANING = [
    (MASKED, r"found a MaskedArray with masked elements; give \.filled\(value\)"),
    (ARRAY.view(Quantity), "found a Quantity in km; convert it"),
    (Wrapped(), "found a Wrapped in km; convert it"),
]


@pytest.mark.parametrize("value, message", MEANING, ids=["mask", "unit", "wrapped unit"])
def test_masks_and_units_are_not_dropped(exe, value, message):
    for call in INPUTS:
        with pytest.raises(ts.ModelError, match=f"input 'x': expected .*{message}"):
            call(exe, value)
    with pytest.raises(ts.ModelError, match=message):
        doubled("f32[n]")(value)


def test_masks_and_units_are_not_dropped_elsewhere():
    exe = doubled("f32[4]")
    with pytest.raises(ts.ModelError, match=r"output 'y': .*filled\(value\)"):
        exe(ARRAY, out=MASKED.copy())
    x = te.placeholder((4,), "f32", "x")
    y = te.compute((4,), lambda i: x[i] * 2, "y")
    f = ts.build(te.create_schedule([y.op]), [x, y])
    with pytest.raises(ts.ModelError, match=r"argument 'x': .*filled\(value\)"):
        f(MASKED, np.empty(4, np.float32))
    with pytest.raises(ts.ModelError, match=r"constant 'c': .*filled\(value\)"):
        Builder("g").constant(MASKED, "c")


def test_arrays_that_hide_nothing_are_taken(exe):
    for value in (np.ma.array(ARRAY), np.ma.array(ARRAY, mask=False), ARRAY.view(Framed)):
        for call in INPUTS[:3]:
            result = call(exe, value)
            got = result["y"] if isinstance(result, dict) else result
            np.testing.assert_array_equal(got, 2 * ARRAY)


def test_python_containers_are_refused_with_advice(exe):
    for value in ([1.0, 2.0], (1.0,), range(4)):
        for call in INPUTS:
            with pytest.raises(ts.ModelError, match=r"np\.asarray\(x, np\.float32\)"):
                call(exe, value)
    with pytest.raises(ts.ModelError, match=r"as in np\.asarray\(x, ml_dtypes\.bfloat16\)"):
        doubled("bf16[4]")([1.0, 2.0])
    with pytest.raises(ts.ModelError, match=r"inputs by name are for run"):
        exe({"x": ARRAY})


def test_profiles_take_inputs_by_name_as_runs_do(exe):
    by_name = exe.profile({"x": ARRAY}, repeats=1)
    by_place = exe.profile(ARRAY, repeats=1)
    assert [k.call for k in by_name.kernels] == [k.call for k in by_place.kernels]
    assert exe.kernel_seconds({"x": ARRAY}).shape == exe.kernel_seconds(ARRAY).shape
    with pytest.raises(ts.ModelError, match="no input is called 'z'"):
        exe.profile({"z": ARRAY})
    with pytest.raises(ts.ModelError, match="missing inputs: 'x'"):
        exe.profile({})
