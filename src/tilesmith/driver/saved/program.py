"""Whole compiled programs in the cache on disk, so that a model compiled before needs no compiler.

A program is known by everything that determines it: the model's bytes, the shapes and decisions
asked for, the options, the target and the state of the tuning records.  It is kept as a `.tsm`
file without weights.  The packed weights are an entry of their own, known by their bytes: programs
that differ in code alone share them.  They are mapped as they are: nothing is packed, and processes
that run one model share the memory.  A program that depends on anything else (see
`Session.outside`) is not kept, nor one that would fill more than a `SHARE` of the cache.

Which operators of users a model contains is known once it was read.  So the key above leads to a
list of their uses, and the key of the program is made of it and of what these operators mean now.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.driver.request import Request
from tilesmith.driver.saved.identity import (
    Identified,
    Stamp,
    cache_of,
    identify,
    keeps_programs,
    stamp_of,
)
from tilesmith.runtime.native import zeroed_bytes
from tilesmith.runtime.program import Blob, Program
from tilesmith.runtime.threads import target_of, thread_count
from tilesmith.runtime.tsm import load_program, write_program
from tilesmith.support.cache import Cache, Room, cache_key, content_key
from tilesmith.support.errors import ModelError, TilesmithError
from tilesmith.support.options import Options, records_path

SHARE = 1 / 3
"""Most of the cache of programs that one program may take, as a share."""


def kernel_cache(options: Options) -> Cache | None:
    """The cache of compiled kernels, if it is to be used."""
    return cache_of(options, "kernels")


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """The place in the cache where the program of a model is kept.

    cache: the store.
    key: of the program in it.
    model: as the user gave it.
    stamp: of the model's file.
    """

    cache: Cache
    key: str
    model: Any
    stamp: Stamp

    @staticmethod
    def of(
        request: Request, identified: Identified | None = None, cache: Cache | None = None
    ) -> SavedProgram | None:
        """None if nothing is kept: for models that are neither a file nor bytes, without a cache,
        and if the passes are to be shown.  `identified` gives the model's identity, and `cache` is
        the cache of programs, if the caller has them.
        """
        model, options = request.model, request.options
        cache = cache_of(options, "programs") if cache is None else cache
        if cache is None or not keeps_programs(options) or request.weights:
            return None
        try:
            shown = _shown(request)
        except (TypeError, ValueError, AttributeError):
            return None  # the frontend says what is wrong
        target = target_of(options)
        identity = identify(model) if identified is None else identified()
        if identity is None:
            return None
        threads = f"threads={target.threads}"
        parts = ("program", identity.content, shown, options.key(), target.text, threads)
        key = cache_key(*parts, _records(options))
        return SavedProgram(cache, key, model, identity.stamp)

    def load(self) -> Program | None:
        """The program, if it was kept."""
        program = self._load(self.key)
        if program is not None:
            return program
        uses = self.cache.get(self._uses_key)
        if uses is None:
            return None
        try:
            return self._load(self._key_with(json.loads(uses)))
        except TilesmithError:
            return None  # the operators are others now; to compile says what is wrong, if anything

    @property
    def _uses_key(self) -> str:
        """Of the list of uses of operators of users."""
        return cache_key(self.key, "uses")

    def _key_with(self, uses: Sequence[str]) -> str:
        """The key of a program with these uses of operators of users."""
        from tilesmith.graph.custom import meanings_of_uses  # and with it a part of the compiler

        return cache_key(self.key, *uses, meanings_of_uses(uses))

    def _load(self, key: str) -> Program | None:
        path = self.cache.file(key)
        if path is None:
            return None
        entries = [key]

        def weights(key: str) -> Path | None:
            entries.append(key)
            return self.cache.file(key)  # used after the program: it is evicted after it

        try:
            return load_program(path, weights)
        except ModelError:
            for key in entries:
                self.cache.remove_damaged(key)
            return None

    def allocate(self, size: int) -> Blob:
        """Zeroed memory for the program's constants: a file of the cache where that is possible, so
        that `keep` need not copy them.
        """
        room = self.cache.room(size) if size <= SHARE * self.cache.max_bytes else None
        return zeroed_bytes(size) if room is None else np.frombuffer(room, np.uint8)

    def complete(self, constants: Blob) -> None:
        """Say that the memory that `allocate` gave holds what it shall."""
        room = _room_of(constants)
        if room is not None:
            room.complete()
            constants.flags.writeable = False

    def keep(self, program: Program, uses: Sequence[str] = ()) -> None:
        """Keep the program that was just compiled, unless the model's file changed meanwhile.

        uses: of operators of users in the model (`graph.custom.uses_of`).
        """
        if _bytes(program) > SHARE * self.cache.max_bytes:
            return
        try:
            unchanged = not self.stamp or stamp_of(self.model) == self.stamp
        except OSError:
            return
        if not unchanged:
            return
        room = _room_of(program.constants)
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
    """Bytes of weights and code, also of the parts."""
    own = program.constants.nbytes + sum(map(len, program.objects.values()))
    return own + sum(map(_bytes, program.parts))


def _room_of(blob: Blob) -> Room | None:
    """The room in a cache that a blob of constants lies in."""
    owner = blob.base.obj if isinstance(blob.base, memoryview) else blob.base
    return owner if isinstance(owner, Room) else None


def _records(options: Options) -> str:
    """The state of the tuning records, and what they are asked; empty where there are none."""
    path = records_path(options)
    if not options.use_records or not os.path.isfile(path):
        return ""
    state: list[Stamp] = []
    for file in (path, path.with_name(path.name + "-wal")):  # and SQLite's log beside it
        try:
            stamp = stamp_of(file)
        except OSError:
            continue
        if stamp[2]:  # an open database has an empty log
            state.append(stamp)
    return repr((state, options.nearest, thread_count(options.threads)))


def _shown(r: Request) -> str:
    """Text of a request beside the model and the options, for the key.  Raises TypeError,
    ValueError or AttributeError for what the frontend will refuse.
    """
    arrays = {k: np.ascontiguousarray(v) for k, v in (r.values or {}).items()}
    said = {
        "shapes": r.shapes, "dynamic": r.dynamic, "expected": r.expected, "sizes": r.sizes,
        "in_place": r.in_place, "optional": [*r.optional],
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
