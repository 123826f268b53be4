"""Threads of ONNX Runtime's sessions beside Tilesmith's."""

from __future__ import annotations

from typing import Any

NO_SPINNING = "session.intra_op.allow_spinning", "0"


def without_spinning(options: Any) -> None:
    """Disable spinning of a session's threads, unless its `onnxruntime.SessionOptions` set it.

    Spinning threads would take cores from Tilesmith's threads.
    """
    try:
        options.get_session_config_entry(NO_SPINNING[0])
    except RuntimeError:  # the options have no such entry
        options.add_session_config_entry(*NO_SPINNING)
