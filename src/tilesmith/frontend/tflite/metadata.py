"""TFLite's model metadata: names, normalisation and labels of inputs and outputs.

The entry `TFLITE_METADATA` of a model is a FlatBuffer of its own.  The files that it names, such as
lists of labels, are in a ZIP archive that is appended to the model's file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tilesmith.frontend.common.flatbuffer import Buffer, Schema, Table
from tilesmith.frontend.tflite.model import Model, Signature
from tilesmith.support.described import Described
from tilesmith.support.mapped import ByteStream

ENTRY = "TFLITE_METADATA"

SCHEMA = Schema(
    {
        "AssociatedFile": "name:string description:string type:i8 locale:string version:string",
        "ImageSize": "width:u32 height:u32",
        "ImageProperties": "color_space:i8 default_size:ImageSize",
        "AudioProperties": "sample_rate:u32 channels:u32",
        "Content": "content_properties_type:u8 content_properties:union",
        "NormalizationOptions": "mean:[f32] std:[f32]",
        "ProcessUnit": "options_type:u8 options:union",
        "TensorMetadata": "name:string description:string dimension_names:[string] "
        "content:Content process_units:[ProcessUnit] stats:Stats associated_files:[AssociatedFile]",
        "SubGraphMetadata": "name:string description:string input_tensor_metadata:[TensorMetadata] "
        "output_tensor_metadata:[TensorMetadata]",
        "ModelMetadata": "name:string description:string version:string "
        "subgraph_metadata:[SubGraphMetadata] author:string license:string",
        **dict.fromkeys(
            ("FeatureProperties", "BoundingBoxProperties", "ScoreCalibrationOptions",
             "ScoreThresholdingOptions", "BertTokenizerOptions", "SentencePieceTokenizerOptions",
             "RegexTokenizerOptions"), "",
        ),
    },
    {
        "content_properties": ("", "FeatureProperties", "ImageProperties", "BoundingBoxProperties",
                               "AudioProperties"),
        "options": ("", "NormalizationOptions", "ScoreCalibrationOptions",
                    "ScoreThresholdingOptions", "BertTokenizerOptions",
                    "SentencePieceTokenizerOptions", "RegexTokenizerOptions"),
    },
)  # fmt: skip
_AXIS_LABELS, _VALUE_LABELS = 2, 3
_COLORS = ("", "RGB ", "grey ")
_MOST_LABEL_BYTES = 1 << 24


class Metadata:
    """The metadata of a model; empty for a model without any."""

    def __init__(self, model: Model) -> None:
        self._model = model
        content = model.metadata.get(ENTRY)
        self._root = Buffer(content, SCHEMA).root("ModelMetadata") if content else None

    @property
    def about(self) -> dict[str, str]:
        """Texts about the whole model, by kind."""
        names = ("name", "description", "version", "author", "license")
        said = {n: getattr(self._root, n) for n in names} if self._root is not None else {}
        return {n: text for n, text in said.items() if text}

    def described(self, signature: Signature) -> dict[str, Described]:
        """Descriptions of inputs and outputs of a signature, by name."""
        tables = () if self._root is None else self._root.subgraph_metadata or ()
        if signature.subgraph >= len(tables):
            return {}
        table, graph = tables[signature.subgraph], self._model.subgraph(signature.subgraph)
        named: dict[str, Described] = {}
        for tensors, numbers, names in (
            (table.input_tensor_metadata, graph.inputs, signature.inputs),
            (table.output_tensor_metadata, graph.outputs, signature.outputs),
        ):
            of_number = dict(zip(numbers, tensors or (), strict=False))
            named |= {n: self._tensor(of_number[t]) for n, t in names.items() if t in of_number}
        return named

    def _tensor(self, t: Table) -> Described:
        texts = (t.name, _content(t.content), t.description)
        mean: Any = None
        std: Any = None
        for unit in t.process_units or ():
            options = unit.options
            if options is not None and options.table_name == "NormalizationOptions":
                mean, std = options.mean, options.std
        files = t.associated_files or ()
        return Described(
            "; ".join(text for text in texts if text),
            _floats(mean),
            _floats(std),
            self._labels(files, _AXIS_LABELS),
            self._labels(files, _VALUE_LABELS),
        )

    def _labels(self, files: Sequence[Table], kind: int) -> tuple[str, ...]:
        """The lines of the first file of a kind.  Files without a locale come first."""
        names = [f.name for f in sorted(files, key=lambda f: f.locale or "") if f.type == kind]
        text = self._file(names[0] or "") if names else b""
        return tuple(text.decode(errors="replace").splitlines())

    @cached_property
    def _archive(self) -> zipfile.ZipFile | None:
        try:
            return zipfile.ZipFile(ByteStream(memoryview(self._model.content)))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError):
            return None  # some tools rewrite a model without its archive

    def _file(self, name: str) -> bytes:
        """The start of an associated file; empty if it is missing or damaged."""
        try:
            if self._archive is not None:
                with self._archive.open(name) as f:
                    return f.read(_MOST_LABEL_BYTES)
        except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError,
                ValueError, OSError, EOFError):  # fmt: skip
            pass
        return b""


def _floats(values: Any) -> tuple[float, ...]:
    return () if values is None else tuple(map(float, values))


def _content(content: Table | None) -> str:
    """The kind of a tensor's content."""
    of = None if content is None else content.content_properties
    if of is None:
        return ""
    if of.table_name == "ImageProperties":
        size = of.default_size
        color = _COLORS[of.color_space] if 0 <= of.color_space < len(_COLORS) else ""
        return f"{color}image" + (f" of {size.width}x{size.height}" if size is not None else "")
    if of.table_name == "AudioProperties":
        return f"audio of {of.sample_rate} Hz, {of.channels} channels"
    return ""
