"""`Trainer`: trains the weights of a model by compiled training steps."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tilesmith.driver.entry import compile, of_frontend
from tilesmith.driver.exporting import export
from tilesmith.driver.request import Request
from tilesmith.frontend.load import load, recognised
from tilesmith.frontend.onnx import ONNX
from tilesmith.frontend.onnx.export import save_model, save_onnx
from tilesmith.frontend.onnx.retrained import with_weights
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data, Graph
from tilesmith.ir.dtypes import bf16
from tilesmith.runtime.arrays import to_numpy
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.standalone.objects import Exported
from tilesmith.runtime.weights import read_safetensors, write_safetensors
from tilesmith.support.arguments import checked, each, shown
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.folders import write_text
from tilesmith.support.foreign import is_module
from tilesmith.support.options import Options

from .batches import Arrays, Batches, as_arrays, expect, inputs_of, sized
from .epochs import METRICS, Epoch
from .faults import first_fault
from .library import train_header, with_states
from .lora import adapters_of, merged, ranks_of, with_adapters
from .losses import LOSSES, Loss
from .optimizers import OPTIMIZERS, Optimizer, check_limit
from .plans import Plan
from .step import (
    STEP,
    Recipe,
    drawing,
    draws,
    has_sums,
    kept_values,
    labels_name,
    loss_graph,
    moment_name,
    moments_of,
    step_graph,
    sums_of,
    update_graph,
)
from .weights import EVERYTHING, chosen, contents, with_contents
from .workers import Average, average_all

_EPOCH, _BATCH, _TOTALS = "train.epoch", "train.batch", "train.totals"
"""The arrays of a checkpoint that are not states of the training step."""
_PRECISIONS = {"f32": None, "bf16": bf16}
"""For each precision, the type of products' operands in a step; None for their own."""

_READ = ("shapes", "dynamic", "signature", "values", "example_inputs", "example_kwargs")
"""The fields of a request that say how a model is read for training."""

T = TypeVar("T")


class Trainer:
    """Trains a model in compiled code (docs/training.md).

    Each step is one call of a program that computes the loss, the gradients and the new weights,
    which replace the old ones in place.  `weights` holds the trained weights by name.
    """

    @checked(UsageError)
    def __init__(
        self,
        model: Any,
        loss: str | Loss = "cross_entropy",
        optimizer: str | Optimizer = "adamw",
        trainable: str | Sequence[str] | None = None,
        metrics: Sequence[str] = (),
        clip_norm: float | None = None,
        output: str | None = None,
        accumulate: int = 1,
        lora: Mapping[str, int] | None = None,
        average: Average | None = None,
        options: Options | None = None,
        **source: Any,
    ) -> None:
        """model: as for `compile`.
        loss: a loss, or the name of one: cross_entropy, bce, mse, huber, kl, triplet, ctc.
        optimizer: an optimiser, or the name of one: sgd, adam, adamw, adagrad, rmsprop, lamb.
        trainable: names of weights, or patterns such as "head.*"; other weights stay as they are
            (default: all, with `lora` none).
        metrics: measures besides the loss: "accuracy".
        clip_norm: upper bound on the norm of all gradients together; larger ones are scaled.
        output: the name of the output that the loss compares with labels (default: the first).
        accumulate: number of batches whose gradients are averaged for each step of the optimiser.
        lora: the rank of low-rank adapters, by names or patterns of weights of two or more axes.
            The adapters are trained instead of these weights.
        average: replaces the elements of an array by their averages over the processes that train
            together, each on batches of its own, such as `ts.training.gloo()`.  All make the same
            trainer and call `fit` alike.
        source: arguments of `compile` that say how a model is read or compiled: `example_inputs`,
            `shapes`, `threads`, `precision`, `memory_limit` and others.  The limit is that of a
            step, whose values are computed again where that costs the least time.

        Raises the errors of `compile`; UsageError for an unknown name, or for a pattern that
        matches no weight.
        """
        request = Request.of(model, options, **source)
        request.check_only("training", _READ)
        precision = request.options.precision
        if precision not in _PRECISIONS:
            raise UsageError(
                f"precision: expected one of {', '.join(_PRECISIONS)} to train, found {precision!r}"
            )
        request = replace(request, options=replace(request.options, precision="f32"))
        self._options, self._source = request.options, request.model
        self._model, parameters = _read(request)
        self._inference = self._model
        if is_module(request.model) and request.model.training:
            frozen = copy.deepcopy(request.model).eval()
            self._inference = _read(replace(request, model=frozen))[0]
        elif draws(self._model):
            self._inference = _read(request, without_dropout=True)[0]
        if isinstance(loss, str):
            loss = _named(loss, LOSSES, "loss")()
        if isinstance(optimizer, str):
            optimizer = _named(optimizer, OPTIMIZERS, "optimizer")()
        check_limit(clip_norm)
        if accumulate < 1:
            raise UsageError(f"accumulate: expected 1 or more batches, found {accumulate}")
        for metric in metrics:
            if metric not in METRICS:
                raise UsageError(f"metrics: expected {', '.join(METRICS)}, found {shown(metric)}")
        names = self._model.output_names
        if output is not None and output not in names:
            raise UsageError(f"output: expected one of {', '.join(names)}, found {output!r}")
        number = 0 if output is None else names.index(output)
        self._recipe = Recipe(
            loss=loss, optimizer=optimizer, clip_norm=clip_norm, output=number,
            metrics=tuple(dict.fromkeys(metrics)), accumulate=accumulate,
            is_apart=average is not None,
            low=_PRECISIONS[precision],
        )  # fmt: skip
        if not self._model.outputs[number].dtype.is_float:
            raise ModelError(
                f"output {names[number]!r}: expected floats to compare with labels, found "
                f"{self._model.outputs[number].type}"
            )
        self._plain = self._inference
        self._ranks = ranks_of(self._model, number, lora or {})
        if trainable is None:
            trainable = () if self._ranks else (EVERYTHING,)
        patterns = (trainable,) if isinstance(trainable, str) else tuple(trainable)
        self._names = [
            n for n in chosen(self._model, number, patterns, parameters) if n not in self._ranks
        ]
        if self._ranks:
            self._names += [n for w in self._ranks for n in adapters_of(w)]
            self._model, self._inference = (
                with_adapters(m, self._ranks) for m in (self._model, self._inference)
            )
        if not self._names:
            raise UsageError("trainable: expected at least one name or pattern, found none")
        self._average = average
        self._update: Executable | None = None
        self._states = self._initial()
        self._epoch, self._batch = 0, 0
        self._totals = np.zeros(2 + len(self._recipe.metrics))
        self._plans: dict[Any, Plan] = {}

    def _initial(self) -> dict[str, np.ndarray]:
        states = contents(self._model, self._names)
        moments = moments_of(self._recipe)
        states |= {
            moment_name(n, m): np.zeros_like(states[n]) for n in self._names for m in moments
        }
        own = {v.name for v in (*self._model.inputs, *(c.value for c in self._model.constants))}
        if taken := sorted(({*states, STEP} - {*self._names}) & own):
            raise ModelError(
                "expected a model whose inputs and weights have other names than the states of a "
                f"training, found {', '.join(map(repr, taken))}: rename them in the model"
            )
        defaults = {v.name: c for v, c in self._model.default_of.items()}
        for v, _ in kept_values(self._model):
            states[v.name] = defaults[v.name].data.array.copy()
        return {**states, STEP: np.zeros((), np.int64)}

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The trained weights by name.  Training writes these arrays."""
        return {n: self._states[n] for n in self._names}

    @property
    def _held(self) -> list[str]:
        """The names of the inference model's constants that training changes."""
        held = {c.value.name for c in self._inference.constants}
        kept = [v.name for v, _ in kept_values(self._model)]
        return [*self._names, *(n for n in kept if n in held)]

    @property
    def steps(self) -> int:
        """The number of steps of the optimiser so far."""
        return self._batches // self._recipe.accumulate

    @property
    def _batches(self) -> int:
        """The number of batches so far."""
        return int(self._states[STEP])

    @property
    def array_names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        return (*(v.name for v in inputs_of(self._model)), labels_name(self._model))

    @property
    def batch(self) -> int | None:
        """The number of samples in a batch, if the model fixes it; else None."""
        inputs = inputs_of(self._model)
        size = inputs[0].shape[0] if inputs and inputs[0].shape else None
        return size if isinstance(size, int) else None

    @checked(UsageError)
    def fit(
        self,
        batches: Any,
        epochs: int = 1,
        validation: Any = None,
        callbacks: Sequence[Any] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
    ) -> list[Epoch]:
        """Train until `epochs` epochs are done in all, those before `restore` included.

        batches: `Batches`, or an iterable of batches.  A batch is a tuple of arrays, the model's
            inputs in order and the labels, or a mapping by name, where the labels are "labels".
        validation: batches that are evaluated after each epoch.
        callbacks: functions of the trainer and an `Epoch`, called after each epoch.  One that
            returns True ends the training.
        checkpoint: a file that is written after each epoch, and after every `every` steps.

        Returns the epochs of this call.

        Raises ModelError for a batch that does not fit the model, before the first step if
        `batches` is a list or `Batches`, and for a loss that is not finite, with the number of the
        step.
        """
        if epochs < 0 or (every is not None and every < 1):
            raise UsageError("fit: expected 0 or more epochs, and every from 1")
        if every is not None and checkpoint is None:
            raise UsageError("fit: every is the interval of checkpoints: expected a checkpoint")
        if not all(callable(c) for c in callbacks):
            raise UsageError(f"fit: callbacks: expected functions, found {shown(callbacks)}")
        for name, given in (("batches", batches), ("validation", validation)):
            self._check_all(given, name, several=epochs > 1)
        history: list[Epoch] = []
        while self._epoch < epochs:
            start = time.perf_counter()
            for number, batch in enumerate(_of_epoch(batches, self._epoch)):
                if number < self._batch:
                    continue  # done before the training was resumed
                self._train(batch, f"epoch {self._epoch + 1}, batch {number}")
                self._batch = number + 1
                if every and self._batches % (every * self._recipe.accumulate) == 0:
                    assert checkpoint is not None
                    self.save(checkpoint)
            measures = self._measures(self._totals, "batches")
            self._epoch, self._batch = self._epoch + 1, 0
            self._totals[:] = 0
            checks = {} if validation is None else self.evaluate(validation)
            seconds = time.perf_counter() - start
            history.append(Epoch(self._epoch, self.steps, measures, checks, seconds))
            if checkpoint is not None:
                self.save(checkpoint)
            answers = [callback(self, history[-1]) for callback in callbacks]
            if True in answers:
                break
        return history

    @checked(UsageError)
    def evaluate(self, batches: Any) -> dict[str, float]:
        """The loss and the metrics on batches, without training: averages over the samples.

        Raises ModelError for a batch that does not fit the model.
        """
        self._check_all(batches, "batches")
        totals = np.zeros_like(self._totals)
        for number, batch in enumerate(_of_epoch(batches, 0)):
            plan, arrays = self._checked(batch, f"batch {number}")
            self._add(totals, arrays, self._run(plan.evaluation(), plan, arrays))
        return self._measures(totals, "batches")

    def model(self) -> Graph:
        """The model with the weights as they are now."""
        return with_contents(self._plain, self._changed())

    def _changed(self) -> dict[str, np.ndarray]:
        """The constants of the plain inference model that training changes, adapters merged."""
        own = {c.value.name for c in self._plain.constants}
        found = {n: self._states[n] for n in self._held if n in own}
        return found | merged(self._plain, self._ranks, self._states)

    @checked(UsageError)
    def save_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the model with the weights as they are now to an ONNX file.  A source of ONNX stays
        as it is but for the weights; other sources are written as `ts.save_onnx` does.

        Raises UsageError if the file can't be written, and the errors of `ts.save_onnx`.
        """
        model = self.model()
        if isinstance(self._source, Graph) or recognised(self._source, None)[0] is not ONNX:
            save_onnx(model, path)
            return
        try:
            trained = {*self._names, *self._ranks}
            new = {n: a for n, a in self._changed().items() if n in trained}
            save_model(with_weights(self._source, new), model, Path(path))
        except OSError as e:
            raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from None

    @checked(UsageError)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, a `.safetensors` file: weights by name, moments, and how far the
        training is.  The file appears whole or not at all.

        Raises UsageError if it can't be written.
        """
        write_safetensors(Path(path), self._checkpoint())

    @checked(UsageError)
    def export(
        self,
        folder: str | os.PathLike[str],
        name: str = "model",
        batch: Any = None,
        targets: Sequence[str] = (),
    ) -> Exported:
        """Write a C library that trains, without Python: `NAME_train.h` has a step, `NAME_save` and
        `NAME_load`.  An instance of the model begins with the weights as they are now.

        folder, name, targets: as for `ts.export`.
        batch: a batch with the sizes of those to come (default: the model's own sizes).

        Raises ModelError for a batch that does not fit the model, and the errors of `ts.export`;
        UsageError for accumulated gradients and several processes, which need two programs.
        """
        if has_sums(self._recipe):
            raise UsageError("export: expected accumulate=1 and one process: one program is a step")
        if batch is None:
            batch = self._sizes()
        plan, _ = self._checked(batch, "batch")
        graph = step_graph(plan.model, self._names, self._recipe, plan.labels)
        graph = with_states(graph, self._states)
        made = export(
            graph, Path(folder), name, targets=targets, weights="inside", options=self._options
        )
        header = made.header.with_name(f"{name}_train.h")
        write_text(header, train_header(name, graph, self._checkpoint()))
        return replace(made, files=(*made.files, header))

    def _sizes(self) -> list[np.ndarray]:
        """A batch of zeros.  Raises UsageError for a model with open sizes."""
        types = [v.type for v in inputs_of(self._model)]
        types.append(self._recipe.loss.labels(self._model.outputs[self._recipe.output].type, ()))
        if not all(t.is_static for t in types):
            raise UsageError("export: the model has open sizes: expected a batch, found none")
        return [np.zeros(t.static_shape, t.dtype.numpy) for t in types]

    @checked(UsageError)
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go back to a checkpoint.  `fit` with the same batches then gives the bits that an
        uninterrupted training gives.

        Raises ModelError for a file that is not a checkpoint of this model and optimiser.
        """
        found, own = read_safetensors(Path(path)), self._checkpoint()
        problems = [
            f"{n!r}: expected {_kind(own.get(n))}, found {_kind(found.get(n))}"
            for n in {**own, **found}
            if _kind(own.get(n)) != _kind(found.get(n))
        ]
        if problems:
            raise ModelError(
                f"{path!s}: not a checkpoint of this training: {'; '.join(problems[:10])}"
            )
        for name, state in self._states.items():
            state[...] = found[name]
        self._epoch, self._batch = int(found[_EPOCH]), int(found[_BATCH])
        self._totals[:] = found[_TOTALS]

    def _checkpoint(self) -> dict[str, np.ndarray]:
        numbers = {_EPOCH: np.array(self._epoch), _BATCH: np.array(self._batch)}
        return {**self._states, **numbers, _TOTALS: self._totals}

    def _check_all(self, batches: Any, name: str, several: bool = False) -> None:
        """Check batches that can be read twice.  Raises UsageError for what are no batches."""
        if batches is None and name == "validation":
            return
        is_array = hasattr(type(batches), "shape") or isinstance(batches, (str, bytes))
        if is_array or not isinstance(batches, (Batches, Iterable)):
            raise UsageError(f"{name}: expected an iterable of batches, found {shown(batches)}")
        if several and isinstance(batches, Iterator):
            raise UsageError(
                f"{name}: expected batches that can be read once for each epoch, such as a list, "
                "found an iterator"
            )
        if isinstance(batches, (Batches, list, tuple)):
            for number, batch in enumerate(batches):
                self._checked(batch, f"{name}: batch {number}")

    def _checked(self, batch: Any, where: str) -> tuple[Plan, Arrays]:
        """The plan for a batch, and its arrays.  Raises ModelError."""
        arrays = as_arrays(batch, self.array_names, where)
        key = (*((a.dtype, a.shape) for a in arrays[:-1]), arrays[-1].shape)
        if key not in self._plans:
            model = sized(self._model, arrays[:-1], where)
            inference = model
            if self._inference is not self._model:
                inference = sized(self._inference, arrays[:-1], where)
            predictions = model.outputs[self._recipe.output].type
            wanted = self._recipe.loss.labels(predictions, arrays[-1].shape)
            self._plans[key] = Plan(
                model, inference, wanted, self._names, self._held, self._recipe, self._options
            )
        plan = self._plans[key]
        expect("labels", plan.labels, arrays[-1], where)
        predictions = plan.model.outputs[self._recipe.output].type
        self._recipe.loss.check(predictions, arrays[-1], where)
        return plan, arrays

    def _train(self, batch: Any, where: str) -> None:
        plan, arrays = self._checked(batch, where)
        parts = self._recipe.accumulate
        exe = plan.training(is_last=self._batches % parts == parts - 1)
        before = {} if self._average is None else self._stepped()
        found = self._run(exe, plan, arrays)
        own = found[0]
        if self._average is not None:
            self._together(self._average, found)
        if not math.isfinite(found[0]):
            for name, state in before.items():
                self._states[name][...] = state
            fault = "another process made it"
            if not math.isfinite(own):
                graph = loss_graph(drawing(plan.model), self._names, self._recipe, plan.labels)
                fault = first_fault(graph, self._given(plan, arrays))
            raise ModelError(
                f"step {self.steps + 1} ({where}): the loss is {found[0]}, expected a finite "
                f"number; {fault}; the weights are as before this step: lower the learning rate, "
                "set clip_norm, or look for such numbers in the batch"
            )
        self._add(self._totals, arrays, found)

    def _stepped(self) -> dict[str, np.ndarray]:
        """Copies of the states that a process changes before it knows the losses of the others."""
        kept = [v.name for v, _ in kept_values(self._model)]
        return {n: self._states[n].copy() for n in (STEP, *sums_of(self._names), *kept)}

    def _together(self, average: Average, found: list[float]) -> None:
        """Average the results of a batch over the processes.  After the last of the batches whose
        gradients are averaged, make a step.

        found: the loss and the metrics; gets their averages.
        """
        mean = np.array(found)
        average_all(average, [mean])
        found[:] = mean.tolist()
        if self._batches % self._recipe.accumulate or not math.isfinite(found[0]):
            return
        kept = (self._states[v.name] for v, _ in kept_values(self._model) if v.dtype.is_float)
        average_all(average, [*(self._states[n] for n in sums_of(self._names)), *kept])
        if self._update is None:
            types = {n: array_type(self._states[n]) for n in self._names}
            graph = update_graph(self._model.name, types, self._recipe)
            self._update = compile(graph, options=self._options)
        self._update(*(self._states[s.name] for s in self._update.inputs))

    def _run(self, exe: Executable, plan: Plan, arrays: Arrays) -> list[float]:
        """The loss and the metrics of a batch."""
        given = self._given(plan, arrays)
        results = exe(*(given[s.name] for s in exe.inputs))
        results = (results,) if len(exe.outputs) == 1 else results
        return [float(v) for v in results[: 1 + len(self._recipe.metrics)]]

    def _given(self, plan: Plan, arrays: Arrays) -> dict[str, np.ndarray]:
        """The arrays of a batch and the states, by name."""
        return dict(zip(self.array_names, arrays, strict=True)) | self._states

    def _add(self, totals: np.ndarray, arrays: Arrays, found: Sequence[float]) -> None:
        count = len(arrays[-1]) if arrays[-1].ndim else 1
        totals += count * np.array([1.0, *found])

    def _measures(self, totals: np.ndarray, name: str) -> dict[str, float]:
        if not totals[0]:
            raise UsageError(f"{name}: expected at least one batch, found none")
        means = (totals[1:] / totals[0]).tolist()
        return dict(zip(("loss", *self._recipe.metrics), means, strict=True))


def _of_epoch(batches: Any, number: int) -> Iterable[Any]:
    return batches.epoch(number) if isinstance(batches, Batches) else each(batches, "batches")


def _named(name: str, known: Mapping[str, type[T]], what: str) -> type[T]:
    """The class of a name.  Raises UsageError."""
    if name not in known:
        raise UsageError(f"{what}: expected one of {', '.join(known)}, found {shown(name)}")
    return known[name]


def _read(request: Request, without_dropout: bool = False) -> tuple[Graph, frozenset[str] | None]:
    """The graph of a model with its weights as constants.  For a PyTorch module, also the names of
    the parameters that require gradients.  Buffers that a module writes are values that the graph
    keeps.

    without_dropout: as for `load`.
    """
    source = request.model
    request, exported = of_frontend(request, request.options)
    graph = load(
        request.model, request.shapes, request.values, dynamic=request.dynamic,
        signature=request.signature, for_training=True, without_dropout=without_dropout,
    )  # fmt: skip
    if exported is None:
        return graph, None
    inputs = {v.name: i for i, v in enumerate(graph.inputs)}
    outputs = {name: i for i, name in enumerate(graph.output_names)}
    written = exported.signature.written
    pairs = tuple((outputs[f"new.{n}"], inputs[n]) for n in written)
    defaults = tuple((inputs[n], Data.of(to_numpy(exported.weights[n], n).copy())) for n in written)
    graph = replace(graph, in_place=pairs, defaults=defaults)
    parameters = getattr(source, "named_parameters", None)
    if parameters is None:
        return graph, None
    return graph, frozenset(n for n, p in parameters() if p.requires_grad)


def _kind(array: np.ndarray | None) -> str:
    return "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
