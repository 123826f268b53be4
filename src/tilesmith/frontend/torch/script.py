"""Import of TorchScript.  PyTorch's converter turns its modules into programs of `torch.export`.
PyTorch no longer develops TorchScript.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tilesmith.frontend.torch.loops import loops_converted
from tilesmith.frontend.torch.storages import check_storages
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError


def loaded(model: Any) -> Any:
    """The `torch.jit.ScriptModule` in a file of `torch.jit.save`, or in its bytes.

    Raises UsageError where PyTorch is missing, ModelError where it can't load the file.
    """
    try:
        torch = import_module("torch")
    except ImportError:
        raise UsageError(
            "TorchScript is loaded by PyTorch, which is not installed; install tilesmith[torch]"
        ) from None
    is_path = isinstance(model, (str, os.PathLike))
    check_storages(os.fspath(model) if is_path else model, _name(model))
    try:
        return torch.jit.load(os.fspath(model) if is_path else io.BytesIO(model), "cpu")
    except Exception as e:  # PyTorch may raise anything for a damaged file
        raise ModelError(f"torch.jit.load can't load {_name(model)}: {_line(e)}") from e


def as_module(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """A traced or scripted module, converted to a module that can be exported, and all arguments as
    positional arguments.

    Raises UsageError for arguments that the module does not take, UnsupportedError for operators
    that the converter lacks.
    """
    torch = import_module("torch")
    converter = import_module("torch._export.converter")
    names = argument_names(model)
    unknown = [name for name in kwargs if name not in names[len(args) :]]
    if unknown or len(args) > len(names):
        raise UsageError(
            f"example_inputs: the script takes {', '.join(names)}; found {len(args)} positional "
            f"arguments and {', '.join(map(repr, kwargs)) or 'no others'}"
        )
    arguments = (*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs))
    quiet = open(os.devnull, "w")  # noqa: SIM115  (the converter prints)
    try:
        with quiet, contextlib.redirect_stdout(quiet), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            with loops_converted():
                return converter.TS2EPConverter(model, arguments).convert().module(), arguments
    except Exception as e:  # a converter may raise anything
        raise UnsupportedError(
            f"PyTorch can't convert this TorchScript: {_line(e)}; trace it, or compile the "
            "torch.nn.Module that it was made of"
        ) from e


def argument_names(model: Any) -> list[str]:
    """The names of the arguments of a module or function of TorchScript."""
    torch = import_module("torch")
    is_module = isinstance(model, torch.jit.ScriptModule)
    names = [a.name for a in (model.forward if is_module else model).schema.arguments]
    return names[1:] if is_module else names


def _name(model: Any) -> str:
    return repr(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else "the given bytes"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
