"""Tengine alone beside Tengine with a plugin of compiled layers, on the same files.

    python -m benchmarks.tengine_networks libtengine-lite.so squeezenet.tmfile ... [--threads N]

Tengine has to be built from its sources with -DTENGINE_ENABLE_ALL_SYMBOL=ON.  Files without
weights, such as those in its folder `benchmark/models`, get random ones.  A row for each network
has the median time of interleaved calls and the largest error relative to the largest answer.
Rows for each operator have the sums of the replaced layers' shortest times, which Tengine itself
measures, and the ratio of the worst layer.  If layers were slower, a second plugin leaves them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import tilesmith as ts
from tilesmith.frontend.load import load
from written_models.tengine import filled

MOST_AXES = 8
_LAYER = re.compile(r"\[ *([\d.]+)% :.*?\] +(\w+) idx: +(\d+)")
_TOTAL = re.compile(r"min time: ([\d.]+) ms")


class _Options(ctypes.Structure):
    _fields_ = (
        ("threads", ctypes.c_int),
        ("cluster", ctypes.c_int),
        ("precision", ctypes.c_int),
        ("affinity", ctypes.c_uint64),
    )


class Engine:
    """Tengine's library."""

    def __init__(self, library: str | Path) -> None:
        self.calls = ctypes.CDLL(str(library))
        for name in ("create_graph", "get_graph_input_tensor", "get_graph_output_tensor",
                     "get_tensor_buffer", "get_graph_node_by_idx", "find_node_ops"):  # fmt: skip
            getattr(self.calls, name).restype = ctypes.c_void_p
        self.calls.prerun_graph_multithread.argtypes = [ctypes.c_void_p, _Options]
        assert self.calls.init_tengine() == 0

    def load(self, name: str, library: Path) -> None:
        """Load a plugin."""
        status = self.calls.load_tengine_plugin(
            name.encode(), str(library).encode(), f"{name}_init".encode()
        )
        assert status == 0, status

    def unload(self, name: str, library: Path) -> None:
        """Take a plugin's layers back."""
        assert getattr(ctypes.CDLL(str(library)), f"{name}_release")() == 0


class Graph:
    """A model that the engine has prepared."""

    def __init__(self, engine: Engine, path: Path, shape: Sequence[int], threads: int = 1) -> None:
        self._calls = calls = engine.calls
        self._graph = ctypes.c_void_p(calls.create_graph(None, b"tengine", str(path).encode()))
        assert self._graph.value, path
        self.x = np.zeros(shape, np.float32)
        tensor = ctypes.c_void_p(calls.get_graph_input_tensor(self._graph, 0, 0))
        dims = (ctypes.c_int * len(shape))(*shape)
        place = self.x.ctypes.data_as(ctypes.c_void_p)
        assert calls.set_tensor_shape(tensor, dims, len(shape)) == 0
        assert calls.set_tensor_buffer(tensor, place, self.x.nbytes) == 0
        assert calls.prerun_graph_multithread(self._graph, _Options(threads, 0, 0, 0)) == 0

    def run(self) -> None:
        assert self._calls.run_graph(self._graph, 1) == 0

    def answer(self, x: np.ndarray) -> np.ndarray:
        self.x[...] = x
        self.run()
        tensor = ctypes.c_void_p(self._calls.get_graph_output_tensor(self._graph, 0, 0))
        dims = (ctypes.c_int * MOST_AXES)()
        rank = self._calls.get_tensor_shape(tensor, dims, MOST_AXES)
        data = ctypes.cast(self._calls.get_tensor_buffer(tensor), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, tuple(dims[:rank])).copy()

    def names(self) -> list[str]:
        """The names of all nodes."""
        self._calls.get_node_name.restype = ctypes.c_char_p
        count = self._calls.get_graph_node_num(self._graph)
        return [self._calls.get_node_name(self._node(i)).decode() for i in range(count)]

    def operators(self) -> dict[str, int]:
        """By node, the address of the operator that the engine chooses; inputs have one, too."""
        found = ((n, self._calls.find_node_ops(None, self._node(i)))
                 for i, n in enumerate(self.names()))  # fmt: skip
        return {name: operator for name, operator in found if operator}

    def _node(self, number: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._calls.get_graph_node_by_idx(self._graph, number))

    def close(self) -> None:
        self._calls.postrun_graph(self._graph)
        self._calls.destroy_graph(self._graph)


def seconds(graphs: Sequence[Graph], rounds: int) -> list[float]:
    """The median time of each graph, measured in turn."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(rounds):
        for graph, own in zip(graphs, times):
            begin = time.perf_counter()
            graph.run()
            own.append(time.perf_counter() - begin)
    return [statistics.median(own[rounds // 5 :]) for own in times]


@contextmanager
def _captured() -> Iterator[list[str]]:
    """What C functions print, on either stream."""
    texts: list[str] = []
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(stream) for stream in (1, 2)]
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        try:
            yield texts
        finally:
            ctypes.CDLL(None).fflush(None)
            for stream, own in zip((1, 2), kept):
                os.dup2(own, stream)
                os.close(own)
            file.seek(0)
            texts.append(file.read().decode())


def layer_times(graphs: Sequence[Graph], rounds: int) -> list[dict[tuple[str, int], float]]:
    """The shortest time of each layer, by its operator and number, in ms.  Closes the graphs, which
    were prepared with TG_DEBUG_TIME=1.
    """
    for _ in range(rounds):
        for graph in graphs:
            graph.run()
    result = []
    for graph in graphs:
        with _captured() as texts:
            graph.close()
        shares = {(m[2], int(m[3])): float(m[1]) / 100 for m in _LAYER.finditer(texts[0])}
        total = sum(map(float, _TOTAL.findall(texts[0])))
        result.append({layer: share * total for layer, share in shares.items()})
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    engine = Engine(given.library)
    for model in given.models:
        with tempfile.TemporaryDirectory() as folder:
            _compare(engine, model, Path(folder), given.threads, given.rounds)


def _compare(engine: Engine, model: Path, folder: Path, threads: int, rounds: int) -> None:
    path = folder / model.name
    path.write_bytes(filled(model.read_bytes()))
    name = re.sub(r"\W", "_", model.stem)
    slow = _measured(engine, path, name, (), threads, rounds)
    if slow:
        print(f"{len(slow)} layers stay with the engine, which is faster there")
        _measured(engine, path, f"{name}_2", slow, threads, rounds)


def _measured(
    engine: Engine, path: Path, name: str, left: Sequence[str], threads: int, rounds: int
) -> list[str]:
    """Measures a model with a plugin, and gives the layers that were slower in the plugin."""
    (given,) = load(path).inputs
    shape = given.type.static_shape
    folder = path.parent / name
    plugin = ts.tengine.export_plugin(path, folder, name, leave=left, threads=threads)

    def prepared() -> list[Graph]:
        """A graph to measure, and one whose layers Tengine measures."""
        made = [Graph(engine, path, shape, threads)]
        os.environ["TG_DEBUG_TIME"] = "1"
        made.append(Graph(engine, path, shape, threads))
        del os.environ["TG_DEBUG_TIME"]
        return made

    alone = prepared()
    own = alone[0].operators()
    engine.load(name, plugin.library)
    graphs, timed = zip(alone, prepared())
    names = graphs[1].names()
    ours = {n for n, operator in graphs[1].operators().items() if operator != own[n]}
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    answers = [graph.answer(x) for graph in graphs]
    error = np.abs(answers[1] - answers[0]).max() / np.abs(answers[0]).max()
    _row(name, [t * 1e3 for t in seconds(graphs, rounds)], f"{error:9.1e}")
    layers = layer_times(timed, rounds)
    kinds = defaultdict[str, dict[str, list[float]]](dict)
    for kind, number in layers[0]:
        if names[number] in ours:
            kinds[kind][names[number]] = [times[kind, number] for times in layers]
    for kind, members in kinds.items():
        worst = max((new / old for old, new in members.values() if old), default=1)
        sums = np.sum(list(members.values()), 0)
        _row(f"  {kind}", sums, f"worst of {len(members)}: {worst:.2f}")
    for graph in graphs:
        graph.close()
    engine.unload(name, plugin.library)
    return [n for m in kinds.values() for n, (old, new) in m.items() if new > old]


def _row(name: str, times: Sequence[float], more: str) -> None:
    ratio = times[1] / times[0] if times[0] else 1
    print(f"{name:24} {times[0]:8.2f} {times[1]:8.2f} ms {ratio:6.2f} {more}", flush=True)


if __name__ == "__main__":
    main()
