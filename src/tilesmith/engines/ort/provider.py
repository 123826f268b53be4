"""The execution provider of ONNX Runtime: which nodes of a session it computes, and how.

`csrc/provider.c` passes ONNX Runtime's requests on to this module.  When ONNX Runtime asks which
nodes are supported, the parts of the graph are compiled.  Only parts that compile are claimed.  A
model of EPContext nodes needs no compiler, so the compiler is imported only for other models.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.program.functions import SIZES
from tilesmith.runtime import native
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.host_runner import HostRunner
from tilesmith.runtime.tsm import load_program, save_program, to_bytes
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.options import Options

from .api import STRING, VERSION, Api, pointers, texts

NAME = "TilesmithExecutionProvider"
"""The provider's name; csrc/provider.h has it too."""

DOMAIN, CONTEXT = "com.microsoft", "EPContext"
SOURCE, CONTENT, EMBEDDED = "source", "ep_cache_context", "embed_mode"
"""Attributes of a context node: the provider that wrote it, the code (the bytes of a `.tsm` file or
the file's name), and whether the code is embedded in the node.
"""

_INT = 1
_INFO = 1


class Answers:
    """Answers to `csrc/provider.c`: `begin` once per process, `session` once per session."""

    _api: Api

    def begin(self, address: int) -> None:
        """Store the C API.  address: the address of ONNX Runtime's array of functions."""
        self._api = Api(address)

    def session(self, options: int, logger: int) -> Provider:
        """The provider for a session.  Raises UsageError for an unknown option or a bad value."""
        return Provider(self._api, self._api.entries(options), logger)


class Provider:
    """The answers for one session."""

    def __init__(self, api: Api, entries: dict[str, str], logger: int) -> None:
        """entries: the configuration of the session.  logger: address of its logger."""
        prefix = f"ep.{NAME.lower()}."
        stated = {k.removeprefix(prefix): v for k, v in entries.items() if k.startswith(prefix)}
        self._api, self._entries, self._logger = api, entries, logger
        self._options = options_of(stated)
        self._executables: dict[str, Executable] = {}  # by the name of each result

    def capability(self, graph: int, support: int) -> None:
        """Tell ONNX Runtime which nodes of a graph are computed together.

        support: address of the object that receives the answer.

        The nodes of a subgraph are left alone: the node that has the subgraph may be claimed as a
        whole.
        """
        api = self._api
        if api.Graph_GetParentNode(graph):
            return
        nodes = [n for n in api.list("Graph_Nodes", graph) if n is not None]
        contexts = [n for n in nodes if self._is_context(n)]
        claims = [(n,) for n in contexts]
        if not contexts:
            from .claims import claimed  # delayed: this imports the compiler

            chosen = claimed(api, graph, self._options, self.log)
            for claim in chosen:
                names = (s.name for s in claim.executable.outputs)
                self._executables.update(dict.fromkeys(names, claim.executable))
            claims = [tuple(c.nodes) for c in chosen]
        fusion = _Fusion(VERSION, True)
        for claim in claims:
            addresses = pointers(claim)
            api.EpGraphSupportInfo_AddNodesToFuse(
                support, addresses, len(claim), ctypes.addressof(fusion)
            )
        count = sum(map(len, claims))
        self.log(_INFO, f"{count} of {len(nodes)} nodes in {len(claims)} parts are tilesmith's")

    def compile(self, graphs: Sequence[int], fused: Sequence[int], places: int) -> list[Any]:
        """For each graph, the structure that `csrc/provider.c` reads (see `Plan.native`).

        fused: the node that replaces each graph.
        places: address of an array that receives a context node for each graph; 0 for none.
        """
        made = []
        writes = self._entries.get("ep.context_enable") == "1"
        room = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p)) if places else None
        for i, (graph, node) in enumerate(zip(graphs, fused, strict=True)):
            inputs, outputs = self._names(node)
            inner = self._api.list("Graph_Nodes", graph)
            context = inner[0] if len(inner) == 1 and self._is_context(inner[0] or 0) else None
            if context is not None:
                executable, names = self._restored(context, graph), self._names(context)
            else:
                executable = self._executables[outputs[0]]
                names = _names_of(executable)
            positions = [
                [n.index(v) for v in own] for n, own in zip((inputs, outputs), names, strict=True)
            ]
            if writes and room is not None:
                room[i] = self._context_node(node, graph, executable)
            made.append(Plan(self._api, executable, *positions).native())
        return made

    def _names(self, node: int) -> tuple[list[str], list[str]]:
        """The names of a node's inputs and outputs."""
        api = self._api
        inputs, outputs = (api.list(what, node) for what in ("Node_Inputs", "Node_Outputs"))
        return (
            [api.GetValueInfoName(v).decode() for v in inputs if v],
            [api.GetValueInfoName(v).decode() for v in outputs if v],
        )

    def _is_context(self, node: int) -> bool:
        """Whether a node is a context node that this provider wrote."""
        api = self._api
        if api.Node_GetOperatorType(node).decode() != CONTEXT:
            return False
        return self._attribute(node, SOURCE) == NAME.encode()

    def _attribute(self, node: int, name: str) -> bytes:
        attribute = self._api.Node_GetAttributeByName(node, name.encode())
        return self._api.contents(attribute) if attribute else b""

    def _is_embedded(self, node: int) -> bool:
        attribute = self._api.Node_GetAttributeByName(node, EMBEDDED.encode())
        return (
            not attribute or int.from_bytes(self._api.contents(attribute, _INT), sys.byteorder) != 0
        )

    def _restored(self, node: int, graph: int) -> Executable:
        """The executable of a context node.  Raises ModelError if its file is missing or bad."""
        content = self._attribute(node, CONTENT)
        if self._is_embedded(node):
            program = load_program(content)
        else:
            model = Path(self._api.Graph_GetModelPath(graph).decode())
            if not model.name:
                model = Path(self._entries.get("ep.context_file_path", ""))
            name = content.decode()
            if Path(name).name != name:
                raise ModelError(
                    f"context node: expected the name of a file beside the model, found {name!r}"
                )
            program = load_program(model.parent / name)
        return Executable(program, self._options.threads)

    def _context_node(self, node: int, graph: int, executable: Executable) -> int:
        """Make a context node, and pass it to ONNX Runtime, which will release it.

        Returns the node's address.  node: the fused node.
        """
        api = self._api
        name = api.Node_GetName(node).decode()
        is_embedded = self._entries.get("ep.context_embed_mode") == "1"
        if is_embedded:
            content = to_bytes(executable.program)
        else:
            model = Path(self._entries.get("ep.context_file_path", "") or self._path_of(graph))
            content = f"{model.stem}_{name}.tsm".encode()
            save_program(executable.program, model.parent / content.decode())
        attributes = [
            self._made(CONTENT, content),
            self._made(SOURCE, NAME.encode()),
            self._made(EMBEDDED, int(is_embedded)),
            self._made("main_context", 1),
            self._made("partition_name", name.encode()),
        ]
        inputs, outputs = _names_of(executable)
        return api.CreateNode(  # takes ownership of the attributes
            CONTEXT.encode(), DOMAIN.encode(), name.encode(),
            texts(inputs), len(inputs), texts(outputs), len(outputs),
            pointers(attributes), len(attributes),
        )  # fmt: skip

    def _path_of(self, graph: int) -> str:
        """The default path of a model's context file."""
        path = Path(self._api.Graph_GetModelPath(graph).decode())
        return str(path.with_name(f"{path.stem}_ctx.onnx"))

    def _made(self, name: str, value: bytes | int) -> int:
        if isinstance(value, int):
            number = ctypes.byref(ctypes.c_int64(value))
            return self._api.CreateOpAttr(name.encode(), number, 1, _INT)
        return self._api.CreateOpAttr(name.encode(), value, len(value), STRING)

    def log(self, level: int, text: str) -> None:
        """Write to the session's log.  level: as in ONNX Runtime, 0 (verbose) to 4 (fatal)."""
        if level >= self._api.Logger_GetLoggingSeverityLevel(self._logger):
            self._api.Logger_LogMessage(
                self._logger, level, text.encode(), __file__.encode(), 0, b"tilesmith"
            )


class _Fusion(ctypes.Structure):
    """Options of a fusion, such as whether constant initialisers are inputs of the fused node."""

    _fields_ = (("version", ctypes.c_uint32), ("drops_initialisers", ctypes.c_bool))


class Plan:
    """The runs of a fused node.

    The library runs most nodes by itself.  `run` computes the other runs, and raises their errors.
    """

    def __init__(
        self,
        api: Api,
        executable: Executable,
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        """inputs, outputs: index in the node of each input or output of the executable."""
        self._api, self._executable = api, executable
        self._inputs, self._outputs = inputs, outputs

    def native(self) -> tuple[Any, ...]:
        """The structure that `csrc/provider.c` reads."""
        program, runner = self._executable.program, self._executable.runner
        symbols = {s.name: i for i, s in enumerate(program.symbols)}
        opened = (d for s in program.inputs for d in s.shape if isinstance(d, str))
        is_bare = (
            isinstance(runner, HostRunner)
            and runner.takes_addresses
            and all(d in symbols for d in opened)
        )
        inputs, outputs = (
            tuple(
                (place, s.dtype.bytes, tuple(_extent(d, symbols) for d in s.shape))
                for place, s in zip(places, specs, strict=True)
            )
            for places, specs in ((self._inputs, program.inputs), (self._outputs, program.outputs))
        )
        if not is_bare or not isinstance(runner, HostRunner):
            return self, None, 0, 0, 0, inputs, outputs
        sizes = runner.address(SIZES) if symbols else 0
        return self, runner.native, sizes, program.size_values, len(symbols), inputs, outputs

    def run(self, context: int) -> None:
        """Run the node.  context: address of ONNX Runtime's context of the run."""
        executable = self._executable
        arrays = [
            self._read(self._api.KernelContext_GetInput(context, place), s.dtype.numpy)
            for place, s in zip(self._inputs, executable.inputs, strict=True)
        ]
        results = executable(*arrays)
        if len(executable.outputs) == 1:
            results = (results,)
        for place, result in zip(self._outputs, results, strict=True):
            shape = (ctypes.c_int64 * result.ndim)(*result.shape)
            value = self._api.KernelContext_GetOutput(context, place, shape, result.ndim)
            if result.nbytes:
                source = np.ascontiguousarray(result)
                data = self._api.GetTensorMutableData(value)
                ctypes.memmove(data, source.ctypes.data, source.nbytes)

    def _read(self, value: int, dtype: np.dtype) -> np.ndarray:
        """A tensor of ONNX Runtime as an array that uses its memory."""
        _, extents, rank = self._api.GetTensorElementTypeAndShapeDataReference(value)
        shape = tuple((ctypes.c_int64 * rank).from_address(extents)) if rank else ()
        if 0 in shape:
            return np.empty(shape, dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        held = native.memory(self._api.GetTensorData(value), size)
        return np.frombuffer(held, np.uint8).view(dtype).reshape(shape)


def _names_of(executable: Executable) -> tuple[list[str], list[str]]:
    """The names of an executable's inputs and outputs."""
    return [s.name for s in executable.inputs], [s.name for s in executable.outputs]


def _extent(extent: int | str, symbols: dict[str, int]) -> int:
    """An extent as `csrc/provider.c` reads it: a number, or -1 - k for symbol number k.

    The value for a formula is arbitrary, since it is not read.
    """
    return extent if isinstance(extent, int) else -1 - symbols.get(extent, 0)


def options_of(given: dict[str, str]) -> Options:
    """The options of a session by name.  Raises UsageError for an unknown name or a bad value."""
    kinds = {f.name: str(f.type).partition(" ")[0] for f in fields(Options)}
    made: dict[str, Any] = {}
    for name, text in given.items():
        if name not in kinds or name == "fallback":
            known = ", ".join(sorted(kinds.keys() - {"fallback"}))
            raise UsageError(f"option {name!r} of {NAME}: expected one of {known}")
        kind = kinds[name]
        if kind == "int" and not text.isdecimal():
            raise UsageError(f"option {name!r} of {NAME}: expected a number, found {text!r}")
        if kind == "bool" and text not in ("0", "1"):
            raise UsageError(f"option {name!r} of {NAME}: expected 0 or 1, found {text!r}")
        made[name] = {"int": int, "bool": "1".__eq__, "float": float}.get(kind, str)(text)
    return Options.from_environment(**made, fallback="error")
