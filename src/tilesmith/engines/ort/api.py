"""The functions of ONNX Runtime's C API that the execution provider calls from Python.

The tables repeat facts of the published header: each function's index in the array of functions,
the version of ONNX Runtime that introduced it, and its arguments.  `csrc/provider.h` declares the
functions that C code calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilesmith.support.errors import TilesmithError

VERSION = 24
"""The minor version of the C API that the provider needs, as in csrc/provider.h."""

STRING = 5
"""ONNX Runtime's number of the attribute type "string"."""

_READ_BYTES = 4096
"""Size of the first buffer for an attribute.  A larger attribute is read a second time."""


class OrtError(TilesmithError):
    """A function of ONNX Runtime's C API failed.

    outputs: the values that the function returned besides its status.
    """

    def __init__(self, text: str, outputs: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.outputs = outputs


class Row(NamedTuple):
    """A function.

    place: its index in the array of functions.
    version: minor version of ONNX Runtime that introduced it.
    inputs, outputs: arguments by letter: p pointer, s text, z size, i 32-bit, l 64-bit integer,
        b truth.  Outputs follow the inputs and are returned.
    result: letter of the return value, v for nothing; empty if the function returns a status.
    """

    place: int
    version: int
    inputs: str
    outputs: str = ""
    result: str = ""


FUNCTIONS = {
    "GetErrorMessage": Row(2, 1, "p", result="s"),
    "GetTensorMutableData": Row(51, 1, "p", "p"),
    "GetStringTensorDataLength": Row(53, 1, "p", "z"),
    "GetStringTensorContent": Row(54, 1, "ppzpz"),
    "CastTypeInfoToTensorInfo": Row(55, 1, "p", "p"),
    "GetTensorElementType": Row(60, 1, "p", "i"),
    "GetDimensionsCount": Row(61, 1, "p", "z"),
    "GetDimensions": Row(62, 1, "ppz"),
    "GetSymbolicDimensions": Row(63, 1, "ppz"),
    "KernelContext_GetInput": Row(90, 1, "pz", "p"),
    "KernelContext_GetOutput": Row(91, 1, "pzpz", "p"),
    "ReleaseStatus": Row(93, 1, "p", result="v"),
    "ReleaseValue": Row(96, 1, "p", result="v"),
    "CreateOpAttr": Row(211, 12, "spii", "p"),
    "Logger_LogMessage": Row(247, 15, "pissis"),
    "Logger_GetLoggingSeverityLevel": Row(248, 15, "p", "i"),
    "ReadOpAttr": Row(272, 17, "pipz", "z"),
    "GetValueInfoName": Row(289, 22, "p", "s"),
    "GetValueInfoTypeInfo": Row(290, 22, "p", "p"),
    "GetModelEditorApi": Row(291, 22, "", result="p"),
    "GetKeyValuePairs": Row(298, 22, "p", "ppz", "v"),
    "ReleaseKeyValuePairs": Row(300, 22, "p", result="v"),
    "GetEpApi": Row(317, 22, "", result="p"),
    "ValueInfo_GetInitializerValue": Row(326, 23, "p", "p"),
    "ValueInfo_IsConstantInitializer": Row(331, 23, "p", "b"),
    "Graph_GetModelPath": Row(334, 23, "p", "s"),
    "Graph_GetOnnxIRVersion": Row(335, 23, "p", "l"),
    "Graph_GetNumOperatorSets": Row(336, 23, "p", "z"),
    "Graph_GetOperatorSets": Row(337, 23, "pppz"),
    "Graph_GetNumInputs": Row(338, 23, "p", "z"),
    "Graph_GetInputs": Row(339, 23, "ppz"),
    "Graph_GetNumOutputs": Row(340, 23, "p", "z"),
    "Graph_GetOutputs": Row(341, 23, "ppz"),
    "Graph_GetNumInitializers": Row(342, 23, "p", "z"),
    "Graph_GetInitializers": Row(343, 23, "ppz"),
    "Graph_GetNumNodes": Row(344, 23, "p", "z"),
    "Graph_GetNodes": Row(345, 23, "ppz"),
    "Graph_GetParentNode": Row(346, 23, "p", "p"),
    "Node_GetName": Row(349, 23, "p", "s"),
    "Node_GetOperatorType": Row(350, 23, "p", "s"),
    "Node_GetDomain": Row(351, 23, "p", "s"),
    "Node_GetNumInputs": Row(353, 23, "p", "z"),
    "Node_GetInputs": Row(354, 23, "ppz"),
    "Node_GetNumOutputs": Row(355, 23, "p", "z"),
    "Node_GetOutputs": Row(356, 23, "ppz"),
    "Node_GetNumAttributes": Row(359, 23, "p", "z"),
    "Node_GetAttributes": Row(360, 23, "ppz"),
    "Node_GetAttributeByName": Row(361, 23, "ps", "p"),
    "OpAttr_GetTensorAttributeAsOrtValue": Row(362, 23, "p", "p"),
    "OpAttr_GetType": Row(363, 23, "p", "i"),
    "OpAttr_GetName": Row(364, 23, "p", "s"),
    "Node_GetNumSubgraphs": Row(365, 23, "p", "z"),
    "Node_GetSubgraphs": Row(366, 23, "ppzp"),
    "GetTensorData": Row(378, 23, "p", "p"),
    "GetSessionOptionsConfigEntries": Row(379, 23, "p", "p"),
    "TensorTypeAndShape_HasShape": Row(390, 24, "p", result="b"),
    "GetTensorElementTypeAndShapeDataReference": Row(414, 24, "p", "ipz"),
}
OF_PROVIDERS = {"EpGraphSupportInfo_AddNodesToFuse": Row(2, 23, "ppzp")}
OF_EDITORS = {"CreateNode": Row(6, 22, "ssspzpzpz", "p")}

_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "z": ctypes.c_size_t,
    "i": ctypes.c_int32,
    "l": ctypes.c_int64,
    "b": ctypes.c_bool,
    "v": None,
}


class Api:
    """The functions of the tables above, as methods.  Raises OrtError where one fails."""

    def __init__(self, address: int) -> None:
        """address: the address of ONNX Runtime's array of functions."""
        self._bind(FUNCTIONS, address)
        self._bind(OF_PROVIDERS, self.GetEpApi())
        self._bind(OF_EDITORS, self.GetModelEditorApi())

    def _bind(self, rows: dict[str, Row], address: int) -> None:
        table = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        for name, row in rows.items():
            setattr(self, name, self._method(row, table[row.place]))

    def _method(self, row: Row, address: int | None) -> Any:
        inputs = [_TYPES[c] for c in row.inputs]
        outputs = [_TYPES[c] for c in row.outputs]
        result = _TYPES[row.result or "p"]
        arguments = [*inputs, *map(ctypes.POINTER, outputs)]
        function = ctypes.CFUNCTYPE(result, *arguments)(address or 0)

        def call(*given: Any) -> Any:
            made = [t() for t in outputs]
            returned = function(*given, *made)
            if row.result:
                if not made:
                    return returned
            elif returned:
                self._fail(returned, [m.value for m in made])
            return made[0].value if len(made) == 1 else tuple(m.value for m in made)

        return call

    def _fail(self, status: int, outputs: Sequence[Any]) -> None:
        text = self.GetErrorMessage(status).decode(errors="replace")
        self.ReleaseStatus(status)
        raise OrtError(text, outputs)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name} is not among the functions of ONNX Runtime that are used here"
        )

    def list(self, what: str, owner: int) -> list[int | None]:
        """Addresses of the parts of `owner`, such as its "Node_Inputs"; None for what is absent."""
        kind, _, plural = what.partition("_")
        count = getattr(self, f"{kind}_GetNum{plural}")(owner)
        addresses = (ctypes.c_void_p * count)()
        getattr(self, f"{kind}_Get{plural}")(owner, addresses, count)
        return list(addresses)

    def contents(self, attribute: int, kind: int = STRING) -> bytes:
        """The bytes of an attribute that is neither a tensor nor a graph."""
        room = ctypes.create_string_buffer(_READ_BYTES)
        try:
            size = self.ReadOpAttr(attribute, kind, room, len(room))
        except OrtError as e:
            if e.outputs[0] <= len(room):
                raise
            room = ctypes.create_string_buffer(e.outputs[0])
            size = self.ReadOpAttr(attribute, kind, room, len(room))
        return room.raw[:size]

    def entries(self, options: int) -> dict[str, str]:
        """The configuration of a session, by key."""
        pairs = self.GetSessionOptionsConfigEntries(options)
        keys, values, count = self.GetKeyValuePairs(pairs)
        texts = ctypes.POINTER(ctypes.c_char_p)
        both = (ctypes.cast(keys, texts), ctypes.cast(values, texts))
        entries = {both[0][i].decode(): both[1][i].decode() for i in range(count)}
        self.ReleaseKeyValuePairs(pairs)
        return entries


def pointers(addresses: Sequence[int]) -> Any:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def texts(strings: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(strings))(*(s.encode() for s in strings))
