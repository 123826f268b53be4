"""A runtime for MLServer, by which KServe and others serve `.tsm` files with the Open Inference
Protocol (version 2).

`model-settings.json` names it, `"implementation": "tilesmith.engines.mlserver_runtime.Runtime"`,
with the file as `parameters.uri` and options of `Service` in `parameters.extra`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from mlserver import MLModel, types  # pyright: ignore[reportMissingImports]
from mlserver.codecs import NumpyCodec  # pyright: ignore[reportMissingImports]
from mlserver.errors import MLServerError  # pyright: ignore[reportMissingImports]
from mlserver.utils import get_model_uri  # pyright: ignore[reportMissingImports]

from tilesmith.runtime.program import TensorSpec
from tilesmith.serving.service import Service
from tilesmith.support.errors import DeadlineError, ModelError, UnavailableError

_STATUS = {ModelError: 400, UnavailableError: 503, DeadlineError: 504}
"""HTTP's status for each error of a request."""


class Runtime(MLModel):
    """A model of MLServer: ready when it is warm; MLServer's own requests share calls."""

    async def load(self) -> bool:
        path = await get_model_uri(self.settings, wellknown_filenames=["model.tsm"])
        extra = getattr(self.settings.parameters, "extra", None) or {}
        self._service = await asyncio.to_thread(Service, path, **extra)
        self.inputs = [_metadata(s) for s in self._service.exe.inputs]
        self.outputs = [_metadata(s) for s in self._service.exe.outputs]
        return self._service.is_ready

    async def predict(self, payload: Any) -> Any:
        arrays = {i.name: self.decode(i, default_codec=NumpyCodec) for i in payload.inputs}
        specs = {s.name: s for s in self._service.exe.inputs}
        for name, spec in specs.items():
            if name in arrays and isinstance(arrays[name], np.ndarray):
                arrays[name] = arrays[name].astype(spec.dtype.numpy, casting="same_kind")
        try:
            results = await self._service.call(**arrays)
        except tuple(_STATUS) as e:
            status = next(n for kind, n in _STATUS.items() if isinstance(e, kind))
            raise MLServerError(str(e), status) from e
        outputs = results if isinstance(results, tuple) else (results,)
        return types.InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[
                _output(s.name, y) for s, y in zip(self._service.exe.outputs, outputs, strict=True)
            ],
        )

    async def unload(self) -> bool:
        await asyncio.to_thread(self._service.close)
        return True


def _output(name: str, result: np.ndarray) -> Any:
    """A result in the protocol's words."""
    encoded = NumpyCodec.encode_output(name, result)
    encoded.shape = list(result.shape)  # the codec makes columns of vectors
    return encoded


def _metadata(spec: TensorSpec) -> Any:
    """An input or output in the protocol's words; -1 stands for an open dimension."""
    kind = {"f": "FP", "i": "INT", "u": "UINT"}.get(spec.dtype.numpy.kind)
    datatype = "BOOL" if kind is None else f"{kind}{8 * spec.dtype.bytes}"
    shape = [d if isinstance(d, int) else -1 for d in spec.shape]
    return types.MetadataTensor(name=spec.name, datatype=datatype, shape=shape)
