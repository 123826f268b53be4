"""Whole compiled programs in the cache on disk, so that a model compiled before needs no compiler.

The key of a program includes everything that determines it: the model's bytes, the requested shapes
and decisions, the options, the target and the state of the tuning records.  The program is kept as
a `.tsm` file without weights.  The packed weights are a separate entry, whose key is a hash of
their bytes, so programs that differ only in code share them.  The weights are mapped into memory
without packing, and processes that run the same model share the memory.  Two kinds of programs are
not kept: programs that depend on anything outside the key (see `Session.outside`), and programs
that would fill more than the fraction `SHARE` of the cache.

The users' operators in a model are known only after the model is read.  So if a model has such
operators, the key above leads to a list of their uses.  The program's own key is made of the key
above, this list and the current definitions of these operators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.driver.places import target_of
from tilesmith.driver.request import Request
from tilesmith.driver.saved.constants import SHARE, allocated, room_of
from tilesmith.driver.saved.identity import (
    Identified,
    Stamp,
    cache_of,
    identify,
    keeps_programs,
    stamp_of,
)
from tilesmith.runtime.program import Blob, Program
from tilesmith.runtime.threads import thread_count
from tilesmith.runtime.tsm import load_program, write_program
from tilesmith.support.cache import Cache, cache_key, content_key
from tilesmith.support.errors import ModelError, TilesmithError
from tilesmith.support.options import Options, records_path


def kernel_cache(options: Options) -> Cache | None:
    """The cache of compiled kernels, if it is to be used."""
    return cache_of(options, "kernels")


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """The place in the cache where the program of a model is kept.

    cache: the store.
    key: key of the program in it.
    model: the model as the user gave it.
    stamp: state of the model's file (see `Stamp`).
    """

    cache: Cache
    key: str
    model: Any
    stamp: Stamp

    @staticmethod
    def of(
        request: Request, identified: Identified | None = None, cache: Cache | None = None
    ) -> SavedProgram | None:
        """The place of a program in the cache; None if it is not kept.  A program is not kept if
        its model is neither a file nor bytes, if there is no cache, or if passes are to be shown.

        identified: returns the model's identity (default: it is computed here).
        cache: the cache of programs (default: by the request's options).
        """
        model, options = request.model, request.options
        cache = cache_of(options, "programs") if cache is None else cache
        if cache is None or not keeps_programs(options) or request.weights:
            return None
        try:
            shown = _shown(request)
        except (TypeError, ValueError, AttributeError):
            return None  # the frontend reports the error
        target = target_of(options)
        identity = identify(model) if identified is None else identified()
        if identity is None:
            return None
        threads = f"threads={target.threads}"
        parts = ("program", identity.content, shown, options.key(), target.text, threads)
        key = cache_key(*parts, _records(options))
        return SavedProgram(cache, key, model, identity.stamp)

    def load(self) -> Program | None:
        """The program, if the cache has it."""
        program = self._load(self.key)
        if program is not None:
            return program
        uses = self.cache.get(self._uses_key)
        if uses is None:
            return None
        try:
            return self._load(self._key_with(json.loads(uses)))
        except TilesmithError:
            return None  # the operators have changed; the compiler reports any error

    @property
    def _uses_key(self) -> str:
        """The key under which the uses of users' operators in the model are listed."""
        return cache_key(self.key, "uses")

    def _key_with(self, uses: Sequence[str]) -> str:
        """The key of a program with these uses of users' operators."""
        from tilesmith.graph.custom import meanings_of_uses  # this imports a part of the compiler

        return cache_key(self.key, *uses, meanings_of_uses(uses))

    def _load(self, key: str) -> Program | None:
        path = self.cache.file(key)
        if path is None:
            return None
        entries = [key]

        def weights(key: str) -> Path | None:
            entries.append(key)
            # The weights are read after the program, so that the cache evicts the program first.
            return self.cache.file(key)

        try:
            return load_program(path, weights)
        except ModelError:
            for key in entries:
                self.cache.remove_damaged(key)
            return None

    def allocate(self, size: int) -> Blob:
        """Memory for the program's constants (see `constants.allocated`)."""
        return allocated(self.cache, size)

    def keep(self, program: Program, uses: Sequence[str] = ()) -> None:
        """Keep the program that was just compiled, unless the model's file changed meanwhile.

        uses: uses of users' operators in the model (`graph.custom.uses_of`).
        """
        if _bytes(program) > SHARE * self.cache.max_bytes:
            return
        try:
            unchanged = not self.stamp or stamp_of(self.model) == self.stamp
        except OSError:
            return
        if not unchanged:
            return
        room = room_of(program.constants)
        known = room.key if room is not None else None
        weights = known or content_key(program.constants.data)
        if self.cache.file(weights) is None:
            if room is not None:
                self.cache.put_room(room, weights)
            else:
                self.cache.put_file(weights, lambda f: f.write(program.constants.data))
        key = self._key_with(uses) if uses else self.key
        if uses:
            self.cache.put(self._uses_key, json.dumps(list(uses)).encode())
        self.cache.put_file(key, lambda f: write_program(program, f, weights))
        self.cache.file(weights)


def _bytes(program: Program) -> int:
    """Bytes of weights and code, including those of the parts."""
    own = program.constants.nbytes + sum(map(len, program.objects.values()))
    return own + sum(map(_bytes, program.parts))


def _records(options: Options) -> str:
    """Text of the state of the tuning records and the options for looking them up; empty if no
    records are used.
    """
    path = records_path(options)
    if not options.use_records or not os.path.isfile(path):
        return ""
    state: list[Stamp] = []
    # The database and SQLite's write-ahead log beside it.
    for file in (path, path.with_name(path.name + "-wal")):
        try:
            stamp = stamp_of(file)
        except OSError:
            continue
        if stamp[2]:  # opening the database creates an empty log, which changes nothing
            state.append(stamp)
    return repr((state, options.nearest, thread_count(options.threads)))


def _shown(r: Request) -> str:
    """Text of a request, without its model and options, for the key.  Raises TypeError, ValueError
    or AttributeError for values that the frontend will refuse.
    """
    arrays = {k: np.ascontiguousarray(v) for k, v in (r.values or {}).items()}
    said = {
        "shapes": r.shapes, "dynamic": r.dynamic, "expected": r.expected, "sizes": r.sizes,
        "in_place": r.in_place, "optional": [*r.optional], "signature": r.signature,
        "values": {k: (str(a.dtype), a.shape, content_key(memoryview(a.tobytes())))
                   for k, a in arrays.items()},
        "pins": r.pins,
        "forbid": {k: sorted(map(repr, banned)) for k, banned in (r.forbid or {}).items()},
        "fallback": r.options.fallback,
    }  # fmt: skip
    try:
        return json.dumps({k: v for k, v in said.items() if v}, sort_keys=True)
    except RecursionError:
        raise ValueError("too deep") from None
