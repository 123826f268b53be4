"""Files of arrays."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from .errors import UsageError


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file, or of an `.npy` file under the name "".

    Raises UsageError if it can't be read.  Never unpickles.
    """
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"": found}
        with found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise UsageError(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as e:
        raise UsageError(
            f"{str(path)!r} can't be read as an .npz or .npy file of plain arrays: {e}"
        ) from None
    except MemoryError:
        raise UsageError(f"{str(path)!r} holds an array too large for this machine") from None
