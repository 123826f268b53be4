"""From a model to an executable.

The compiler is loaded only if a program must be compiled, not for one from the cache.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from tilesmith.ir.sizes import ExpectedSizes
from tilesmith.runtime.program import Program
from tilesmith.runtime.remote.address import is_address
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import DeviceError, ModelError, UsageError
from tilesmith.support.foreign import is_archive, is_exported_program, is_module, is_script
from tilesmith.support.garbage import rarely_collected
from tilesmith.support.logs import logger
from tilesmith.support.options import Accuracy, Fallback, Options
from tilesmith.support.precision import AUTO

from .recipe import Recipe
from .request import Request
from .saved.identity import cache_of, identifying

_log = logger("cache")

if TYPE_CHECKING:
    from tilesmith.frontend.aten.exported import Exported
    from tilesmith.runtime.executable import Executable
    from tilesmith.runtime.program import Program


@checked(UsageError)
def compile(
    model: Any,
    example_inputs: Any = None,
    target: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    options: Options | None = None,
    pins: Mapping[str, Any] | None = None,
    forbid: Mapping[str, Collection[Any]] | None = None,
    accuracy: Accuracy | None = None,
    precision: str | Mapping[str, str] | None = None,
    samples: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    dynamic: Mapping[Any, Any] | Sequence[Any] | Literal["auto"] | bool | None = None,
    expected: ExpectedSizes | None = None,
    specialise: Mapping[str, int] | Sequence[Mapping[str, int]] | Literal["auto"] | None = None,
    fallback: Fallback | None = None,
    in_place: Mapping[str, str] | None = None,
    memory_limit: int | None = None,
    time_limit: float | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    optional: Sequence[str] = (),
    signature: str | None = None,
) -> Executable:
    """Compile a model to native code.

    model: a path to an ONNX file, its bytes, an `onnx.ModelProto`, a `Graph`; or a model of
        PyTorch, which becomes a `CompiledModule` (docs/pytorch.md): a `torch.nn.Module`, a
        `torch.export.ExportedProgram` or an archive of it (a path to a `.pt2` file, or its bytes),
        TorchScript or a file of it.
    example_inputs: arguments with which a `torch.nn.Module` or TorchScript is traced: a tuple of
        positional arguments, a mapping of keyword arguments, or one tensor.
    example_kwargs: keyword arguments of the trace beside positional `example_inputs`.
    target: "native" or a named level such as "x86-64-v3".
    threads: number of threads of the executable.
    shapes: fixed shapes of inputs whose dimensions the model leaves open, by the input's name or
        the dimension's.  Dimensions that stay open may have another size in each run.
    dynamic: sizes that open dimensions may have: the largest, or the smallest and the largest, by
        the dimension's name (`{"batch": (1, 64)}`) or by input and axis (`{"x": {0: 64}}`);
        default: 1 to 2^31 - 1.  For a `torch.nn.Module` it also determines which dimensions are
        open: by argument and axis, as here or as for `torch.export`; "auto": as many as possible.
    expected: the sizes for which the program is made fast, by the same names.  Results are right
        for all sizes.
    specialise: sizes by dimension, such as `{"batch": 8}`, or a list of such mappings.  For each, a
        faster program is compiled beside the one for all sizes, and a call uses the program that
        fits.  "auto" compiles programs in the background, for the sizes of many calls.
    options: all other options.
    pins: by name, values for choices of the model and knobs of its kernels.  A value is used
        wherever it is among the options of the choice or knob.
    forbid: by name, values that these choices and knobs must not get.  Records that violate `pins`
        or `forbid` are not used (see docs/tuning.md for the names).
    values: by name, inputs that get a fixed value, such as those that shapes depend on.  The
        executable has no such inputs.
    fallback: "warn" runs operators without native code on the host, by ONNX's reference evaluator,
        and warns once; "error" refuses them (docs/host.md).  If a device can't run an operator,
        "warn" runs it on the CPU, and "error" refuses it.  "cpu" is like "warn", and the CPU also
        runs the model, with a warning, if a device is missing, refuses the model or fails
        (docs/gpu.md).
    optional: initialisers of an ONNX model, by name, that become inputs.  They follow the model's
        own inputs, in this order.  A call may leave them out: their values are the defaults.
    signature: the name of the function to compile, for a model that has several functions
        (default: the main function).  `Executable.signatures` lists the functions.
    in_place: by name, outputs that live in the memory of an input, such as caches
        (`{"present_key": "past_key"}`).  A call writes them there and returns the input's array.
    memory_limit: upper bound on the bytes of a device's memory, or on a CPU of the intermediate
        values that are alive at one time.  Values are computed again where that costs the least.
        A model that needs more all the same is refused before anything is allocated (docs/gpu.md).
    time_limit: seconds that a call may take on a device.  A longer call raises DeviceError.
    accuracy: "strict" fixes every bit of each kernel's results (docs/accuracy.md).
    precision: "bf16" or "f16": products and convolutions of f32 with constant weights read operands
        of this type where that is faster, and add in f32.  A mapping of patterns gives types by
        node name (`{"head/*": "f32", "*": "bf16"}`); the first pattern that matches decides.
        "auto" chooses the fastest types whose error on `samples` stays inside the accuracy policy;
        the program's metadata and `tilesmith explain` show the choice for each product.
    samples: inputs by name, on which "auto" measures (default: random ones).

    Raises ModelError, UnsupportedError or UsageError, also for a name or a value that the model
    does not have; DeviceError if a device is missing or has not enough memory.
    """
    return compiled(Request.of(**locals()))


@rarely_collected()
def compiled(request: Request) -> Executable:
    """The executable of a request.  Raises as `compile` does."""
    options = request.options
    options.show_logs()
    request, exported = of_frontend(request, options)
    try:
        return _made(request, exported)
    except DeviceError as e:
        if options.fallback != "cpu":
            raise
        from tilesmith.runtime.guarded_runner import log_fallback

        log_fallback(options.target, e)
        return _made(request.on_cpu(), exported)


def _made(request: Request, exported: Exported | None) -> Executable:
    """The executable of a request whose model a frontend reads.

    exported: the exported PyTorch program of the model, if it has one.
    """
    options, decisions = request.options, None
    is_remote = is_address(options.target)
    if is_remote:
        from .places import at_place

        options = at_place(options)
        request = replace(request, options=options)
    elif options.target != "native":
        _check_runs_here(options)
    if options.precision == AUTO:
        from .automatic import decided

        request, decisions = decided(request)
    elif request.samples is not None:
        raise UsageError(f"samples are for precision='auto', not {options.precision!r}")

    recipe = Recipe(request)

    def of_sizes(sizes: Mapping[str, int]) -> Program:
        return program_of(replace(recipe.request, sizes=dict(sizes)))

    program = program_of(request)
    from tilesmith.runtime.executable import executable_of
    from tilesmith.runtime.limits import Limits
    from tilesmith.runtime.running import runner_of

    limits = Limits.of(options)
    limits.check(program)
    if decisions is not None:
        told = {**program.metadata, "precision": decisions.to_json()}
        program = replace(program, metadata=told)
    if program.needs_callbacks:
        warn_of_fallback(program)
    if program.parts:
        warn_of_cpu(program)
    if "left" in program.metadata:
        warn_of_left(program)
    specialise = request.specialise
    if specialise is None or (specialise == "auto" and not program.symbols):
        fixed, background = [], None
    else:
        if isinstance(specialise, str) and specialise != "auto":
            raise UsageError(
                "specialise: expected sizes by name, a list of such, or 'auto', found "
                f"{shown(specialise)}"
            )
        wanted = [specialise] if isinstance(specialise, Mapping) else specialise
        fixed = [] if wanted == "auto" else [(s, of_sizes(s)) for s in wanted]
        background = of_sizes if wanted == "auto" else None
    if program.target.device is not None and (exported is not None or fixed or background):
        raise UsageError(
            f"target {program.target.name!r} runs models of ONNX with fixed shapes; found a module "
            "of PyTorch, or specialise="
        )
    if is_remote:
        from .places import check_alone, placed

        check_alone(options, bool(fixed) or background is not None, "specialise")
        check_alone(options, exported is not None, "a module of PyTorch")
        made = placed(program, options)
        made.recipe = recipe
        return made
    if fixed or background is not None:
        from tilesmith.runtime.sized_runner import SizedRunner

        runner = SizedRunner(program, options.threads, fixed, background)
    else:
        answers = program.target.device is not None and options.fallback == "cpu"
        stand_in = (lambda: _made(recipe.request.on_cpu(), None)) if answers else None
        runner = runner_of(program, options.threads, limits, stand_in)
    if exported is None:
        return executable_of(runner, recipe)
    from .module import CompiledModule

    return CompiledModule(runner, exported, recipe)


def _check_runs_here(options: Options) -> None:
    """Raises UsageError before compiling for a target whose code this machine can't run."""
    from tilesmith.codegen.targets import host, missing_features

    from .places import target_of

    target = target_of(options)
    if missing := missing_features(host(), target):
        raise UsageError(
            f"target {options.target!r} is not this machine, which lacks {', '.join(missing)}, and "
            "an executable runs where it is compiled: compile the model there, or write a library "
            f"for it here (tilesmith export MODEL --target {options.target}; tilesmith.export)"
        )


def of_frontend(
    request: Request, options: Options | None = None
) -> tuple[Request, Exported | None]:
    """A request whose model a frontend can read, and for a PyTorch model its exported program.
    Raises UsageError if another kind of model has example inputs.

    options: determine the cache for PyTorch's decompositions of calls in an archive.  Without
        options, the decompositions are not cached.
    """
    model, dynamic = request.model, request.dynamic
    example_inputs, example_kwargs = request.example_inputs, request.example_kwargs
    request = replace(request, example_inputs=None, example_kwargs=None)
    examples_given = [
        name
        for name, examples in (("inputs", example_inputs), ("kwargs", example_kwargs))
        if examples is not None
    ]
    if isinstance(model, os.PathLike):
        try:
            os.fspath(model)
        except TypeError:  # __fspath__ returned no text
            raise ModelError(f"expected a model's path, found {shown(model)}") from None
    if is_archive(model) and examples_given:
        from tilesmith.frontend.torch.script import loaded

        model = loaded(model)
    if is_script(model) or is_module(model) or is_exported_program(model):
        from tilesmith.frontend.torch.capture import captured
        from tilesmith.frontend.torch.exported import exported as exported_of

        # An exported program itself determines its open dimensions.
        dynamic_of, dynamic = (None, dynamic) if is_exported_program(model) else (dynamic, None)
        model = captured(model, example_inputs, dynamic_of, example_kwargs)
        return replace(request, model=model, dynamic=dynamic), exported_of(model)
    if examples_given:
        raise UsageError(
            f"example_{examples_given[0]} are for a torch.nn.Module; the model is a "
            f"{type(model).__name__}"
        )
    if is_archive(model):
        from tilesmith.frontend.archive import ARCHIVE
        from tilesmith.frontend.archive.reader import exported as exported_of
        from tilesmith.frontend.load import recognised

        frontend, source = recognised(model)
        if frontend is ARCHIVE:
            cache = None if options is None else cache_of(options, "kernels")
            return request, exported_of(source, cache)
    return request, None


def program_of(request: Request) -> Program:
    """The program of a model, from the cache or compiled.  Raises as `compile` does."""
    model, options = request.model, request.options
    cache = cache_of(options, "programs")
    with identifying(model, options, cache) as identified:
        # Import NumPy and LLVM while threads hash the model: each takes a tenth of a second.
        import_module("tilesmith.runtime.executable")

        from .saved.program import SavedProgram

        saved = SavedProgram.of(request, identified, cache)
    program = saved.load() if saved is not None else None
    if program is not None:
        _log.info("the whole program was in the cache: nothing is compiled")
    else:
        from .workers import workers_for

        with workers_for(model, options) as workers:
            # Importing the compiler takes half a second, which only a new model needs.
            from .compiler import compile_model

            program = compile_model(request, saved, workers)
    return program


@checked(UsageError)
def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    threads: int | None = None,
    require_signature: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    time_limit: float | None = None,
) -> Executable:
    """The executable in a `.tsm` file, or in the bytes of one.

    memory_limit, time_limit: as for `compile`.

    require_signature: public key (a PEM file) with which the file must be signed.

    Raises ModelError if the file is damaged or needs another CPU, SignatureError if it is not
    signed with that key.
    """
    from tilesmith.runtime.threads import thread_count

    thread_count(threads)
    options = Options(threads=threads, memory_limit=memory_limit, time_limit=time_limit)
    return loaded(Request(path, options, require_signature=require_signature))


def loaded(request: Request) -> Executable:
    """The executable in the compiled file that a request names.  Raises as `load` does."""
    from tilesmith.runtime.executable import Executable
    from tilesmith.runtime.limits import Limits
    from tilesmith.runtime.tsm import load_program

    from .saved.constants import allocated_to_share, shared

    limits = Limits.of(request.options)
    cache = cache_of(request.options, "programs")
    if cache is None:
        program = load_program(request.model, require_signature=request.require_signature)
    else:
        allocate = partial(allocated_to_share, cache)
        program = load_program(request.model, cache.file, request.require_signature, allocate)
        program = replace(program, constants=shared(cache, program.constants))
    limits.check(program)
    return Executable(program, request.options.threads, limits)


class FallbackWarning(UserWarning):
    """Operators of a model run on the host, by ONNX's reference evaluator, or on the CPU instead of
    a device.
    """


def warn_of_fallback(program: Program) -> None:
    """Log one warning that names the operators without native code, and their fraction of the
    nodes.
    """
    counts = Counter(c.operator for c in program.host_calls if c.is_fallback)
    if not counts:
        return
    nodes = {name for c in program.calls for name in c.sources or (c.label,)}
    nodes |= {c.label for c in program.host_calls}
    shown = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in counts.most_common())
    share = counts.total() / max(len(nodes), 1)
    warnings.warn(
        f"{counts.total()} of the model's {len(nodes)} nodes ({share:.0%}) have no native code and "
        f'run on the host, by ONNX\'s reference evaluator: {shown}; fallback="error" refuses them',
        FallbackWarning,
        stacklevel=3,
    )


def warn_of_cpu(program: Program) -> None:
    """Log one warning that names the operators that run on the CPU instead of the device."""
    told = program.metadata["on_cpu"]
    shown = ", ".join(f"{name} ({n})" if n > 1 else name for name, _, n in told)
    reasons = "; ".join(dict.fromkeys(why for _, why, _ in told))
    count = len(program.transfers)
    warnings.warn(
        f"{sum(n for *_, n in told)} operators run on the CPU, not on {program.target.name!r}: "
        f'{shown} ({reasons}), and {count} values are copied; fallback="error" refuses them',
        FallbackWarning,
        stacklevel=3,
    )


def warn_of_left(program: Program) -> None:
    """Log one warning that counts the layers that stay on the CPU beside the target's other
    machine, and says why.
    """
    from tilesmith.graph.left import LeftLayer, counted

    left = [LeftLayer(*x) for x in program.metadata["left"]]
    many = len(left) > 1
    layers, stay, them = ("layers", "stay", "them") if many else ("layer", "stays", "it")
    warnings.warn(
        f"{len(left)} {layers} of target {program.target.name!r} {stay} on the CPU: "
        f'{counted(left)}; fallback="error" refuses {them}',
        FallbackWarning,
        stacklevel=3,
    )
