"""Models whose shapes change while they run, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np

from tilesmith import driver
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.runtime.executable import Executable
from tilesmith.support.options import Options


def built(text: str, target: str = "native", threads: int = 2) -> tuple[Graph, Executable]:
    graph = parse_graph(text.replace("\n    j 0", " j 0"))
    options = Options.from_environment().with_(target=target, threads=threads, verify_each=True)
    return graph, Executable(driver.compile_program(graph, driver.Session.of(options)), threads)


def compared(graph: Graph, exe: Executable, *inputs: object) -> dict[str, np.ndarray]:
    arrays = [np.asarray(a) for a in inputs]
    found = exe.run({v.name: a for v, a in zip(graph.inputs, arrays, strict=True)})
    for name, want in evaluate(graph, arrays).items():
        assert (found[name].shape, found[name].dtype) == (want.shape, want.dtype), name
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)
    return found
