"""Functions of f64 that a device computes by arithmetic, run on this machine (see `emulated`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import mpmath
import numpy as np
import pytest
from emulated import EmulatedDevice

import tilesmith as ts
from tilesmith import te
from tilesmith.backend import cuda as backend
from tilesmith.codegen.c.compiler import find_compiler
from tilesmith.runtime import device_function

RANGES = {
    "exp": ((-750, 712), 2), "exp2": ((-1080, 1030), 2), "log": ((0, 1e308), 2),
    "log1p": ((-1, 50), 3), "tanh": ((-25, 25), 3), "erf": ((-6.5, 6.5), 3),
    "sinh": ((-712, 712), 4), "cosh": ((-712, 712), 3), "asinh": ((-1e9, 1e9), 4),
    "acosh": ((1, 1e9), 4), "atanh": ((-1, 1), 4), "sin": ((-1e6, 1e6), 2),
    "cos": ((-1e6, 1e6), 2), "tan": ((-1e6, 1e6), 4), "asin": ((-1, 1), 3), "acos": ((-1, 1), 3),
    "atan": ((-40, 40), 3),
}  # fmt: skip
"""By function, where its arguments are drawn from, and its bound in units in the last place."""

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1e-300, 1e300,
         -1e300, 709.0, 710.0, -745.0, 1e22, 6381956970095103.0 * 2.0**797]  # fmt: skip
"""The last one is closest to a multiple of pi / 2."""

COUNT = 400


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "threads.so"
    flags = ["-shared", "-fPIC", "-w", "-O1", "-pthread"]
    source = str(Path(__file__).with_name("threads.c"))
    subprocess.run([*find_compiler(), *flags, source, "-o", str(path), "-lm"], check=True)
    return path


@pytest.fixture(autouse=True)
def device(threads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = EmulatedDevice(threads)
    monkeypatch.setattr(device_function, "opened", lambda t: made)
    monkeypatch.setattr(backend, "ptx", lambda text, *rest: text)


def arguments(low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """Evenly drawn ones, small ones of all magnitudes, and edges."""
    even = rng.uniform(low, high, COUNT // 2)
    small = 10.0 ** rng.uniform(-300, 2, COUNT // 4)
    near = 10.0 ** rng.uniform(-3, 0.5, COUNT - len(even) - len(small) - len(EDGES))
    found = np.concatenate([even, small, near * rng.choice([-1, 1], len(near)), EDGES])
    return np.ascontiguousarray(found)


def units(found: np.ndarray, exact: list[mpmath.mpf]) -> np.ndarray:
    """The errors, in units in the last place of the rounded results."""
    rounded = np.array([float(e) for e in exact])
    errors = np.zeros(len(found))
    for i, (a, e, r) in enumerate(zip(found, exact, rounded, strict=True)):
        if np.isfinite(a) and np.isfinite(r):
            errors[i] = abs((mpmath.mpf(float(a)) - e) / mpmath.mpf(float(np.spacing(abs(r)))))
        elif not (a == r or (np.isnan(a) and np.isnan(r))):
            errors[i] = np.inf
    return errors


def exact(name: str, x: float) -> mpmath.mpf:
    """The value with many digits, and as IEEE 754 has it where there is none."""
    if not np.isfinite(x) or x == 0 or (name in ("log", "log1p", "atanh") and x in (-1, 1)):
        with np.errstate(all="ignore"):
            known = {"erf": np.sign, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
                     "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh}  # fmt: skip
            return mpmath.mpf(float(known.get(name, getattr(np, name, None))(x)))
    value = x**1
    if name == "exp2":
        return mpmath.mpf(2) ** value if abs(value) < 2000 else mpmath.mpf(np.exp2(x))
    if name in ("exp", "sinh", "cosh") and abs(value) > 2000:
        return mpmath.mpf(float(getattr(np, name)(x)))
    found = getattr(mpmath, name)(mpmath.mpf(value))
    return mpmath.mpf("nan") if isinstance(found, mpmath.mpc) else found


@pytest.mark.parametrize("start", range(0, len(RANGES), 6))
@np.errstate(all="ignore")
def test_functions(start: int):
    names = [*RANGES][start : start + 6]
    rng = np.random.default_rng(start)
    given = np.stack([arguments(*RANGES[name][0], rng) for name in names])
    x = te.placeholder(given.shape, "f64", "x")
    ys = [
        te.compute((COUNT,), lambda i, n=n, name=name: getattr(te, name)(x[n, i]), name)
        for n, name in enumerate(names)
    ]
    function = ts.build("auto", [x, *ys], target="cuda-sm_80")
    found = np.zeros((len(names), COUNT))
    function(given, *found)
    with mpmath.workdps(400):
        for name, a, f in zip(names, given, found, strict=True):
            errors = units(f, [exact(name, v) for v in a.tolist()])
            worst = int(errors.argmax())
            assert errors[worst] <= RANGES[name][1], (name, a[worst], f[worst], errors[worst])
            assert np.signbit(f[~np.isnan(f)]).sum() == 0 or name not in ("exp", "cosh", "acos")


@np.errstate(all="ignore")
def test_pow():
    rng = np.random.default_rng(7)
    bases, exponents = 10.0 ** rng.uniform(-5, 5, 300), rng.uniform(-60, 60, 300)
    special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, np.inf, -np.inf, np.nan]
    pairs = np.array([(a, b) for a in special for b in special])
    a, b = np.concatenate([bases, pairs[:, 0]]), np.concatenate([exponents, pairs[:, 1]])
    x, y = (te.placeholder(a.shape, "f64", n) for n in "xy")
    z = te.compute(a.shape, lambda i: te.power(x[i], y[i]), "z")
    found = np.zeros(a.shape)
    ts.build("auto", [x, y, z], target="cuda-sm_80")(a, b, found)
    wanted = np.power(pairs[:, 0], pairs[:, 1])
    np.testing.assert_allclose(found[300:], wanted, rtol=3e-16, atol=0)
    with mpmath.workdps(60):
        wanted = [mpmath.mpf(p) ** mpmath.mpf(q) for p, q in zip(a[:300], b[:300])]
        errors = units(found[:300], wanted)
    assert errors.max() <= 8
    middle = abs(np.log2(found[:300])) < 32
    assert middle.sum() > 20 and errors[middle].max() <= 2
