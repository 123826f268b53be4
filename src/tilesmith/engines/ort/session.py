"""Sessions of ONNX Runtime that use the execution provider."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from tilesmith.runtime import native
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import UsageError

from .provider import NAME, Answers
from .spinning import without_spinning

_LIBRARY = "tilesmith"
"""The name under which the library is registered."""

_ANSWERS = Answers()
"""The only `Answers` of the process.  The library calls `begin` once, and keeps this object even if
ONNX Runtime refuses the registration.
"""


def register() -> list[Any]:
    """Register the execution provider with ONNX Runtime, once for the process.

    Returns its devices (`onnxruntime.OrtEpDevice`), of which there is one, the CPU:

        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(ts.ort.register(), {"threads": "2"})
        session = onnxruntime.InferenceSession("model.onnx", options)

    Raises UsageError if this ONNX Runtime is older than 1.24.
    """
    if not _devices():
        native.set_provider(_ANSWERS)
        try:
            onnxruntime.register_execution_provider_library(_LIBRARY, native.library_path())
        except (AttributeError, RuntimeError) as e:  # AttributeError: older than 1.22
            raise UsageError(f"the execution provider can't be registered: {e}") from e
    return _devices()


def _devices() -> list[Any]:
    return [d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME]


class InferenceSession(onnxruntime.InferenceSession):
    """A session of ONNX Runtime whose nodes Tilesmith computes where it can.

    Arguments and methods are those of `onnxruntime.InferenceSession`.

    sess_options: options to which the provider is added, unless they already have providers.  If
        `intra_op_num_threads` is set, the provider has that many threads.  The session's own
        threads do not spin unless the options say so: spinning takes cores from the provider.
    providers: as in ONNX Runtime; "TilesmithExecutionProvider" is one more name.  The default is
        that provider, and ONNX Runtime's CPU provider for the remaining nodes.

    Raises UsageError if ONNX Runtime is older than 1.24, and ONNX Runtime's errors.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        options = _options(sess_options)
        if not options.has_providers():
            _add(options, providers, provider_options)
        without_spinning(options)
        super().__init__(path_or_bytes, options, **{"enable_fallback": 0, **kwargs})


class _Installed(InferenceSession):
    """The class of sessions that other packages make after `install`."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        named = {p[0] if isinstance(p, tuple) and p else p for p in providers or ()}
        if named <= {"CPUExecutionProvider"}:
            providers = provider_options = None
        super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)


def install() -> None:
    """Let sessions that other packages make from now on use the execution provider.

        import tilesmith as ts
        ts.ort.install()

    `onnxruntime.InferenceSession` is replaced.  Sessions that name no provider, or only the CPU's,
    get ours; others stay as they are.  Call it before packages are imported that use
    `from onnxruntime import InferenceSession`.

    Raises UsageError if ONNX Runtime is older than 1.24.
    """
    register()
    onnxruntime.InferenceSession = _Installed


def _options(sess_options: Any) -> Any:
    """The caller's options, or new ones.  Raises UsageError for another object."""
    if sess_options is None:
        return onnxruntime.SessionOptions()
    if not isinstance(sess_options, onnxruntime.SessionOptions):
        raise UsageError(
            f"sess_options: expected onnxruntime.SessionOptions, found {shown(sess_options)}"
        )
    return sess_options


def _add(
    options: Any, providers: Sequence[Any] | None, provider_options: Sequence[dict[Any, Any]] | None
) -> None:
    """Add providers, given as names or pairs of a name and options, to a session's options.

    Raises UsageError for providers of another form, and for those that are not there.
    """
    for name, texts in _named(providers, provider_options):
        if name == NAME:
            threads = options.intra_op_num_threads
            own = {"threads": str(threads)} if threads > 0 else {}
            options.add_provider_for_devices(register(), {**own, **texts})
        elif name != "CPUExecutionProvider":  # every session has it as the last one
            options.add_provider(name, texts)


def _named(
    providers: Sequence[Any] | None, provider_options: Sequence[dict[Any, Any]] | None
) -> list[tuple[str, dict[str, str]]]:
    """The names of providers with their options as texts."""
    stated = [NAME] if providers is None else providers
    if not isinstance(stated, (list, tuple)):
        raise UsageError(f"providers: expected a list of names, found {shown(providers)}")
    pairs: list[Any] = [p if isinstance(p, tuple) and len(p) == 2 else (p, {}) for p in stated]
    if provider_options is not None:
        if not isinstance(provider_options, (list, tuple)) or len(provider_options) != len(pairs):
            raise UsageError(
                f"provider_options: expected a dict for each of {len(pairs)} providers, found "
                f"{shown(provider_options)}"
            )
        pairs = [(name, o) for (name, _), o in zip(pairs, provider_options, strict=True)]
    known = [NAME, *onnxruntime.get_available_providers()]
    for name, own in pairs:
        if not isinstance(name, str) or name not in known:
            raise UsageError(
                f"providers: expected names of {', '.join(known)}, found {shown(name)}"
            )
        if not isinstance(own, dict):
            raise UsageError(f"options of {name}: expected a dict, found {shown(own)}")
    return [(name, {str(k): str(v) for k, v in own.items()}) for name, own in pairs]


@checked(UsageError)
def compile_context(
    model: str | os.PathLike[str] | bytes,
    path: str | Path,
    sess_options: Any = None,
    *,
    embed: bool = False,
) -> Path:
    """Write a model in which compiled nodes are context nodes: a session of it compiles nothing.

    model: a path to an ONNX file, or its bytes.
    path: path of the new model.
    sess_options: options of the session, as for `InferenceSession`.
    embed: whether the compiled code is inside the model; otherwise it is in `.tsm` files beside it.

    The code runs on processors like this one, or of the level in the option "target".  Returns the
    path.  Raises UsageError if ONNX Runtime is older than 1.24, and ONNX Runtime's errors.
    """
    options = _options(sess_options)
    if not options.has_providers():
        _add(options, None, None)
    source = model if isinstance(model, bytes) else os.fspath(model)
    compiler = onnxruntime.ModelCompiler(options, source, embed_compiled_data_into_model=embed)
    compiler.compile_to_file(str(path))
    return Path(path)
