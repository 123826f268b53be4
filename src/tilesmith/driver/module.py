"""Compiled modules of PyTorch, which are called like the original module."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesmith.runtime.arrays import is_torch, to_numpy, to_torch
from tilesmith.runtime.executable import Executable, executable_of
from tilesmith.runtime.overlaps import shared
from tilesmith.runtime.program import Program
from tilesmith.runtime.runner import Runner, Sizes
from tilesmith.runtime.running import runner_of_sizes
from tilesmith.runtime.weights import Recipe, Weights, arrays_of
from tilesmith.support.arguments import checked
from tilesmith.support.errors import ModelError, UsageError

if TYPE_CHECKING:
    from tilesmith.frontend.aten.exported import Exported, Signature, Structure
    from tilesmith.runtime.profile import Profile


def _is_same(argument: Any, constant: Any) -> bool:
    """Whether an argument that is not a tensor equals the constant.  2.0 and True differ from 2 and
    1, -0.0 differs from 0.0, and NaN equals NaN.
    """
    if isinstance(argument, np.generic):
        argument = argument.item()
    if argument is constant:
        return True
    if type(argument) is not type(constant):
        return False
    return repr(argument) == repr(constant) if isinstance(argument, float) else argument == constant


class CompiledModule(Executable):
    """A compiled module; `module(*args, **kwargs)` is called like the original and gives results of
    the same structure.

    Tensors may be torch tensors or NumPy arrays; the results are torch tensors if one of them is a
    torch tensor or if there are no tensors, else NumPy arrays.  Only inputs that are not in
    row-major order are copied.  Gradients are not recorded.  A call writes the same buffers and
    arguments as the module does.  Parameters are constants, with the values at the last compilation
    or load.

    `inputs`, `outputs`, `run` and `save` treat it as an executable of tensors in order.
    """

    def __init__(self, runner: Runner, exported: Exported, recipe: Recipe | None = None) -> None:
        """Wrap the runner of the program that was compiled from `exported`."""
        self.recipe = recipe
        self._start(runner)
        self._signature, self._structure = exported.signature, exported.structure
        self._state = {name: exported.weights[name] for name in exported.state}
        self._buffers = [_writable(exported.weights[name]) for name in self._signature.written]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.  Raises ModelError for arguments that differ from the example inputs in
        structure, in constants, or in the types and fixed sizes of tensors; UsageError if an
        argument that the module writes shares memory with another one.
        """
        leaves = self._structure.leaves(args, kwargs)
        if self._signature.new:
            self._check_apart(leaves)
        outputs = self._in_order((*self._tensors(leaves), *self._buffers))
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        takes_torch = any(map(is_torch, leaves)) or any(isinstance(a, np.ndarray) for a in leaves)
        if not takes_torch and "torch" in sys.modules:
            results = tuple(r if is_torch(r) else to_torch(r) for r in results)
        return self._structure.restored(self._restored(results, leaves))

    def _tensors(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves that are inputs, with numbers converted to arrays."""
        tensors = []
        for i, (leaf, constant) in enumerate(zip(leaves, self._signature.arguments, strict=True)):
            if constant is None:
                tensors.append(np.asarray(leaf) if isinstance(leaf, (int, float)) else leaf)
            elif not _is_same(leaf, constant[0]):
                raise ModelError(
                    f"argument number {i + 1} is {leaf!r}; the module was compiled for "
                    f"{constant[0]!r}, which is a constant of it; compile it again for another"
                )
        return tensors

    def _check_apart(self, leaves: Sequence[Any]) -> None:
        """Raises UsageError if an argument or a buffer that is written shares memory with another:
        the program reads all of them before it writes any.
        """
        buffers, new = self._signature.written, self._signature.new
        count = len(leaves)
        written = [count + buffers.index(t) if isinstance(t, str) else t for t in new]
        arrays = [*leaves, *self._buffers]
        pair = shared(arrays, written, allowed=lambda i, j: min(i, j) >= count)
        if pair is not None:
            first, second = (
                f"argument number {i + 1}" if i < count else f"buffer {buffers[i - count]!r}"
                for i in pair
            )
            raise UsageError(
                f"{first} is written by the module and shares memory with {second}; expected "
                "memory of its own: give a copy of one of them"
            )

    def _restored(self, results: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        """The leaves of the module's results.  Values that the module writes are written here."""
        made, number = [], 0
        for kind in self._signature.results:
            if isinstance(kind, list):
                made.append(kind[0])
                continue
            made.append(results[number].item() if kind == "size" else results[number])
            number += 1
        buffers = dict(zip(self._signature.written, self._buffers, strict=True))
        for target, new in zip(self._signature.new, results[number:], strict=True):
            place = buffers[target] if isinstance(target, str) else leaves[target]
            _write(place, new)
        return made

    @checked(ModelError)
    def load_weights(self, weights: Weights) -> None:
        arrays = arrays_of(weights)
        super().load_weights(arrays)
        tensors = weights if isinstance(weights, Mapping) else arrays
        self._state |= {name: w for name, w in tensors.items() if name in self._state}
        for name, buffer in zip(self._signature.written, self._buffers, strict=True):
            if name in arrays:
                _write(buffer, arrays[name])

    def state_dict(self) -> dict[str, Any]:
        """The parameters and persistent buffers by the module's names: the module's own tensors,
        the arrays of an archive, or weights that were loaded since.  A restored or copied module
        has only the buffers that it writes, since its weights are packed.
        """
        written = zip(self._signature.written, self._buffers, strict=True)
        return {**self._state, **{name: b for name, b in written if name in self._state}}

    @checked(ModelError)
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load weights like a module's `load_state_dict`.

        strict: whether every name of `state_dict` must be in `state`.

        Raises ModelError for weights that do not fit, with `strict` also for missing names.
        """
        missing = [name for name in self._state if name not in state] if strict else []
        if missing:
            raise ModelError(f"the state has no {', '.join(map(repr, missing))}")
        self.load_weights(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        """A copy with its own buffers; code and packed weights are shared."""
        made = _restored(
            [(sizes, runner.program) for sizes, runner in self.runner.variants()],
            self.threads,
            self._signature,
            self._structure,
            copy.deepcopy(self._buffers, memo),
        )
        made.recipe, made._state = copy.copy(self.recipe), dict(self._state)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """The contents of a pickle: the contents of `.tsm` files, the nesting of arguments and
        results, and the buffers that calls write.
        """
        programs = [(sizes, runner.program) for sizes, runner in self.runner.variants()]
        return _restored, (
            programs, self.threads, self._signature, self._structure, self._buffers,
        )  # fmt: skip

    def in_order(self) -> Executable:
        """The same program, called with tensors in the order of `inputs`."""
        return executable_of(self.runner.again())

    @checked(UsageError)
    def profile(self, *args: Any, repeats: int = 10) -> Profile:
        leaves = self._structure.leaves(args, {})
        return super().profile(*self._tensors(leaves), *self._buffers, repeats=repeats)

    def __repr__(self) -> str:
        return f"<compiled module: {super().__repr__()}>"


def _restored(
    programs: Sequence[tuple[Sizes, Program]],
    threads: int,
    signature: Signature,
    structure: Structure,
    buffers: list[Any],
) -> CompiledModule:
    """A compiled module from its parts."""
    made = CompiledModule.__new__(CompiledModule)
    made._start(runner_of_sizes(programs, threads))
    made._signature, made._structure, made._buffers = signature, structure, buffers
    made._state = dict(zip(signature.written, buffers, strict=True))
    return made


def _write(place: Any, new: Any) -> None:
    """Write a result into a tensor or array of the caller."""
    if is_torch(place):
        with sys.modules["torch"].no_grad():
            place.copy_(new if is_torch(new) else to_torch(new))
    else:
        place[...] = to_numpy(new, "a result")


def _writable(buffer: Any) -> Any:
    """A buffer that calls may write to: a module's own tensor, or a copy of an archive's array."""
    return buffer if is_torch(buffer) else np.array(buffer)
