"""Parts of TVM's `contrib`."""

from __future__ import annotations

from ...names import refusing
from . import clang, download, graph_executor, utils

__all__ = ["clang", "download", "graph_executor", "utils"]

ELSEWHERE = {
    "tedd": "tilesmith.te.lower, whose text shows the loops",
    **dict.fromkeys(("cc", "ndk", "nvcc", "xcode"), "tvm.build, whose code LLVM makes"),
    "debugger": "executable.profile(inputs), or executable.explain()",
    "graph_runtime": "contrib.graph_executor",
    **dict.fromkeys(
        ("cblas", "cudnn", "cublas", "mkl", "mkldnn", "dnnl", "nnpack"),
        "te.compute and a schedule: no library of a vendor is called",
    ),
}
"""What to use for names of TVM."""

__getattr__ = refusing("contrib", ELSEWHERE)
